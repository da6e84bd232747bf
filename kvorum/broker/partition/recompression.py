"""Recompression of batches into the codec that their topic asks for (compression.type).

Walk: `kvorum/broker/api/produce` -> `Replica.holds_for_recompression` -> `Recompression.add` -> a
thread checks the batch and compresses it anew -> the event loop gives it back to
`kvorum/broker/api/produce`, which goes on as if it had just arrived.

Batches of one partition keep their order. Other partitions, and other requests of the same
connection, continue meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kvorum.broker.config.topic_config import TopicConfig
from kvorum.broker.partition.core.batch_validation import ProduceTerms, recompressed
from kvorum.broker.partition.replica import Replica
from kvorum.runtime.tasks import TaskGroup, report_failure
from kvorum.storage.format.batch import BatchError, BatchHeader
from kvorum.storage.format.client_batch import BatchLimits, Unpacking

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")

THREADS = 2
"""Threads of a broker: while one works on a long batch, the other serves other partitions."""

Recompressed = tuple[memoryview, BatchHeader] | BatchError
"""The batch and its header, or why it is refused."""


class QueuedBatch(NamedTuple):
    """A batch that waits for recompression.

    batch: a copy, since the bytes of a request are invalid after its handler returns.
    count_held: of the connection, which is not read from while too many of its bytes wait.
    on_done: gets the outcome; the batches behind this one wait until it returns.
    """

    batch: bytearray
    terms: ProduceTerms
    count_held: Callable[[int], None]
    on_done: Callable[[Recompressed], None]


class Recompression:
    """The recompression of one broker: a line of batches for each partition, and threads, which the
    first batch starts."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._lines: dict[Replica, deque[QueuedBatch]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._tasks = TaskGroup(report_failure)

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread. Raises what `work` raises."""
        from concurrent.futures import ThreadPoolExecutor

        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="target_compression")
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def stop(self) -> None:
        """Start no more work; the result of work under way is dropped."""
        await self._tasks.stop()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def add(self, replica: Replica, item: QueuedBatch) -> None:
        """Add the batch to the line of its partition."""
        replica.recompressing += 1
        item.count_held(len(item.batch))
        line = self._lines.get(replica)
        if line is not None:
            line.append(item)
            return
        line = self._lines[replica] = deque((item,))
        self._tasks.spawn(self._run(replica, line), "target_compression")

    async def _run(self, replica: Replica, line: deque[QueuedBatch]) -> None:
        try:
            while line:
                item = line[0]
                outcome: Recompressed
                try:
                    outcome = await self.run(
                        partial(_packed, replica, item, replica.config, self._limits)
                    )
                except BatchError as refused:
                    outcome = refused
                line.popleft()
                replica.recompressing -= 1
                item.count_held(-len(item.batch))
                item.on_done(outcome)
        finally:
            del self._lines[replica]


def _packed(
    replica: Replica, item: QueuedBatch, config: TopicConfig, limits: BatchLimits
) -> tuple[memoryview, BatchHeader]:
    """In a thread. Raises BatchError."""
    core = replica.core
    return recompressed(
        memoryview(item.batch),
        config,
        name=f"{core.topic}-{core.partition_id}",
        version=item.terms.version,
        wall_ms=item.terms.wall_ms,
        unpacking=Unpacking(len(item.batch), limits),
    )
