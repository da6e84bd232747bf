"""Batches on their way into the codec that their topic asks for (compression.type).

Walk: `broker/api/produce` -> `holds`, `add` -> a thread checks the batch and packs it anew -> the
loop hands it on as if it had come just then: to the gate of transactions, or into the log.

The batches of a partition stay in the order in which they came. Other partitions, and other
requests of the same connection, go on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from kvorum.broker.network.purgatory import PendingAck, PendingProduce
from kvorum.broker.partition.batch_validation import ProduceTerms, packed, refusal
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
"""Of a broker: one long batch leaves a thread to the other partitions."""


class RecompressionThreads:
    """The threads of a broker that pack; the first batch to pack makes them."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread. Raises what it raises."""
        from concurrent.futures import ThreadPoolExecutor

        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="target_compression")
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def stop(self) -> None:
        """Start nothing more; what runs changes nothing when it ends."""
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
    """The gate of transactional batches (`broker.transactions.produce_gate`)."""

    def holds(
        self, replica: Any, batch: memoryview, topic_index: int, partition_index: int
    ) -> bool: ...

    def start(self, pending: PendingProduce) -> None: ...


class Sender(Protocol):
    """The connection that a batch came by."""

    def count_held(self, size: int) -> None: ...


class Clocked(Protocol):
    """All replicas of the broker, for their clock."""

    @property
    def clock(self) -> Clock: ...


class RecompressionServices(Protocol):
    """The part of a broker that recompression runs on."""

    @property
    def recompression_threads(self) -> RecompressionThreads: ...

    @property
    def replicas(self) -> Clocked: ...

    def in_background(self, work: Coroutine[Any, Any, None], name: str) -> None: ...


class Unpacked(NamedTuple):
    """A batch in line. batch: a copy, for the bytes of a request are gone when its handler returns;
    pending: the request, at whose (topic_index, partition_index) the answer goes.

    connection: it is not read from while too many of its bytes are in line. gate: of this batch
    alone, if its request has a transactional id.
    """

    batch: bytearray
    terms: ProduceTerms
    gate: Gate | None
    pending: PendingProduce
    topic_index: int
    partition_index: int
    connection: Sender


class Recompressor:
    """Of one partition whose topic has asked for a codec since it was opened."""

    __slots__ = ("_is_running", "_line", "_replica")

    def __init__(self, replica: CompressingReplica) -> None:
        self._replica = replica
        self._line: deque[Unpacked] = deque()
        self._is_running = False

    def holds(self, batch: Buffer) -> bool:
        """True for a batch that has to go through the line: to be packed anew, or behind others."""
        if self._line:
            return True
        target_compression = self._replica.config.target_compression
        # A follower refuses the batch anyway.
        return (
            target_compression is not None
            and self._replica.core.is_leader
            and not target_compression.fits(batch)
        )

    def add(self, item: Unpacked, services: RecompressionServices) -> None:
        """Put the batch in line; `item.pending` waits for it already."""
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

    def _packed(self, item: Unpacked, config: TopicConfig) -> tuple[memoryview, BatchHeader]:
        """In a thread. Raises BatchError."""
        core = self._replica.core
        return packed(
            memoryview(item.batch),
            config,
            name=f"{core.topic}-{core.partition_id}",
            version=item.terms.version,
            wall_ms=item.terms.wall_ms,
            unpacking=Unpacking(len(item.batch)),
        )

    def _hand_on(
        self, item: Unpacked, outcome: tuple[memoryview, BatchHeader] | BatchError, clock: Clock
    ) -> None:
        """As `broker/api/produce` does with a batch that needs no target_compression."""
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
        # Also if the client has been told of a time-out meanwhile: it sends the batch again, and
        # those that wait behind it need it.
        terms = item.terms._replace(now_ms=clock.monotonic_ms(), wall_ms=clock.wall_ms())
        answer, required = replica.append(batch, terms, checked=header)
        pending.put(*at, answer)
        if required and not pending.is_done:
            replica.wait_for_replication(PendingAck(required, pending, *at))
        else:
            pending.complete(*at, ErrorCode.NONE)
