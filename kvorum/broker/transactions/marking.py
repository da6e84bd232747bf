"""Markers in the leader of their partitions: checked, appended, replicated.

Markers come from other brokers' coordinators by WriteTxnMarkers, and directly from this broker's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from kvorum.broker.coordinator.host import CoordinatorHost
from kvorum.broker.coordinator.model import TransactionEnd
from kvorum.broker.manager.replica_registry import ReplicaRegistry
from kvorum.broker.metadata_answers.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kvorum.broker.partition.core.batch_validation import ProduceTerms
from kvorum.broker.partition.replica import Replica
from kvorum.broker.purgatory.deadlines import Deadlines
from kvorum.broker.purgatory.pending_produce import PendingAck, PendingAcks
from kvorum.broker.transactions.core.model import TopicPartition
from kvorum.broker.transactions.core.requests import EPOCH_BUMP_VERSION
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.clock import Clock
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import BatchError
from kvorum.storage.format.markers import build_marker

REPLICATION_TIMEOUT_MS = 4_000
"""Time that a marker waits for replication; after it, the sender gets REQUEST_TIMED_OUT and sends
it again."""


class TransactionMarker(NamedTuple):
    """One transaction's end, for some partitions. transaction_version: see SendMarkers."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int
    partitions: Sequence[TopicPartition]


class MarkerWriter:
    """Writes markers into the partitions that this broker leads.

    groups: the coordinators of groups, which are told of the markers in their partitions.
    image: as clients are shown it.
    """

    def __init__(
        self,
        *,
        registry: ReplicaRegistry,
        deadlines: Deadlines,
        clock: Clock,
        groups: CoordinatorHost,
        image: Callable[[], ClusterImage],
    ) -> None:
        self._registry = registry
        self._deadlines = deadlines
        self._clock = clock
        self._groups = groups
        self._image = image

    async def write(
        self, markers: Sequence[TransactionMarker]
    ) -> list[dict[TopicPartition, ErrorCode]]:
        """Write markers. Returns the error of each partition, one mapping for each marker in their
        order.

        - NONE: replicated to all in-sync replicas.
        - UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR: not written here.
        - NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT: replication
          failed or is unknown.
        - INVALID_PRODUCER_EPOCH: the producer is past this marker, or cannot have that epoch.
        - INVALID_PRODUCER_ID_MAPPING: no producer can have that id.
        - TRANSACTION_COORDINATOR_FENCED: a later coordinator has written a marker here.
        - INVALID_REQUEST: no coordinator that this broker knows has that epoch; one that was just
          elected sends its markers again.
        """
        terms = ProduceTerms(-1, 0, self._clock.monotonic_ms(), self._clock.wall_ms())
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pending = PendingAcks(partial(_settle, done), self._deadlines)
        parked: list[tuple[Replica, int]] = []
        places: list[tuple[dict[TopicPartition, ErrorCode], TopicPartition]] = []
        results: list[dict[TopicPartition, ErrorCode]] = []
        newest_epoch = self._newest_coordinator_epoch()
        for marker in markers:
            result: dict[TopicPartition, ErrorCode] = {}
            results.append(result)
            for partition in marker.partitions:
                replica = self._registry.find_by_name(*partition)
                if replica is None:
                    result[partition] = self._registry.missing_error(
                        partition.topic, b"", partition.partition_id
                    )
                elif marker.coordinator_epoch > newest_epoch:
                    result[partition] = ErrorCode.INVALID_REQUEST
                else:
                    result[partition] = error = self._append(replica, marker, terms)
                    if error == ErrorCode.NONE and _lags(replica):
                        pending.wait_for(len(places))
                        places.append((result, partition))
                        parked.append((replica, replica.log.end_offset))
        for number, (replica, end_offset) in enumerate(parked):
            replica.wait_for_replication(PendingAck(end_offset, pending, number))
        if not pending.is_done:
            self._deadlines.add(pending, terms.now_ms + REPLICATION_TIMEOUT_MS)
            await done
        for number, error in pending.errors.items():
            result, partition = places[number]
            result[partition] = error
        return results

    def _newest_coordinator_epoch(self) -> int:
        """The highest epoch that a coordinator can have, as leader of a partition of
        `__transaction_state`.

        Bad sequence without this limit: 1. A client sends a marker with an epoch above every
        coordinator's. 2. The partition remembers that epoch. 3. The partition refuses the
        coordinator's own marker as one of an earlier coordinator, and the transaction never ends.
        """
        topic = self._image().topic(TRANSACTIONS_TOPIC)
        epochs = () if topic is None else (p.leader_epoch for p in topic.partitions.values())
        return max(epochs, default=-1)

    def _append(
        self, replica: Replica, marker: TransactionMarker, terms: ProduceTerms
    ) -> ErrorCode:
        # A negative id means "no producer". The marker would end no transaction, and stay in a log
        # where no reader expects it.
        if marker.producer_id < 0:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if marker.producer_epoch < 0:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        core = replica.core
        error = core.check_produce(-1)
        if error != ErrorCode.NONE:
            return error
        is_epoch_raised = marker.transaction_version >= EPOCH_BUMP_VERSION
        try:
            replica.log.producers.check_marker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                is_epoch_raised=is_epoch_raised,
            )
        except BatchError as refused:
            return refused.code
        batch = build_marker(
            is_commit=marker.is_commit,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=terms.wall_ms,
        )
        error = replica.append_own(batch, terms)
        if error != ErrorCode.NONE:
            return error
        replica.verifications.on_marker(
            marker.producer_id, marker.producer_epoch, is_epoch_raised=is_epoch_raised
        )
        if core.topic == OFFSETS_TOPIC:
            end = TransactionEnd(marker.producer_id, marker.producer_epoch, marker.is_commit)
            self._groups.transaction_ended(core.partition_id, end)
        return ErrorCode.NONE


def _lags(replica: Replica) -> bool:
    """True while not all in-sync replicas have the whole log."""
    return replica.core.high_watermark < replica.log.end_offset


def _settle(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
