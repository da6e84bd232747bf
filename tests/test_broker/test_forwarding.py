"""Requests of a broker to the active controller."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from kvorum.broker.controller_channel.forwarding import ForwardingManager
from kvorum.metadata.requests.controller_requests import CreateTopics
from kvorum.metadata.rpc.calls import CREATE_TOPICS
from kvorum.raft.model.messages import AddVoterRequest
from kvorum.raft.model.voters import Voter
from kvorum.runtime.errors import ErrorCode, Rejected


def test_a_broker_that_refuses_the_quorum_asks_it_for_no_change() -> None:
    """Bug: it forwarded changes to a quorum of empty disks, which acknowledged what the recovery
    lost again."""
    asked: list[Any] = []

    async def request(*words: Any) -> Rejected:
        asked.append(words)
        return Rejected(ErrorCode.NOT_CONTROLLER, "asked")

    why = ["its voters have lost records"]
    client: Any = SimpleNamespace(request=request, addresses={})
    publisher: Any = None
    manager = ForwardingManager(client, publisher, 101, lambda: 7, lambda: why[0])
    refused = asyncio.run(manager.request(CREATE_TOPICS, CreateTopics(topics=())))
    said = "Broker 101 refuses the quorum: its voters have lost records"
    assert refused == Rejected(ErrorCode.REQUEST_TIMED_OUT, said)
    voter = Voter(4, bytes(16), "localhost", 9)
    add = AddVoterRequest(cluster_id="c", voter=voter)
    assert asyncio.run(manager.voters.add(add, 1_000)) == refused
    assert asked == []
    why[0] = ""
    asyncio.run(manager.request(CREATE_TOPICS, CreateTopics(topics=())))
    assert len(asked) == 1
