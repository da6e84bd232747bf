"""Rules of the coordinator, one a test."""

from __future__ import annotations

from typing import Any

import pytest

from broker.transactions.config import PARK_MS, PARKED_MAX, TransactionConfig
from broker.transactions.model import (
    EPOCH_EXHAUSTED,
    PREDECESSORS,
    State,
    TopicPartition,
    Transaction,
)
from broker.transactions.records import encode_key, encode_value
from broker.transactions.requests import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducerId,
    ListTransactions,
    MarkersWritten,
    ProducerIdentity,
    TransactionListing,
)
from runtime.errors import ErrorCode, InvariantViolated
from tests.test_transactions.host import START_MS, CoordinatorRecord, Host

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = 0, 2
"""Client versions: without and with an epoch bump at each end."""


@pytest.fixture
def host() -> Host:
    return Host()


def init(who: ProducerIdentity | None = None, **changes: Any) -> InitProducerId:
    fields: dict[str, Any] = {"transactional_id": "x", "timeout_ms": 60_000}
    if who is not None:
        fields |= {"producer_id": who.producer_id, "producer_epoch": who.producer_epoch}
    return InitProducerId(**fields | changes)


def add(who: ProducerIdentity, *partitions: TopicPartition, version: int = NEW, **more: Any):
    return AddPartitions(
        transactional_id="x", producer_id=who.producer_id, producer_epoch=who.producer_epoch,
        partitions=frozenset(partitions), client_version=version, **more,
    )  # fmt: skip


def end(who: ProducerIdentity, *, is_commit: bool = True, version: int = NEW) -> EndTransaction:
    return EndTransaction(
        transactional_id="x", producer_id=who.producer_id, producer_epoch=who.producer_epoch,
        is_commit=is_commit, client_version=version,
    )  # fmt: skip


def started(host: Host, *, version: int = NEW) -> ProducerIdentity:
    """A producer with a transaction open in A."""
    who = host.call(init())
    assert host.call(add(who, A, version=version)) == {A: ErrorCode.NONE}
    return who


def finish(host: Host) -> None:
    """Every partition answers that it has its marker."""
    for question in host.markers:
        host.asks.remove(question)
        host.tell(
            MarkersWritten(ask_id=question.ask_id, transactional_id=question.transactional_id)
        )
    host.replicate()


def with_epoch(epoch: int, state: State = State.EMPTY, **changes: Any) -> Host:
    """A coordinator that finds the id at that epoch in its log."""
    held = Transaction(
        transactional_id="x", producer_id=7, producer_epoch=epoch, timeout_ms=60_000, state=state,
        updated_ms=START_MS, **changes,
    )  # fmt: skip
    host = Host()
    host.log.append(CoordinatorRecord(encode_key("x"), encode_value(held, 1)))
    host.replicated = 1
    host.fail_over()
    return host


# --- InitProducerId -------------------------------------------------------------------------------


def test_a_new_transactional_id_gets_a_fresh_producer_id_and_epoch_0(host: Host) -> None:
    assert host.call(init()) == ProducerIdentity(1000, 0)


def test_a_second_instance_gets_a_higher_epoch_and_the_first_is_fenced(host: Host) -> None:
    first = host.call(init())
    assert host.call(init()) == ProducerIdentity(1000, 1)
    assert host.call(add(first, A)) == ErrorCode.PRODUCER_FENCED
    assert host.call(end(first)) == ErrorCode.PRODUCER_FENCED
    assert host.call(init(first)) == ErrorCode.PRODUCER_FENCED


def test_an_answer_waits_until_its_record_is_replicated(host: Host) -> None:
    token = host.ask(init())
    host.give_producer_ids()
    assert token not in host.answers
    host.replicate()
    assert host.answers[token] == ProducerIdentity(1000, 0)


def test_a_fence_is_told_only_once_it_cannot_be_taken_back(host: Host) -> None:
    first = host.call(init())
    host.ask(init())
    token = host.ask(add(first, A))
    assert token not in host.answers
    host.fail_over(keep=0)
    assert host.answers[token] == ErrorCode.NOT_COORDINATOR
    assert host.call(add(first, A)) == {A: ErrorCode.NONE}


def test_while_a_producer_id_is_being_fetched_others_hear_try_again(host: Host) -> None:
    first = host.ask(init())
    second = host.ask(init())
    assert host.answers[second] == ErrorCode.CONCURRENT_TRANSACTIONS
    host.give_producer_ids(is_there=False)
    assert host.answers[first] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert host.call(init()) == ProducerIdentity(1000, 0)


