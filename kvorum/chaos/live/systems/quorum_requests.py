"""Two requests of the Kafka protocol that ask one chosen node about the metadata quorum.

librdkafka's AdminClient cannot choose the node that it asks. A broker answers DescribeQuorum with
the active controller's view. A KRaft controller answers DescribeQuorum only as the leader. The view
of any other controller is in its answer to a Fetch of the metadata log in an epoch that is over:
the answer has an error, the leader and the epoch, and neither records nor the high watermark.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from kvorum.chaos.live.host.node_requests import Call, NodeRequests
from kvorum.chaos.live.systems.protocol import NotObservable, QuorumStatus

#: The values of a DescribeQuorum, which has no other quorum to ask for.
METADATA_QUORUM: Mapping[str, Any] = {
    "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
}
_FETCH = Call(key=1, name="fetch", version=13)
_DESCRIBE_QUORUM = Call(key=55, name="describe_quorum", version=0)
#: Fetch names topics by their ids; this one is fixed (Uuid.METADATA_TOPIC_ID).
_METADATA_TOPIC_ID = bytes(15) + b"\x01"
_NO_EPOCH = 0


def ask_controller(address: str, node_id: int, *, timeout_s: float) -> QuorumStatus:
    """A KRaft controller's own view; the high watermark is known to the leader alone. Raises
    NotObservable."""
    view = _fetch_view(address, timeout_s=timeout_s)
    return describe_quorum(address, timeout_s=timeout_s) if view.leader_id == node_id else view


def _fetch_view(address: str, *, timeout_s: float) -> QuorumStatus:
    partition = {
        "partition": 0,
        "current_leader_epoch": _NO_EPOCH,
        "fetch_offset": 0,
        "last_fetched_epoch": _NO_EPOCH,
        "log_start_offset": -1,
        "partition_max_bytes": 0,
    }
    values = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 0,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic_id": _METADATA_TOPIC_ID, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    answer = _ask(address, _FETCH, values, timeout_s=timeout_s)
    if not answer.responses or not answer.responses[0].partitions:
        raise NotObservable(f"controller {address} gave no status: {answer.error_code!r}")
    found = answer.responses[0].partitions[0]
    leader = found.current_leader
    return QuorumStatus(
        leader_id=int(leader.leader_id),
        leader_epoch=int(leader.leader_epoch),
        high_watermark=int(found.high_watermark),
    )


def describe_quorum(address: str, *, timeout_s: float) -> QuorumStatus:
    """The active controller's view, from itself or by way of a broker. Raises NotObservable, also
    if a controller has lost the lead in the meantime."""
    answer = _ask(address, _DESCRIBE_QUORUM, METADATA_QUORUM, timeout_s=timeout_s)
    if not answer.topics or not answer.topics[0].partitions:
        raise NotObservable(f"{address} gave no quorum status: {answer.error_code!r}")
    found = answer.topics[0].partitions[0]
    if int(found.error_code) != 0:
        raise NotObservable(f"{address} gave no quorum status: {found.error_code!r}")
    return QuorumStatus(
        leader_id=int(found.leader_id),
        leader_epoch=int(found.leader_epoch),
        high_watermark=int(found.high_watermark),
        log_end_offsets=tuple(
            sorted(
                (int(voter.replica_id), int(voter.log_end_offset)) for voter in found.current_voters
            )
        ),
    )


def _ask(address: str, call: Call, values: Mapping[str, Any], *, timeout_s: float) -> Any:
    """Send one request on a connection of its own; returns kio's entity."""
    try:
        with closing(NodeRequests(address, timeout_ms=round(timeout_s * 1000))) as connection:
            return connection.ask(call, values)
    except OSError as error:
        raise NotObservable(f"{address} did not answer {call.name}: {error}") from error
