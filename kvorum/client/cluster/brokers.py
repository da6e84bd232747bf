"""A client's view of the brokers: the leaders of partitions, and a connection to each broker asked.

Any broker answers a request about the cluster; a broker that is gone is replaced by another one
that the bootstrap addresses or an earlier answer named.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kvorum.broker.metadata_answers.topic_names import name_refusal
from kvorum.client.connection import BrokerGone, KafkaConnection
from kvorum.client.failures import CommandFailed, check_topic, exit_code_of, no_topic
from kvorum.runtime.errors import ErrorCode

Partition = tuple[str, int]
"""(topic, partition)."""

RETRY_PAUSE_S = 0.1

MOVED = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
)
"""Errors of a partition whose leader moves or is not ready: the leader is looked up again."""


class Unavailable(CommandFailed):
    """No leader or coordinator has answered within the time; one may do so later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as a broker knows it. leaders: broker id of each partition; -1 for none."""

    name: str
    topic_id: bytes
    leaders: Mapping[int, int]


class Brokers:
    """Connections to the brokers of one cluster; not for several threads."""

    def __init__(self, addresses: list[tuple[str, int]], timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._bootstrap = addresses
        self._known: dict[int, tuple[str, int]] = {}
        self._open: dict[int, KafkaConnection] = {}
        self._any: KafkaConnection | None = KafkaConnection(addresses, timeout_s)

    def close(self) -> None:
        """Close every connection; one that is needed again is opened again."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()
        if self._any is not None:
            self._any.close()
            self._any = None

    def call(self, name: str, key: int, version: int, values: Mapping[str, Any]) -> Any:
        """Ask any broker; a second one if the first is gone. The request must be one that may be
        repeated. Raises BrokerGone."""
        if self._any is not None:
            try:
                return self._any.call(name, key, version, values, flexible=True)
            except BrokerGone:
                self._any.close()
                self._any = None
        addresses = list(dict.fromkeys([*self._known.values(), *self._bootstrap]))
        # Kept only after an answer: a broker that is being killed may still accept a connection.
        # Its missing answer would be taken for the answer to the next request.
        fresh = KafkaConnection(addresses, self.timeout_s)
        try:
            reply = fresh.call(name, key, version, values, flexible=True)
        except BaseException:
            fresh.close()
            raise
        self._any = fresh
        return reply

    def topics(self, names: list[str] | None, *, operation: str = "DESCRIBE") -> dict[str, Topic]:
        """The topics of these names that exist; None: all. operation: the one that a user needs who
        may not even describe a topic. Raises CommandFailed."""
        asked = None if names is None else [{"topic_id": None, "name": name} for name in names]
        values = {
            "topics": asked,
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        reply = self.call("metadata", 3, 12, values)
        self._known = {b.node_id: (b.host, b.port) for b in reply.brokers}
        found = {}
        for topic in reply.topics:
            if topic.error_code in MOVED:
                continue
            reason = None
            if topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
                reason = name_refusal(topic.name)  # an answer to Metadata has no reasons
            check_topic(topic.error_code, reason, topic.name, operation)
            found[topic.name] = Topic(
                name=topic.name,
                topic_id=bytes(topic.topic_id.bytes) if topic.topic_id else bytes(16),
                leaders={p.partition_index: p.leader_id for p in topic.partitions},
            )
        return found

    def existing(self, names: list[str], *, operation: str = "DESCRIBE") -> dict[str, Topic]:
        """The topics of these names. Raises CommandFailed for one that does not exist. operation:
        see `topics`."""
        found = self.topics(names, operation=operation)
        for name in names:
            if name not in found:
                raise no_topic(name)
        return found

    def ids(self) -> list[int]:
        """The brokers that the last answer named, in order."""
        return sorted(self._known)

    def address(self, broker_id: int) -> tuple[str, int] | None:
        """Host and port of a broker that the last answer named."""
        return self._known.get(broker_id)

    def to(self, broker_id: int) -> KafkaConnection:
        """The connection to a broker. Raises BrokerGone if it cannot be reached."""
        connection = self._open.get(broker_id)
        if connection is None:
            address = self._known.get(broker_id)
            if address is None:
                raise BrokerGone(f"broker {broker_id} is not in the cluster")
            connection = self._open[broker_id] = KafkaConnection([address], self.timeout_s)
        return connection

    def forget(self, broker_id: int) -> None:
        """Close the connection to a broker."""
        connection = self._open.pop(broker_id, None)
        if connection is not None:
            connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderRequest:
    """A request about partitions, each of which goes to its leader.

    values: the request for some partitions. rows: (partition, error, row) of an answer.
    """

    name: str
    key: int
    version: int
    values: Callable[[list[Partition]], Mapping[str, Any]]
    rows: Callable[[Any], list[tuple[Partition, int, Any]]]


def ask_leaders(
    brokers: Brokers,
    partitions: list[Partition],
    request: LeaderRequest,
    *,
    is_final: Callable[[int], bool] = lambda error: error not in MOVED,
) -> dict[Partition, Any]:
    """The leader's row for each partition. While a leader moves (MOVED), the request is repeated
    until the brokers' timeout.

    Raises Unavailable for a partition that has no answer by then, CommandFailed for one that is not
    there.
    """
    deadline_s = time.monotonic() + brokers.timeout_s
    found: dict[Partition, Any] = {}
    problems: dict[Partition, str] = {}
    while True:
        open_partitions = [p for p in partitions if p not in found]
        if not open_partitions:
            return found
        for leader, wanted in by_leader(brokers, open_partitions, problems).items():
            try:
                reply = brokers.to(leader).call(
                    request.name,
                    request.key,
                    request.version,
                    request.values(wanted),
                    flexible=True,
                )
            except BrokerGone as error:
                brokers.forget(leader)
                problems.update(dict.fromkeys(wanted, str(error)))
                continue
            for partition, error_code, row in request.rows(reply):
                if is_final(error_code):
                    found[partition] = row
                else:
                    problems[partition] = ErrorCode(error_code).name
        missing = [p for p in partitions if p not in found]
        if missing and time.monotonic() > deadline_s:
            topic, number = missing[0]
            problem = problems.get(missing[0], "no answer")
            raise Unavailable(f"{topic}-{number}: {problem}", exit_code_of(problem))
        if missing:
            time.sleep(RETRY_PAUSE_S)


def by_leader(
    brokers: Brokers, partitions: list[Partition], problems: dict[Partition, str]
) -> dict[int, list[Partition]]:
    """Partitions under their leaders; the reason for one without a leader is put into problems.
    Raises CommandFailed for a topic or partition that is not there."""
    topics = brokers.existing(sorted({topic for topic, _ in partitions}))
    led: dict[int, list[Partition]] = {}
    for topic, number in partitions:
        leaders = topics[topic].leaders
        if number not in leaders:
            raise CommandFailed(
                f"{topic}-{number}: there is no such partition; {topic} has {len(leaders)}"
            )
        if leaders[number] < 0:
            problems[topic, number] = "the partition has no leader"
        else:
            led.setdefault(leaders[number], []).append((topic, number))
    return led


def by_topic(partitions: list[Partition]) -> dict[str, list[int]]:
    """The partition numbers under each topic, in order."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found
