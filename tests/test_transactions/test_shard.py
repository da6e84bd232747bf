"""Rules of the coordinator, one a test."""

from __future__ import annotations

import pytest

from kvorum.broker.transactions.core.config import PARK_MS, PARKED_MAX
from kvorum.broker.transactions.core.model import (
    EPOCH_EXHAUSTED,
    PREDECESSORS,
    State,
    Transaction,
)
from kvorum.broker.transactions.core.requests import (
    DescribeTransaction,
    ListTransactions,
    ProducerIdentity,
    TransactionListing,
)
from kvorum.runtime.errors import ErrorCode, InvariantViolated
from tests.test_transactions.calls import (
    NEW,
    OLD,
    A,
    B,
    add,
    end,
    finish,
    init,
    started,
    with_epoch,
)
from tests.test_transactions.host import START_MS, Host


@pytest.fixture
def host() -> Host:
    return Host()


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


@pytest.mark.parametrize("version", [OLD, NEW])
def test_an_abort_waits_behind_the_add_that_was_sent_before_it(host: Host, version: int) -> None:
    who = started(host, version=version)
    following = host.call(end(who, version=version))
    added = host.ask(add(following, B, version=version))
    aborted = host.ask(end(following, is_commit=False, version=version))
    assert not host.answers.keys() & {added, aborted}
    finish(host)
    assert host.answers[added] == {B: ErrorCode.NONE}
    assert isinstance(host.answers[aborted], ProducerIdentity)
    held = host.state("x")
    assert held is not None and (held.state, held.partitions) == (
        State.PREPARE_ABORT,
        {B},
    )


@pytest.mark.parametrize("version", [OLD, NEW])
def test_an_abort_that_waited_in_vain_is_told_to_try_again(host: Host, version: int) -> None:
    who = started(host, version=version)
    following = host.call(end(who, version=version))
    tokens = [
        host.ask(add(following, B, version=version)),
        host.ask(end(following, is_commit=False, version=version)),
    ]
    host.advance(PARK_MS)
    assert {host.answers[token] for token in tokens} == {ErrorCode.CONCURRENT_TRANSACTIONS}
    late = host.call(end(following, is_commit=False, version=version))
    assert late == ErrorCode.CONCURRENT_TRANSACTIONS


def test_transactions_that_were_sent_without_waiting_come_in_their_order(host: Host) -> None:
    who = started(host, version=OLD)
    host.call(end(who, version=OLD))
    tokens = [
        host.ask(add(who, B, version=OLD)),
        host.ask(end(who, is_commit=False, version=OLD)),
        host.ask(add(who, A, version=OLD)),
        host.ask(end(who, version=OLD)),
    ]
    for answered in (2, 4):
        finish(host)
        assert [token in host.answers for token in tokens] == [at < answered for at in range(4)]
    assert not any(isinstance(host.answers[token], ErrorCode) for token in tokens)
    held = host.state("x")
    assert held is not None and (held.state, held.partitions) == (
        State.PREPARE_COMMIT,
        {A},
    )


def test_those_that_waited_come_in_one_after_the_other() -> None:
    host = with_epoch(EPOCH_EXHAUSTED)
    old = ProducerIdentity(7, EPOCH_EXHAUSTED)
    host.call(add(old, A))
    new = host.call(end(old))
    second, first = host.ask(init()), host.ask(add(new, B))
    finish(host)
    # The second instance fenced the first one before the first could add its partition.
    assert host.answers[second] == ProducerIdentity(new.producer_id, 1)
    assert host.answers[first] == ErrorCode.PRODUCER_FENCED


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
    at_rest = {
        State.EMPTY,
        State.COMPLETE_COMMIT,
        State.COMPLETE_ABORT,
    }
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
