"""Recompression of batches into the codec that their topic asks for (compression.type).

Walk: `broker/api/produce` -> `holds`, `add` -> a thread checks the batch and compresses it anew ->
the event loop hands it on as if it had just arrived: to the produce gate of transactions, or to the
log.

Batches of one partition keep their order. Other partitions, and other requests of the same
connection, continue meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from kvorum.broker.network.purgatory import PendingAck, PendingProduce
from kvorum.broker.partition.batch_validation import ProduceTerms, recompressed, refusal
from kvorum.broker.partition.partition import Partition
from kvorum.broker.partition.topic_config import TopicConfig
from kvorum.runtime.clock import Clock
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import BatchError, BatchHeader, Buffer
from kvorum.storage.format.client_batch import Unpacking
from kvorum.wire.produce_codec import ProducedPartition

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")

THREADS = 2
"""Threads of a broker: while one works on a long batch, the other serves other partitions."""


class RecompressionThreads:
    """The broker's threads for recompression; the first batch starts them."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread. Raises what `work` raises."""
        from concurrent.futures import ThreadPoolExecutor

        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="target_compression")
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def stop(self) -> None:
        """Start no more work; the result of work under way is dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


class CompressingReplica(Protocol):
    """The part of a replica that its recompression works with."""

    @property
    def core(self) -> Partition: ...

    @property
    def config(self) -> TopicConfig: ...

    def append(
        self, batch: memoryview, terms: ProduceTerms, *, checked: BatchHeader | None = None
    ) -> tuple[ProducedPartition, int]: ...

    def wait_for_replication(self, pending: PendingAck) -> None: ...


class Gate(Protocol):
    """The produce gate of transactional batches (`broker.transactions.produce_gate`)."""

    def holds(
        self, replica: Any, batch: memoryview, topic_index: int, partition_index: int
    ) -> bool: ...

    def start(self, pending: PendingProduce) -> None: ...


class Sender(Protocol):
    """The connection that sent a batch."""

    def count_held(self, size: int) -> None: ...


class Clocked(Protocol):
    """The replica manager, for its clock."""

    @property
    def clock(self) -> Clock: ...


class RecompressionServices(Protocol):
    """The part of a broker that recompression runs on."""

    @property
    def recompression_threads(self) -> RecompressionThreads: ...

    @property
    def replicas(self) -> Clocked: ...

    def in_background(self, work: Coroutine[Any, Any, None], name: str) -> None: ...


class QueuedBatch(NamedTuple):
    """A batch that waits for recompression.

    batch: a copy, since the bytes of a request are invalid after its handler returns. pending: the
    request, whose answer at (topic_index, partition_index) is this batch's. connection: not read
    from while too many of its bytes wait. gate: the gate for this batch alone, if its request has a
    transactional id.
    """

    batch: bytearray
    terms: ProduceTerms
    gate: Gate | None
    pending: PendingProduce
    topic_index: int
    partition_index: int
    connection: Sender


class Recompressor:
    """The recompression of one partition whose topic has asked for a codec since the partition was
    opened."""

    __slots__ = ("_is_running", "_line", "_replica")

    def __init__(self, replica: CompressingReplica) -> None:
        self._replica = replica
        self._line: deque[QueuedBatch] = deque()
        self._is_running = False

    def holds(self, batch: Buffer) -> bool:
        """True for a batch that must wait its turn: it needs recompression, or other batches are
        waiting."""
        if self._line:
            return True
        target_compression = self._replica.config.target_compression
        # A follower need not recompress: it refuses the batch.
        return (
            target_compression is not None
            and self._replica.core.is_leader
            and not target_compression.fits(batch)
        )

    def add(self, item: QueuedBatch, services: RecompressionServices) -> None:
        """Add the batch to the line; `item.pending` waits for it already."""
        self._line.append(item)
        item.connection.count_held(len(item.batch))
        if not self._is_running:
            self._is_running = True
            services.in_background(self._run(services), "target_compression")

    async def _run(self, services: RecompressionServices) -> None:
        try:
            while self._line:
                item = self._line[0]
                work = partial(self._packed, item, self._replica.config)
                try:
                    outcome: (
                        tuple[memoryview, BatchHeader] | BatchError
                    ) = await services.recompression_threads.run(work)
                except BatchError as refused:
                    outcome = refused
                self._line.popleft()
                item.connection.count_held(-len(item.batch))
                self._hand_on(item, outcome, services.replicas.clock)
        finally:
            self._is_running = False

    def _packed(self, item: QueuedBatch, config: TopicConfig) -> tuple[memoryview, BatchHeader]:
        """In a thread. Raises BatchError."""
        core = self._replica.core
        return recompressed(
            memoryview(item.batch),
            config,
            name=f"{core.topic}-{core.partition_id}",
            version=item.terms.version,
            wall_ms=item.terms.wall_ms,
            unpacking=Unpacking(len(item.batch)),
        )

    def _hand_on(
        self, item: QueuedBatch, outcome: tuple[memoryview, BatchHeader] | BatchError, clock: Clock
    ) -> None:
        """Do as `broker/api/produce` does with a batch that needs no recompression."""
        replica, pending = self._replica, item.pending
        at = (item.topic_index, item.partition_index)
        if isinstance(outcome, BatchError):
            pending.put(*at, refusal(replica.core.partition_id, outcome))
            pending.complete(*at, ErrorCode.NONE)
            return
        batch, header = outcome
        if item.gate is not None and item.gate.holds(replica, batch, *at):
            item.gate.start(pending)
            return
        # Append even if the client was told of a time-out meanwhile: it sends the batch again as a
        # duplicate, and the batches behind this one continue its sequence.
        terms = item.terms._replace(now_ms=clock.monotonic_ms(), wall_ms=clock.wall_ms())
        answer, required = replica.append(batch, terms, checked=header)
        pending.put(*at, answer)
        if required and not pending.is_done:
            replica.wait_for_replication(PendingAck(required, pending, *at))
        else:
            pending.complete(*at, ErrorCode.NONE)
