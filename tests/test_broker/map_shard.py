"""A coordinator's shard for tests: a map that lives in a partition, and three brokers that host it.

It is the smallest shard that uses every event and every effect.
"""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from kvorum.broker.coordinator.host import CoordinatorHost
from kvorum.broker.coordinator.model import (
    Append,
    Ask,
    Barrier,
    CoordinatorRecord,
    Durable,
    Effect,
    Event,
    FactLearned,
    Instant,
    ReplayedRecord,
    SetTimer,
    ShardAnswer,
    ShardRequest,
    TimerFired,
    TopicsChanged,
    TransactionEnd,
    TransactionEnded,
)
from kvorum.broker.coordinator.shard_context import ShardState
from tests.polling import eventually
from tests.test_broker.harness import QUICK, Harness

TOPIC = "kept"


@dataclass(frozen=True)
class Put:
    key: str
    value: str
    producer: tuple[int, int] | None = None


@dataclass(frozen=True)
class Get:
    key: str
    needs_replicas: ClassVar[bool] = False


@dataclass(frozen=True)
class PutSoon:
    """A put that is written when a timer fires, and answered once a barrier behind it is passed."""

    key: str
    value: str


@dataclass(frozen=True)
class AskAround:
    needs_replicas: ClassVar[bool] = False


class MapShard:
    def __init__(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.values: dict[str, str] = {}
        self.open: dict[int, dict[str, str]] = {}
        self.deleted: list[str] = []
        self.asking: list[int] = []

    def replay(self, record: ReplayedRecord) -> None:
        value = (record.value or b"").decode()
        if record.is_transactional:
            self.open.setdefault(record.producer_id, {})[record.key.decode()] = value
        else:
            self.values[record.key.decode()] = value

    def replay_end(self, end: TransactionEnd) -> None:
        written = self.open.pop(end.producer_id, {})
        if end.is_commit:
            self.values.update(written)

    def on_loaded(self, now: Instant) -> list[Effect]:
        return []

    def step(self, event: Event, now: Instant) -> list[Effect]:
        match event:
            case ShardRequest(token=token, body=Put(key, value, None)):
                self.values[key] = value
                return [_written(key, value), ShardAnswer(token=token, response="put")]
            case ShardRequest(token=token, body=Put(key, value, producer)):
                self.open.setdefault(producer[0], {})[key] = value
                record = CoordinatorRecord(key.encode(), value.encode())
                return [
                    Append(records=(record,), producer=producer),
                    ShardAnswer(token=token, response="put"),
                ]
            case ShardRequest(token=token, body=Get(key)):
                return [ShardAnswer(token=token, response=self.values.get(key), is_durable=False)]
            case ShardRequest(token=token, body=PutSoon(key, value)):
                name = (token, key, value)
                return [SetTimer(name=name, deadline_ms=now.monotonic_ms + 20)]
            case TimerFired(name=(token, key, value)):
                self.values[key] = value
                return [_written(key, value), Barrier(tag=(token, "soon"))]
            case Durable(tag=(token, answer)):
                return [ShardAnswer(token=token, response=answer, is_durable=False)]
            case ShardRequest(token=token, body=AskAround()):
                return [Ask(question=token)]
            case FactLearned(fact=(token, answer)):
                return [ShardAnswer(token=token, response=answer, is_durable=False)]
            case TransactionEnded(end=end):
                self.replay_end(end)
            case TopicsChanged(deleted=deleted):
                self.deleted += deleted
        return []


def _written(key: str, value: str) -> Append:
    return Append(records=(CoordinatorRecord(key.encode(), value.encode()),))


class Kept:
    """Three brokers, and the map's host on each."""

    def __init__(self, directory: Path, configs: dict[str, str] | None = None) -> None:
        self.harness = Harness(
            directory, count=3, config=dataclasses.replace(QUICK, min_insync_replicas=2)
        )
        self.cluster = self.harness.cluster
        self.hosts = {i: self.harness.call(lambda i=i: self._host(i)) for i in (1, 2, 3)}
        self.topic_id = self.harness.call(
            lambda: self.cluster.controller.create(TOPIC, [(1, 2, 3)], configs)
        )
        self.wait_for_term(1)

    def _host(self, broker_id: int) -> CoordinatorHost:
        def ask(term: Any, question: Any) -> None:
            asyncio.get_running_loop().call_soon(
                term.give, FactLearned(fact=(question, f"heard by {broker_id}"))
            )

        return CoordinatorHost(
            topic=TOPIC,
            replicas=self.cluster.brokers[broker_id].manager,
            make_shard=lambda _, leader_epoch: MapShard(leader_epoch),
            ask=ask,
        )

    def term(self, broker_id: int) -> Any:
        return self.hosts[broker_id]._contexts.get(0)

    def wait_for_term(self, broker_id: int, leader_epoch: int = 0) -> None:
        def is_there() -> bool:
            term = self.term(broker_id)
            return (
                term is not None
                and term.state is ShardState.ACTIVE
                and term.leader_epoch >= leader_epoch
            )

        eventually(lambda: self.harness.call(is_there), f"broker {broker_id} has the term")

    def ask(self, broker_id: int, body: Any) -> Any:
        return self.harness.run(self.hosts[broker_id].request(key="k", body=body))

    def begin(self, broker_id: int, body: Any) -> asyncio.Future[Any]:
        """Send a request without waiting for its answer."""
        return asyncio.run_coroutine_threadsafe(
            self.hosts[broker_id].request(key="k", body=body), self.harness.loop
        )

    def lead(self, broker_id: int, isr: tuple[int, ...]) -> int:
        """Make this broker the leader; returns the new leader epoch."""
        controller = self.cluster.controller
        self.harness.call(lambda: controller.lead(self.topic_id, 0, broker_id, isr))
        partition = controller.image.partition(self.topic_id, 0)
        assert partition is not None
        return partition.leader_epoch

    def close(self) -> None:
        for host in self.hosts.values():
            self.harness.run(host.stop())
        self.harness.close()