def test_init_aborts_an_open_transaction_and_answers_try_again(host: Host) -> None:
    first = started(host)
    assert host.call(init()) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert [(m.is_commit, m.producer_epoch) for m in host.markers] == [(False, 1)]
    assert host.call(init()) == ErrorCode.CONCURRENT_TRANSACTIONS
    finish(host)
    assert host.call(init()) == ProducerIdentity(1000, 2)
    assert host.call(end(first)) == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_range_is_refused(host: Host, timeout_ms: int) -> None:
    assert host.call(init(timeout_ms=timeout_ms)) == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("transactional_id", ["", "x" * 32_768])
def test_an_id_that_cannot_be_written_is_refused(host: Host, transactional_id: str) -> None:
    answer = host.call(init(transactional_id=transactional_id))
    assert answer == ErrorCode.INVALID_REQUEST


def test_epochs_that_are_used_up_give_a_new_producer_id() -> None:
    host = with_epoch(EPOCH_EXHAUSTED)
    assert host.call(init()) == ProducerIdentity(1000, 0)
    held = host.state("x")
    assert held is not None and held.previous_producer_id == 7


def test_the_last_epoch_but_one_is_still_raised() -> None:
    host = with_epoch(EPOCH_EXHAUSTED - 1)
    assert host.call(init()) == ProducerIdentity(7, EPOCH_EXHAUSTED)


def test_a_producer_goes_on_after_an_error_with_its_own_identity(host: Host) -> None:
    who = host.call(init())
    higher = host.call(init(who))
    assert higher == ProducerIdentity(1000, 1)
    # The same request again, for its answer was lost.
    assert host.call(init(who)) == higher
    assert host.call(init(higher)) == ProducerIdentity(1000, 2)
    assert host.call(init(who)) == ErrorCode.PRODUCER_FENCED


def test_another_instance_ends_the_repeats_of_the_one_before(host: Host) -> None:
    who = host.call(init())
    host.call(init(who))
    host.call(init())
    assert host.call(init(who)) == ErrorCode.PRODUCER_FENCED


def test_a_producer_with_used_up_epochs_may_repeat_its_request_for_a_new_id() -> None:
    host = with_epoch(EPOCH_EXHAUSTED)
    old = ProducerIdentity(7, EPOCH_EXHAUSTED)
    assert host.call(init(old)) == ProducerIdentity(1000, 0)
    assert host.call(init(old)) == ProducerIdentity(1000, 0)
    assert host.call(init(ProducerIdentity(7, 3))) == ErrorCode.PRODUCER_FENCED


# --- partitions -----------------------------------------------------------------------------------


def test_partitions_gather_in_one_transaction(host: Host) -> None:
    who = started(host)
    assert host.call(add(who, A, B)) == {A: ErrorCode.NONE, B: ErrorCode.NONE}
    held = host.state("x")
    assert held is not None and held.partitions == {A, B}


def test_adding_what_is_there_writes_nothing(host: Host) -> None:
    who = started(host)
    before = len(host.log)
    assert host.call(add(who, A)) == {A: ErrorCode.NONE}
    assert len(host.log) == before


