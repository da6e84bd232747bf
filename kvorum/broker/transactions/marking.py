"""Markers in the leader of their partitions: checked, appended, replicated.

Markers come from other brokers' coordinators by WriteTxnMarkers, and directly from this broker's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from kvorum.broker.coordinator.model import TransactionEnd
from kvorum.broker.metadata_answers.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kvorum.broker.network.purgatory import PendingAck
from kvorum.broker.partition.batch_validation import ProduceTerms
from kvorum.broker.partition.replica import Replica
from kvorum.broker.transactions.broker_services import BrokerServices
from kvorum.broker.transactions.model import TopicPartition
from kvorum.broker.transactions.requests import EPOCH_BUMP_VERSION
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import BatchError
from kvorum.storage.format.markers import build_marker

REPLICATION_TIMEOUT_MS = 4_000
"""Time that a marker waits for replication; after it, the sender gets REQUEST_TIMED_OUT and sends
it again."""


class Marker(NamedTuple):
    """One transaction's end, for some partitions. transaction_version: see SendMarkers."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int
    partitions: Sequence[TopicPartition]


class _Replication:
    """Waits for the replication of all markers of a request; has the interface that
    `Replica.wait_for_replication` needs."""

    __slots__ = ("_future", "_left", "deadline_bucket", "errors")

    def __init__(self) -> None:
        self.deadline_bucket = -1
        self.errors: dict[tuple[int, int], ErrorCode] = {}
        self._left: set[tuple[int, int]] = set()
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_done(self) -> bool:
        return not self._left

    def wait_for(self, marker_index: int, partition_index: int) -> None:
        self._left.add((marker_index, partition_index))

    def complete(self, topic_index: int, partition_index: int, error: ErrorCode) -> None:
        key = (topic_index, partition_index)
        if key in self._left:
            self._left.discard(key)
            self.errors[key] = error
            if not self._left and not self._future.done():
                self._future.set_result(None)

    def expire(self) -> None:
        for key in sorted(self._left):
            self.complete(*key, ErrorCode.REQUEST_TIMED_OUT)

    async def wait(self) -> None:
        if self._left:
            await self._future


async def write_markers(
    services: BrokerServices, markers: Sequence[Marker]
) -> list[dict[TopicPartition, ErrorCode]]:
    """Write markers. Returns the error of each partition, one mapping for each marker in their
    order.

    - NONE: replicated to all in-sync replicas.
    - UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR: not written here.
    - NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT: replication failed
      or is unknown.
    - INVALID_PRODUCER_EPOCH: the producer is past this marker, or cannot have that epoch.
    - INVALID_PRODUCER_ID_MAPPING: no producer can have that id.
    - TRANSACTION_COORDINATOR_FENCED: a later coordinator has written a marker here.
    - INVALID_REQUEST: no coordinator that this broker knows has that epoch; one that was just
      elected sends its markers again.
    """
    replicas = services.replicas
    clock = replicas.clock
    terms = ProduceTerms(-1, 0, clock.monotonic_ms(), clock.wall_ms())
    waiting = _Replication()
    parked: list[tuple[Replica, PendingAck]] = []
    results: list[dict[TopicPartition, ErrorCode]] = []
    newest_epoch = _newest_coordinator_epoch(services)
    for at, marker in enumerate(markers):
        result: dict[TopicPartition, ErrorCode] = {}
        for number, partition in enumerate(marker.partitions):
            replica = services.registry.find_by_name(*partition)
            if replica is None:
                result[partition] = services.registry.missing_error(
                    partition.topic, b"", partition.partition_id
                )
                continue
            if marker.coordinator_epoch > newest_epoch:
                result[partition] = ErrorCode.INVALID_REQUEST
                continue
            result[partition] = error = _append(services, replica, marker, terms)
            if error == ErrorCode.NONE and replica.core.high_watermark < replica.log.end_offset:
                waiting.wait_for(at, number)
                ack = PendingAck(replica.log.end_offset, waiting, at, number)
                parked.append((replica, ack))
        results.append(result)
    for replica, ack in parked:
        replica.wait_for_replication(ack)
    if parked:
        replicas.deadlines.add(waiting, terms.now_ms + REPLICATION_TIMEOUT_MS)
        await waiting.wait()
        replicas.deadlines.remove(waiting)
    for (at, number), error in waiting.errors.items():
        results[at][markers[at].partitions[number]] = error
    return results


def _newest_coordinator_epoch(services: BrokerServices) -> int:
    """The highest epoch that a coordinator can have, as leader of a partition of
    `__transaction_state`.

    Bad sequence without this limit: 1. A client sends a marker with an epoch above every
    coordinator's. 2. The partition remembers that epoch. 3. The partition refuses the coordinator's
    own marker as one of an earlier coordinator, and the transaction never ends.
    """
    topic = services.image().topic(TRANSACTIONS_TOPIC)
    epochs = () if topic is None else (p.leader_epoch for p in topic.partitions.values())
    return max(epochs, default=-1)


def _append(
    services: BrokerServices, replica: Replica, marker: Marker, terms: ProduceTerms
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
        services.groups.transaction_ended(core.partition_id, end)
    return ErrorCode.NONE
