"""The rules of one transactional id: each function decides one request. Pure.

A decision is a value: the next state to write, the reply, or both. The checks are in Kafka's order
(TransactionCoordinator.scala, 4.1), with two differences. Kafka's pending transition does not
exist, because a decided state counts at once and answers wait for its replication. And with
KIP-890, a fence by InitProducerId or by timeout raises the epoch once, not twice (KAFKA-19367).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvorum.broker.transactions.core.model import (
    AT_REST,
    EPOCH_EXHAUSTED,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    State,
    Transaction,
)
from kvorum.broker.transactions.core.requests import (
    EPOCH_BUMP_VERSION,
    AddPartitions,
    EndTransaction,
    InitProducerId,
    ProducerIdentity,
)
from kvorum.runtime.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDecision:
    """write: the next state, None for no change.
    reply: for the client, once `write` is replicated.
    """

    write: Transaction | None = None
    reply: Any = None


@dataclass(frozen=True, slots=True)
class NeedsProducerId:
    """The decision needs a new producer id: get one, and decide again with it."""


NEEDS_PRODUCER_ID = NeedsProducerId()
Outcome = TransactionDecision | NeedsProducerId


def _refused(code: ErrorCode) -> TransactionDecision:
    return TransactionDecision(reply=code)


# --- InitProducerId -------------------------------------------------------------------------------


def init_producer_id(
    transaction: Transaction | None, request: InitProducerId, now_ms: int, fresh_id: int | None
) -> Outcome:
    """Decide InitProducerId.

    fresh_id: a producer id never used, None until one was requested.
    now_ms: wall time.
    """
    if transaction is None:
        if fresh_id is None:
            return NEEDS_PRODUCER_ID
        created = Transaction(
            transactional_id=request.transactional_id,
            producer_id=fresh_id,
            producer_epoch=0,
            timeout_ms=request.timeout_ms,
            state=State.EMPTY,
            updated_ms=now_ms,
        )
        return TransactionDecision(write=created, reply=ProducerIdentity(fresh_id, 0))
    if request.has_identity and not _is_known_identity(transaction, request):
        return _refused(ErrorCode.PRODUCER_FENCED)
    if transaction.state in PREPARED:
        return _refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.state == State.ONGOING:
        # No producer gets the raised epoch: the client retries when the abort is complete, and gets
        # the epoch above it.
        return TransactionDecision(
            write=fence(transaction, now_ms), reply=ErrorCode.CONCURRENT_TRANSACTIONS
        )
    is_current = not request.has_identity or request.producer_epoch == transaction.producer_epoch
    if transaction.is_epoch_exhausted and is_current:
        if fresh_id is None:
            return NEEDS_PRODUCER_ID
        return _rotate(transaction, request, now_ms, fresh_id)
    return _raise_epoch(transaction, request, now_ms)


def _is_known_identity(transaction: Transaction, request: InitProducerId) -> bool:
    """True if the client's producer id is this id's current or previous one.

    The previous one counts only if its epochs are used up. Then the request may repeat one whose
    answer, with a new producer id, was lost.
    """
    return request.producer_id == transaction.producer_id or (
        request.producer_id == transaction.previous_producer_id
        and request.producer_epoch >= EPOCH_EXHAUSTED
    )


def _rotate(
    transaction: Transaction, request: InitProducerId, now_ms: int, fresh_id: int
) -> TransactionDecision:
    is_own_wish = request.has_identity
    after = transaction.moved(
        State.EMPTY,
        producer_id=fresh_id,
        producer_epoch=0,
        previous_producer_id=transaction.producer_id,
        last_producer_epoch=transaction.producer_epoch if is_own_wish else NO_EPOCH,
        timeout_ms=request.timeout_ms,
        partitions=frozenset(),
        updated_ms=now_ms,
        start_ms=-1,
    )
    return TransactionDecision(write=after, reply=ProducerIdentity(fresh_id, 0))


def _raise_epoch(
    transaction: Transaction, request: InitProducerId, now_ms: int
) -> TransactionDecision:
    epoch, last_epoch = transaction.producer_epoch + 1, NO_EPOCH
    if request.has_identity:
        if request.producer_epoch == transaction.producer_epoch:
            last_epoch = transaction.producer_epoch
        elif request.producer_epoch == transaction.last_producer_epoch != NO_EPOCH:
            # A repeat whose first answer was lost. No other producer can have come between: a
            # producer without identity clears last_producer_epoch.
            epoch, last_epoch = transaction.producer_epoch, transaction.last_producer_epoch
        else:
            return _refused(ErrorCode.PRODUCER_FENCED)
    after = transaction.moved(
        State.EMPTY,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        timeout_ms=request.timeout_ms,
        partitions=frozenset(),
        updated_ms=now_ms,
        start_ms=-1,
    )
    return TransactionDecision(
        write=after, reply=ProducerIdentity(after.producer_id, after.producer_epoch)
    )


def fence(transaction: Transaction, now_ms: int) -> Transaction:
    """Abort an open transaction for the coordinator, in an epoch above its producer's.

    The markers carry the raised epoch, so every partition refuses batches that the old producer
    sent earlier and that arrive later.
    """
    return transaction.moved(
        State.PREPARE_ABORT,
        producer_epoch=transaction.producer_epoch + 1,
        last_producer_epoch=NO_EPOCH,
        updated_ms=now_ms,
    )


# --- partitions -----------------------------------------------------------------------------------


def add_partitions(
    transaction: Transaction | None, request: AddPartitions, now_ms: int
) -> TransactionDecision:
    """Decide AddPartitions; an error is one ErrorCode for all partitions."""
    if transaction is None or not _may_be_known(transaction, request.producer_id):
        return _refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.state in PREPARED:
        return _refused(_of_prepared(transaction, request.producer_id, request.producer_epoch))
    if transaction.producer_id != request.producer_id:
        return _refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != request.producer_epoch:
        return _refused(ErrorCode.PRODUCER_FENCED)
    held = transaction.partitions if transaction.state == State.ONGOING else frozenset()
    if request.is_verify_only:
        return TransactionDecision(
            reply={
                partition: ErrorCode.NONE if partition in held else ErrorCode.TRANSACTION_ABORTABLE
                for partition in request.partitions
            }
        )
    reply = dict.fromkeys(request.partitions, ErrorCode.NONE)
    if transaction.state == State.ONGOING and request.partitions <= held:
        return TransactionDecision(reply=reply)
    after = transaction.moved(
        State.ONGOING,
        partitions=held | request.partitions,
        updated_ms=now_ms,
        start_ms=transaction.start_ms if transaction.state == State.ONGOING else now_ms,
        client_version=request.client_version,
    )
    return TransactionDecision(write=after, reply=reply)


def _may_be_known(transaction: Transaction, producer_id: int) -> bool:
    return producer_id in (transaction.producer_id, transaction.next_producer_id)


def _of_prepared(transaction: Transaction, producer_id: int, producer_epoch: int) -> ErrorCode:
    """The error for a producer that starts its next transaction while markers of its last one are
    being written."""
    if producer_id == transaction.next_producer_id != NO_PRODUCER_ID:
        return (
            ErrorCode.CONCURRENT_TRANSACTIONS if producer_epoch == 0 else ErrorCode.PRODUCER_FENCED
        )
    if producer_epoch != transaction.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS


# --- EndTxn ---------------------------------------------------------------------------------------


def end_transaction(
    transaction: Transaction | None, request: EndTransaction, now_ms: int, fresh_id: int | None
) -> Outcome:
    """Decide EndTxn, commit or abort; the rules depend on the client's version."""
    if transaction is None:
        return _refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.client_version < EPOCH_BUMP_VERSION:
        return _end_in_same_epoch(transaction, request, now_ms)
    return _end_with_epoch_bump(transaction, request, now_ms, fresh_id)


