"""The markers that are still to be written, by transaction and partition. Pure.

A transaction is in the book until each of its partitions has its marker, replicated. Partitions of
a deleted topic count as done. This broker leads the transaction's own partition, by metadata newer
than the topic's creation. So a topic that is not in its metadata was deleted.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from kvorum.broker.transactions.core.model import TopicPartition
from kvorum.broker.transactions.core.requests import SendMarkers
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.errors import ErrorCode

MARKERS_PER_REQUEST_MAX = 1_000
"""Limit of partitions in one request; the next request has the rest. The leader appends all of them
in one turn of its event loop, about 50 ms for this many."""

_DONE = frozenset(
    {
        ErrorCode.NONE,
        # A later epoch of the producer has written to this log. The coordinator allows that only
        # after the marker, so the marker is there.
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


@dataclass(slots=True)
class _Job:
    question: SendMarkers
    missing: set[TopicPartition]
    in_flight: set[TopicPartition] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The markers for one broker, in order: (key of the transaction, its question, partitions that
    the broker leads)."""

    broker_id: int
    items: tuple[tuple[Hashable, SendMarkers, tuple[TopicPartition, ...]], ...]


class MarkerBook:
    """Transactions whose markers are to be written. A key identifies a transaction in one shard
    context."""

    __slots__ = ("_jobs",)

    def __init__(self) -> None:
        self._jobs: dict[Hashable, _Job] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, key: Hashable, question: SendMarkers) -> None:
        self._jobs[key] = _Job(question, set(question.partitions))

    def drop(self, key: Hashable) -> None:
        """Forget a transaction; does nothing if it is not in the book."""
        self._jobs.pop(key, None)

    def keys(self) -> list[Hashable]:
        return list(self._jobs)

    def due(self, image: ClusterImage, busy: frozenset[int]) -> tuple[list[Batch], list[Hashable]]:
        """The markers to send now, one batch for each broker that is not busy; and the transactions
        that are done.

        Partitions without a leader wait. Those of busy brokers wait too, and are sent together
        later.
        """
        by_broker: dict[int, list[tuple[Hashable, SendMarkers, tuple[TopicPartition, ...]]]] = {}
        room: dict[int, int] = {}
        done = []
        for key, job in list(self._jobs.items()):
            leaders: dict[int, list[TopicPartition]] = {}
            for partition in sorted(job.missing - job.in_flight):
                leader = _leader_of(image, partition)
                if leader is None:
                    job.missing.discard(partition)
                    continue
                left = room.setdefault(leader, MARKERS_PER_REQUEST_MAX)
                if leader >= 0 and leader not in busy and left > 0:
                    room[leader] = left - 1
                    leaders.setdefault(leader, []).append(partition)
            for leader, partitions in leaders.items():
                job.in_flight.update(partitions)
                by_broker.setdefault(leader, []).append((key, job.question, tuple(partitions)))
            if self._is_done(key):
                done.append(key)
        batches = [
            Batch(broker_id=broker_id, items=tuple(items))
            for broker_id, items in sorted(by_broker.items())
        ]
        return batches, done

    def take(self, key: Hashable, partition: TopicPartition, error: ErrorCode) -> bool:
        """Apply a broker's result for one marker. True if it was the last marker of its
        transaction.

        TRANSACTION_COORDINATOR_FENCED drops the transaction: a later coordinator completes it.
        Markers with any error that is not known to be final are sent again.
        """
        job = self._jobs.get(key)
        if job is None:
            return False
        job.in_flight.discard(partition)
        if error == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            self.drop(key)
            return False
        if error in _DONE:
            job.missing.discard(partition)
        return self._is_done(key)

    def _is_done(self, key: Hashable) -> bool:
        if self._jobs[key].missing:
            return False
        del self._jobs[key]
        return True

    def summary(self) -> str:
        missing = sum(len(job.missing) for job in self._jobs.values())
        return f"transactions={len(self._jobs)} markers={missing}"


def _leader_of(image: ClusterImage, partition: TopicPartition) -> int | None:
    """The leader of a partition. None: there is no such partition; negative: it has no leader
    now."""
    topic = image.topic(partition.topic)
    held = None if topic is None else topic.partitions.get(partition.partition_id)
    return None if held is None else held.leader
