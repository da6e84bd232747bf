"""How transactions end: EndTxn, fail-overs, time. Rules of the coordinator, one a test."""

from __future__ import annotations

import pytest

from kvorum.broker.transactions.core.config import TransactionConfig
from kvorum.broker.transactions.core.model import EPOCH_EXHAUSTED, State
from kvorum.broker.transactions.core.requests import (
    DescribeTransaction,
    MarkersWritten,
    ProducerIdentity,
)
from kvorum.runtime.errors import ErrorCode
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
from tests.test_transactions.host import Host


@pytest.fixture
def host() -> Host:
    return Host()


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
    # Before the markers are written it may be meant for the next transaction.
    assert host.call(opposite) == ErrorCode.CONCURRENT_TRANSACTIONS
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
    # This second EndTxn is not a repeat, because it names the epoch that the first one returned.
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