def _end_in_same_epoch(
    transaction: Transaction, request: EndTransaction, now_ms: int
) -> TransactionDecision:
    if transaction.producer_id != request.producer_id:
        return _refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != request.producer_epoch:
        return _refused(ErrorCode.PRODUCER_FENCED)
    identity = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    if transaction.state == State.ONGOING:
        after = transaction.moved(
            State.PREPARE_COMMIT if request.is_commit else State.PREPARE_ABORT,
            updated_ms=now_ms,
            client_version=request.client_version,
        )
        return TransactionDecision(write=after, reply=identity)
    if transaction.state in PREPARED:
        # Also if the opposite was decided: it may be meant for the next transaction.
        return _refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.state == State.EMPTY or transaction.is_committed != request.is_commit:
        return _refused(ErrorCode.INVALID_TXN_STATE)
    # A repeat whose first answer was lost. In the same epoch, it looks like a second EndTxn without
    # a transaction in between. That one has nothing to end, so the same answer is correct.
    return TransactionDecision(reply=identity)


def _end_with_epoch_bump(
    transaction: Transaction, request: EndTransaction, now_ms: int, fresh_id: int | None
) -> Outcome:
    # A repeat only if an EndTxn of KIP-890 part 2 raised the epoch. Otherwise, with clients of both
    # kinds under one transactional id, a fenced producer would get its successor's epoch.
    is_repeat_of_bump = (
        request.producer_id == transaction.producer_id
        and request.producer_epoch + 1 == transaction.producer_epoch
        and transaction.client_version >= EPOCH_BUMP_VERSION
    )
    is_repeat_of_rotation = (
        request.producer_id == transaction.previous_producer_id != NO_PRODUCER_ID
        and request.producer_epoch == EPOCH_EXHAUSTED
        and transaction.producer_epoch == 0
        and transaction.state not in PREPARED
    )
    is_repeat = is_repeat_of_bump or is_repeat_of_rotation
    if transaction.producer_id != request.producer_id and not is_repeat_of_rotation:
        if transaction.state in PREPARED and _may_be_known(transaction, request.producer_id):
            code = _of_prepared(transaction, request.producer_id, request.producer_epoch)
            return _refused(code)
        return _refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.state in PREPARED:
        if is_repeat:
            return _refused(ErrorCode.CONCURRENT_TRANSACTIONS)
        return _refused(_of_prepared(transaction, request.producer_id, request.producer_epoch))
    if is_repeat and transaction.state in (
        State.COMPLETE_COMMIT,
        State.COMPLETE_ABORT,
    ):
        if transaction.is_committed != request.is_commit:
            return _refused(ErrorCode.INVALID_TXN_STATE)
        if transaction.producer_epoch > EPOCH_EXHAUSTED:
            # The coordinator's own fence looks like a repeat of the client's abort, and could be
            # answered as one. But no epoch is above this one: the client could never be fenced.
            return _refused(ErrorCode.PRODUCER_FENCED)
        identity = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
        return TransactionDecision(reply=identity)
    if request.producer_epoch != transaction.producer_epoch:
        return _refused(ErrorCode.PRODUCER_FENCED)
    if transaction.state in AT_REST and request.is_commit:
        return _refused(ErrorCode.INVALID_TXN_STATE)
    if transaction.is_epoch_exhausted and fresh_id is None:
        return NEEDS_PRODUCER_ID
    return _prepare_with_bump(transaction, request, now_ms, fresh_id)


