"""The produce gate: holds the transactional batches of one Produce request until the coordinator
has verified them.

Walk: `kvorum/broker/api/produce` -> `holds` for each partition -> `start` asks the coordinator once
for all partitions without a pending verification -> its answer lets the batches in. They are
appended in their order of arrival, including those of later requests. The rules are in
`verification`.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from kvorum.broker.partition.core.batch_validation import ProduceTerms
from kvorum.broker.partition.core.verification import FIRST_ADDING_VERSION, needs_verification
from kvorum.broker.partition.replica import Replica
from kvorum.broker.purgatory.pending_produce import PendingProduce
from kvorum.broker.transactions.coordinators import Coordinators, error_for_producer
from kvorum.broker.transactions.core.model import TopicPartition
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import MAGIC, BatchError, BatchHeader, check_crc, read_header
from kvorum.wire.produce_codec import ProducedPartition

FIRST_ABORTABLE_VERSION = 11


class _Held(NamedTuple):
    """A held batch.

    batch: a copy, since the bytes of a request are invalid after its handler returns.
    number: of the partition in the request.
    """

    replica: Replica
    header: BatchHeader
    batch: memoryview
    number: int


class ProduceGate:
    """The gate of one request with a transactional id. held: the batches that `start` asks for."""

    __slots__ = ("_coordinators", "_terms", "_transactional_id", "held")

    def __init__(
        self, coordinators: Coordinators, transactional_id: str, terms: ProduceTerms
    ) -> None:
        self._coordinators = coordinators
        self._transactional_id = transactional_id
        self._terms = terms
        self.held: list[_Held] = []

    def holds(self, replica: Replica, batch: memoryview, number: int) -> bool:
        """True if the batch must wait. Otherwise it is to be appended now; the append may refuse
        it."""
        try:
            header = read_header(batch, 0)
        except BatchError:
            return False
        is_whole = (
            header.magic == MAGIC
            and header.size_bytes == len(batch)
            and check_crc(batch, 0, header)
        )
        if not is_whole or not header.is_transactional or header.producer_id < 0:
            return False
        # Any batch behind waiting ones waits too: it must not overtake them.
        is_pending = replica.verifications.is_pending(header.producer_id, header.producer_epoch)
        if not is_pending and not _needs_verification(replica, header):
            return False
        self.held.append(_Held(replica, header, memoryview(bytearray(batch)), number))
        return True

    def start(self, pending: PendingProduce) -> None:
        """Ask the coordinator. `pending` waits for each held batch, and answers the client when all
        its partitions are settled."""
        to_ask: dict[tuple[int, int], list[Replica]] = {}
        for held in self.held:
            header = held.header
            is_first = held.replica.verifications.wait(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                partial(self._let_in, held, pending),
            )
            if is_first:
                key = (header.producer_id, header.producer_epoch)
                to_ask.setdefault(key, []).append(held.replica)
        for (producer_id, producer_epoch), replicas in to_ask.items():
            self._coordinators.tasks.spawn(
                self._ask(producer_id, producer_epoch, replicas), "verify-transaction"
            )

    async def _ask(self, producer_id: int, producer_epoch: int, replicas: list[Replica]) -> None:
        names = {
            TopicPartition(replica.core.topic, replica.core.partition_id): replica
            for replica in replicas
        }
        errors = await self._coordinators.join(
            transactional_id=self._transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=names,
            is_add=self._terms.version >= FIRST_ADDING_VERSION,
        )
        for name, replica in names.items():
            waiting, verdict = replica.verifications.settle(
                producer_id, producer_epoch, errors[name]
            )
            for let_in in waiting:
                let_in(verdict)

    def _let_in(self, held: _Held, pending: PendingProduce, verdict: ErrorCode) -> None:
        core = held.replica.core
        if verdict != ErrorCode.NONE:
            told = error_for_producer(
                verdict,
                knows_concurrent=self._terms.version >= FIRST_ADDING_VERSION,
                knows_abortable=self._terms.version >= FIRST_ABORTABLE_VERSION,
            )
            if told in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS):
                # The client sends the batch again. Until then, batches after it must not be refused
                # as a gap.
                held.replica.refused.note(held.header)
            sentence = (
                f"transactional id {self._transactional_id}: {core.topic}-{core.partition_id} is"
                f" not known to be in the transaction of producer {held.header.producer_id}"
                f" epoch {held.header.producer_epoch} ({verdict.name})"
            )
            answer = ProducedPartition(core.partition_id, told.value, error_message=sentence)
            pending.put(held.number, answer)
            pending.complete(held.number, ErrorCode.NONE)
            return
        clock = self._coordinators.clock
        terms = self._terms._replace(now_ms=clock.monotonic_ms(), wall_ms=clock.wall_ms())
        held.replica.append_late(held.batch, terms, pending, held.number, is_verified=True)


def _needs_verification(replica: Replica, header: BatchHeader) -> bool:
    """True if the batch needs verification. False if this broker does not lead: the append refuses
    the batch."""
    if not replica.core.is_leader or replica.is_offline:
        return False
    return needs_verification(replica.log.producers, header)