def test_an_unknown_producer_may_not_add(host: Host) -> None:
    stranger = ProducerIdentity(5, 0)
    assert host.call(add(stranger, A)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    started(host)
    assert host.call(add(stranger, A)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_verification_tells_which_partitions_are_in_and_changes_nothing(host: Host) -> None:
    who = started(host, version=OLD)
    before = len(host.log)
    answer = host.call(add(who, A, B, version=OLD, is_verify_only=True))
    assert answer == {A: ErrorCode.NONE, B: ErrorCode.TRANSACTION_ABORTABLE}
    assert len(host.log) == before


def test_partitions_of_the_last_transaction_do_not_verify_the_next(host: Host) -> None:
    who = started(host, version=OLD)
    host.call(end(who, version=OLD))
    finish(host)
    answer = host.call(add(who, A, version=OLD, is_verify_only=True))
    assert answer == {A: ErrorCode.TRANSACTION_ABORTABLE}


@pytest.mark.parametrize("is_verify_only", [False, True])
def test_until_the_markers_are_written_the_next_transaction_waits(
    host: Host, is_verify_only: bool
) -> None:
    who = started(host)
    following = host.call(end(who))
    answer = host.call(add(following, A, is_verify_only=is_verify_only))
    assert answer == ErrorCode.CONCURRENT_TRANSACTIONS
    assert host.call(add(who, A, is_verify_only=is_verify_only)) == ErrorCode.PRODUCER_FENCED
    finish(host)
    assert host.call(add(following, A)) == {A: ErrorCode.NONE}


def test_who_wants_to_go_on_is_let_in_with_the_last_marker(host: Host) -> None:
    who = started(host)
    following = host.call(end(who))
    token = host.ask(add(following, B))
    assert token not in host.answers
    finish(host)
    assert host.answers[token] == {B: ErrorCode.NONE}
    held = host.state("x")
    assert held is not None and (held.state, held.partitions) == (State.ONGOING, {B})


def test_a_second_instance_is_let_in_with_the_last_marker_of_the_first(host: Host) -> None:
    started(host)
    assert host.call(init()) == ErrorCode.CONCURRENT_TRANSACTIONS
    token = host.ask(init())
    finish(host)
    assert host.answers[token] == ProducerIdentity(1000, 2)


def test_patience_has_an_end_and_room_for_a_few(host: Host) -> None:
    who = started(host)
    following = host.call(end(who))
    tokens = [host.ask(add(following, B)) for _ in range(PARKED_MAX)]
    too_many = host.ask(add(following, B))
    assert host.answers[too_many] == ErrorCode.CONCURRENT_TRANSACTIONS
    host.advance(PARK_MS)
    assert {host.answers[token] for token in tokens} == {ErrorCode.CONCURRENT_TRANSACTIONS}
    finish(host)
    assert host.call(add(following, B)) == {B: ErrorCode.NONE}


def test_those_that_waited_come_in_one_after_the_other() -> None:
    host = with_epoch(EPOCH_EXHAUSTED)
    old = ProducerIdentity(7, EPOCH_EXHAUSTED)
    host.call(add(old, A))
    new = host.call(end(old))
    second, first = host.ask(init()), host.ask(add(new, B))
    finish(host)
    # The second instance has fenced the first before its partition came to be added.
    assert host.answers[second] == ProducerIdentity(new.producer_id, 1)
    assert host.answers[first] == ErrorCode.PRODUCER_FENCED


# --- EndTxn ---------------------------------------------------------------------------------------


def test_no_marker_leaves_before_the_decision_is_replicated(host: Host) -> None:
    who = started(host)
    token = host.ask(end(who))
    assert host.markers == [] and token not in host.answers
    host.replicate()
    assert [m.partitions for m in host.markers] == [{A}]
    assert host.answers[token] == ProducerIdentity(1000, 1)


def test_the_transaction_is_complete_only_when_all_markers_are_written(host: Host) -> None:
    who = started(host)
    host.call(end(who))
    held = host.state("x")
    assert held is not None and held.state == State.PREPARE_COMMIT
    finish(host)
    held = host.state("x")
    assert held is not None
    assert (held.state, held.partitions, held.producer_epoch) == (
        State.COMPLETE_COMMIT, frozenset(), 1,
    )  # fmt: skip


def test_each_end_raises_the_epoch_of_a_client_that_knows_it(host: Host) -> None:
    who = started(host)
    assert host.call(end(who)) == ProducerIdentity(1000, 1)
    assert [(m.producer_epoch, m.transaction_version) for m in host.markers] == [(1, 2)]


def test_the_epoch_of_an_older_client_stays(host: Host) -> None:
    who = started(host, version=OLD)
    assert host.call(end(who, version=OLD)) == who
    assert [(m.producer_epoch, m.transaction_version) for m in host.markers] == [(0, 0)]


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_repeated_end_is_answered_as_the_first(host: Host, version: int, is_commit: bool) -> None:
    who = started(host, version=version)
    first = host.call(end(who, is_commit=is_commit, version=version))
    again = host.call(end(who, is_commit=is_commit, version=version))
    assert again == ErrorCode.CONCURRENT_TRANSACTIONS
    finish(host)
    before = len(host.log)
    assert host.call(end(who, is_commit=is_commit, version=version)) == first
    assert len(host.log) == before


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_decision_cannot_be_turned_round(host: Host, version: int, is_commit: bool) -> None:
    who = started(host, version=version)
    host.call(end(who, is_commit=is_commit, version=version))
    opposite = end(who, is_commit=not is_commit, version=version)
    assert host.call(opposite) == ErrorCode.INVALID_TXN_STATE
    finish(host)
    assert host.call(opposite) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [OLD, NEW])
def test_nothing_open_cannot_be_committed(host: Host, version: int) -> None:
    who = host.call(init())
    assert host.call(end(who, version=version)) == ErrorCode.INVALID_TXN_STATE


def test_a_client_that_knows_epoch_bumps_may_abort_nothing(host: Host) -> None:
    who = host.call(init())
    assert host.call(end(who, is_commit=False)) == ProducerIdentity(1000, 1)
    assert host.markers == []
    held = host.state("x")
    assert held is not None and held.state == State.COMPLETE_ABORT
    # And again: not a repeat, for it names the epoch that the first one gave.
    assert host.call(end(ProducerIdentity(1000, 1), is_commit=False)) == ProducerIdentity(1000, 2)


def test_an_older_client_may_not_abort_nothing(host: Host) -> None:
    who = host.call(init())
    assert host.call(end(who, is_commit=False, version=OLD)) == ErrorCode.INVALID_TXN_STATE


def test_a_producer_timed_out_in_its_last_epoch_does_not_get_the_one_kept_for_fences() -> None:
    host = with_epoch(EPOCH_EXHAUSTED)
    last = ProducerIdentity(7, EPOCH_EXHAUSTED)
    host.call(add(last, A))
    host.advance(80_000)
    host.replicate()
    finish(host)
    assert host.call(end(last, is_commit=False)) == ErrorCode.PRODUCER_FENCED
    assert host.call(init()) == ProducerIdentity(1000, 0)


def test_an_end_with_used_up_epochs_goes_on_with_a_new_producer_id() -> None:
    host = with_epoch(EPOCH_EXHAUSTED)
    old = ProducerIdentity(7, EPOCH_EXHAUSTED)
    assert host.call(add(old, A)) == {A: ErrorCode.NONE}
    new = host.call(end(old))
    assert new == ProducerIdentity(1000, 0)
    assert [(m.producer_id, m.producer_epoch) for m in host.markers] == [(7, 32_767)]
    assert host.call(add(new, A)) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert host.call(end(old)) == ErrorCode.CONCURRENT_TRANSACTIONS
    host.fail_over()
    host.replicate()
    finish(host)
    assert host.call(end(old)) == new
    assert host.call(end(old, is_commit=False)) == ErrorCode.INVALID_TXN_STATE
    assert host.call(add(new, A)) == {A: ErrorCode.NONE}
    assert host.call(end(old)) == ErrorCode.PRODUCER_FENCED


def test_a_fenced_producer_is_not_taken_for_a_repeat_after_an_older_client(host: Host) -> None:
    first = started(host)
    host.call(init())
    finish(host)
    second = host.call(init())
    host.call(add(second, A, version=OLD))
    host.call(end(second, version=OLD))
    finish(host)
    fenced = ProducerIdentity(second.producer_id, second.producer_epoch - 1)
    assert host.call(end(fenced)) == ErrorCode.PRODUCER_FENCED
    assert host.call(end(first)) == ErrorCode.PRODUCER_FENCED


# --- fail-over ------------------------------------------------------------------------------------


def test_a_new_coordinator_sends_the_markers_again_behind_a_barrier(host: Host) -> None:
    who = started(host)
    host.call(end(who))
    host.fail_over()
    assert host.markers == []
    host.replicate()
    assert [(m.is_commit, m.coordinator_epoch) for m in host.markers] == [(True, 2)]
    finish(host)
    held = host.state("x")
    assert held is not None and held.state == State.COMPLETE_COMMIT


def test_news_of_markers_of_an_earlier_end_completes_nothing(host: Host) -> None:
    who = started(host, version=OLD)
    host.call(end(who, version=OLD))
    (question,) = host.markers
    finish(host)
    host.call(add(who, B, version=OLD))
    host.call(end(who, version=OLD))
    host.tell(MarkersWritten(ask_id=question.ask_id, transactional_id="x"))
    held = host.state("x")
    assert held is not None and held.state == State.PREPARE_COMMIT


# --- time -----------------------------------------------------------------------------------------


def test_a_transaction_over_its_time_is_aborted_above_its_epoch(host: Host) -> None:
    who = started(host)
    host.advance(60_000)
    assert host.markers == []
    host.advance(10_000)
    host.replicate()
    assert [(m.is_commit, m.producer_epoch) for m in host.markers] == [(False, 1)]
    finish(host)
    assert host.call(add(who, B)) == ErrorCode.PRODUCER_FENCED
    assert host.call(end(who)) == ErrorCode.INVALID_TXN_STATE


def test_a_decided_transaction_is_not_aborted_by_time(host: Host) -> None:
    who = started(host)
    host.call(end(who))
    host.advance(3_600_000)
    host.replicate()
    finish(host)
    held = host.state("x")
    assert held is not None and held.state == State.COMPLETE_COMMIT


def test_an_id_that_nobody_uses_is_forgotten(host: Host) -> None:
    host.call(init())
    host.advance(TransactionConfig().transactional_id_expiration_ms - 3_600_000)
    assert host.state("x") is not None
    host.advance(2 * 3_600_000)
    host.replicate()
    assert host.state("x") is None
    host.fail_over()
    described = host.call(DescribeTransaction(transactional_id="x"))
    assert described == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_an_open_transaction_keeps_its_id(host: Host) -> None:
    host = Host(TransactionConfig(transactional_id_expiration_ms=1_000))
    started(host)
    host.now_ms += 2 * 3_600_000
    host.timers.pop("abort-timed-out")
    host.advance(3_600_000)
    assert None not in host.states("x")


# --- inspection and the rest ----------------------------------------------------------------------


def test_a_transaction_is_described_and_listed(host: Host) -> None:
    started(host)
    described = host.call(DescribeTransaction(transactional_id="x"))
    assert (described.state, described.partitions, described.start_ms) == (
        State.ONGOING, (A,), START_MS,
    )  # fmt: skip
    row = (TransactionListing("x", 1000, State.ONGOING),)
    assert host.call(ListTransactions()) == row
    assert host.call(ListTransactions(states=frozenset({State.EMPTY}))) == ()
    assert host.call(ListTransactions(producer_ids=frozenset({1000}))) == row
    assert host.call(ListTransactions(producer_ids=frozenset({9}))) == ()
    assert host.call(ListTransactions(running_ms_min=5_000)) == ()
    host.advance(5_001)
    assert host.call(ListTransactions(running_ms_min=5_000)) == row


def test_the_value_is_flexible_from_level_1_on() -> None:
    for level, version in ((0, 0), (1, 1), (2, 1)):
        host = Host(level=level)
        host.call(init())
        value = host.log[0].value
        assert value is not None and value[:2] == bytes([0, version])


def test_what_a_client_was_promised_survives_also_below_level_1() -> None:
    host = with_epoch(EPOCH_EXHAUSTED)
    host.level = 0
    old = ProducerIdentity(7, EPOCH_EXHAUSTED)
    host.call(add(old, A))
    new = host.call(end(old))
    host.fail_over()
    host.replicate()
    finish(host)
    assert host.call(add(new, A)) == {A: ErrorCode.NONE}


def test_the_table_of_states_is_that_of_the_documents() -> None:
    """docs/protocol/transactions.md; Kafka's TransactionState.java without its state 7."""
    at_rest = {State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}
    assert {
        State.EMPTY: at_rest,
        State.ONGOING: at_rest | {State.ONGOING},
        State.PREPARE_COMMIT: {State.ONGOING},
        State.PREPARE_ABORT: at_rest | {State.ONGOING},
        State.COMPLETE_COMMIT: {State.PREPARE_COMMIT},
        State.COMPLETE_ABORT: {State.PREPARE_ABORT},
        State.DEAD: at_rest,
    } == PREDECESSORS


def test_only_the_moves_of_the_table_can_be_made() -> None:
    for state in State:
        for following in State:
            held = Transaction(
                transactional_id="x", producer_id=1, producer_epoch=0, timeout_ms=1, state=state,
                updated_ms=0,
            )  # fmt: skip
            if state in PREDECESSORS[following]:
                assert held.moved(following).state == following
            else:
                with pytest.raises(InvariantViolated):
                    held.moved(following)


def test_an_epoch_cannot_go_back() -> None:
    held = Transaction(
        transactional_id="x", producer_id=1, producer_epoch=3, timeout_ms=1, state=State.EMPTY,
        updated_ms=0,
    )  # fmt: skip
    with pytest.raises(InvariantViolated):
        held.moved(State.EMPTY, producer_epoch=2)