def _prepare_with_bump(
    transaction: Transaction, request: EndTransaction, now_ms: int, fresh_id: int | None
) -> TransactionDecision:
    is_open = transaction.state == State.ONGOING
    after = transaction.moved(
        State.PREPARE_COMMIT if request.is_commit else State.PREPARE_ABORT,
        producer_epoch=transaction.producer_epoch + 1,
        last_producer_epoch=transaction.producer_epoch,
        next_producer_id=NO_PRODUCER_ID
        if not transaction.is_epoch_exhausted or fresh_id is None
        else fresh_id,
        partitions=transaction.partitions if is_open else frozenset(),
        updated_ms=now_ms,
        start_ms=transaction.start_ms if is_open else now_ms,
        client_version=request.client_version,
    )
    done = complete(after, now_ms)
    return TransactionDecision(
        write=after, reply=ProducerIdentity(done.producer_id, done.producer_epoch)
    )


def complete(transaction: Transaction, now_ms: int) -> Transaction:
    """The state after every partition has its marker."""
    state = State.COMPLETE_COMMIT if transaction.is_committed else State.COMPLETE_ABORT
    if transaction.next_producer_id == NO_PRODUCER_ID:
        return transaction.moved(state, partitions=frozenset(), updated_ms=now_ms)
    return transaction.moved(
        state,
        producer_id=transaction.next_producer_id,
        producer_epoch=0,
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        last_producer_epoch=NO_EPOCH,
        partitions=frozenset(),
        updated_ms=now_ms,
    )
