"""Sends the markers of decided transactions to the leaders of their partitions. A driver.

Each broker has at most one request in flight; the next request carries all markers that become due
meanwhile. So a busy coordinator sends few, large requests. A failed marker is sent again after a
pause, to the partition's leader at that time, as long as this broker has the transaction's
coordinator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import NamedTuple

from kvorum.broker.coordinator.model import FactLearned
from kvorum.broker.coordinator.shard_context import ShardContext, ShardState
from kvorum.broker.network.peers import Peers
from kvorum.broker.transactions.core.marker_book import Batch, MarkerBook
from kvorum.broker.transactions.core.model import TopicPartition
from kvorum.broker.transactions.core.requests import MarkersWritten, SendMarkers
from kvorum.broker.transactions.marking import MarkerWriter, TransactionMarker
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.errors import ErrorCode, error_code_of
from kvorum.runtime.tasks import TaskGroup, report_failure
from kvorum.wire.versions import Api

_log = logging.getLogger(__name__)

WRITE_TXN_MARKERS = Api(
    key=27,
    name="write_txn_markers",
    min_version=1,
    max_version=2,
    first_flexible=1,
    inter_broker_min_version=1,
)
RETRY_MS = 50
"""Pause before markers that failed, or whose partition has no leader, are tried again."""

Verdicts = list[dict[TopicPartition, ErrorCode]]


class _Key(NamedTuple):
    """One question of one shard context, which compares by identity."""

    term: ShardContext
    ask_id: int


class MarkerSender:
    """Sends the markers of all coordinators on this broker; its task runs while there are any."""

    def __init__(
        self, broker_id: int, writer: MarkerWriter, peers: Peers, image: Callable[[], ClusterImage]
    ) -> None:
        self._broker_id = broker_id
        self._writer = writer
        self._peers = peers
        self._image = image
        self._book = MarkerBook()
        self._questions: dict[Hashable, SendMarkers] = {}
        self._busy: set[int] = set()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._tasks = TaskGroup(report_failure)

    def send(self, term: ShardContext, question: SendMarkers) -> None:
        """Send the markers; give the shard MarkersWritten once every partition has its marker."""
        key = _Key(term, question.ask_id)
        self._questions[key] = question
        self._book.add(key, question)
        self._wake.set()
        if self._task is None:
            self._task = self._tasks.spawn(self._run(), "transaction-markers")

    async def stop(self) -> None:
        await self._tasks.stop()

    async def _run(self) -> None:
        """Send markers while there are any. Wakes when markers are added or answered, and after
        RETRY_MS."""
        try:
            while len(self._book):
                self._wake.clear()
                self._drop_ended()
                image = self._image()
                for broker_id in self._busy:
                    broker = image.brokers.get(broker_id)
                    if broker is None or broker.is_fenced:
                        # The broker's partitions get other leaders; their markers must go there at
                        # once.
                        self._peers.lose(broker_id)
                batches, done = self._book.due(image, frozenset(self._busy))
                for key in done:
                    self._finish(key)
                for batch in batches:
                    self._busy.add(batch.broker_id)
                    self._tasks.spawn(self._send(batch), f"markers to broker {batch.broker_id}")
                with suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_MS / 1000):
                        await self._wake.wait()
        finally:
            self._task = None

    def _drop_ended(self) -> None:
        """Forget shard contexts that have ended: the next leader sends their markers."""
        for key in list(self._questions):
            if isinstance(key, _Key) and key.term.state is ShardState.ENDED:
                self._forget(key)

    def _forget(self, key: Hashable) -> None:
        self._book.drop(key)
        self._questions.pop(key, None)

    def _finish(self, key: Hashable) -> None:
        question = self._questions.pop(key, None)
        if question is not None and isinstance(key, _Key):
            fact = MarkersWritten(
                ask_id=question.ask_id, transactional_id=question.transactional_id
            )
            key.term.give(FactLearned(fact=fact))

    # --- one request --------------------------------------------------------------------------

    async def _send(self, batch: Batch) -> None:
        markers = [
            TransactionMarker(
                question.producer_id,
                question.producer_epoch,
                question.coordinator_epoch,
                question.is_commit,
                question.transaction_version,
                partitions,
            )
            for _, question, partitions in batch.items
        ]
        try:
            if batch.broker_id == self._broker_id:
                verdicts = await self._writer.write(markers)
            else:
                verdicts = await self._ask(batch.broker_id, markers)
        finally:
            self._busy.discard(batch.broker_id)
        has_failed = False
        for (key, question, partitions), verdict in zip(batch.items, verdicts, strict=True):
            for partition in partitions:
                error = verdict.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
                has_failed |= error != ErrorCode.NONE
                self._handle_verdict(key, question, partition, error)
        if not has_failed:
            # After a failure, the pause of `_run` applies.
            self._wake.set()

    def _handle_verdict(
        self, key: Hashable, question: SendMarkers, partition: TopicPartition, error: ErrorCode
    ) -> None:
        if error == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            _log.info(
                "a later coordinator completes the transaction of %s", question.transactional_id
            )
            self._questions.pop(key, None)
        elif error == ErrorCode.INVALID_PRODUCER_EPOCH:
            _log.warning(
                "%s-%d has a later epoch than the marker of %s (producer %d epoch %d)",
                *partition, question.transactional_id, question.producer_id,
                question.producer_epoch,
            )  # fmt: skip
        if self._book.take(key, partition, error):
            self._finish(key)

    async def _ask(self, broker_id: int, markers: list[TransactionMarker]) -> Verdicts:
        """Send markers to another broker and return its results. Without an answer they are empty,
        which counts as failed."""
        values = {"markers": [_row(marker) for marker in markers]}
        version = WRITE_TXN_MARKERS.max_version
        answer = await self._peers.call(broker_id, WRITE_TXN_MARKERS, version, values)
        if answer is None or len(answer.markers) != len(markers):
            return [{} for _ in markers]
        return [
            {
                TopicPartition(topic.name, row.partition_index): error_code_of(row.error_code)
                for topic in answered.topics
                for row in topic.partitions
            }
            if answered.producer_id == marker.producer_id
            else {}
            for marker, answered in zip(markers, answer.markers, strict=True)
        ]


def _row(marker: TransactionMarker) -> dict[str, object]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition_id in marker.partitions:
        by_topic.setdefault(topic, []).append(partition_id)
    return {
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "transaction_result": marker.is_commit,
        "topics": [
            {"name": topic, "partition_indexes": ids} for topic, ids in sorted(by_topic.items())
        ],
        "coordinator_epoch": marker.coordinator_epoch,
        "transaction_version": marker.transaction_version,
    }
