"""Heartbeat streams that break and come back: the brokers that are fenced, and after what time."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from kvorum.metadata.controller.core.broker_sessions import FLAP_QUIET_MS, BrokerSessions
from tests.test_metadata.worlds import World

GRACE_MS, TIMEOUT_MS = 100, 2_000


def sessions_of(*broker_ids, at_ms=0):
    sessions = BrokerSessions(session_timeout_ms=TIMEOUT_MS, stream_grace_ms=GRACE_MS)
    for broker_id in broker_ids:
        sessions.touch(broker_id, 10, -1, at_ms)
    return sessions


def flap(sessions, broker_id, times, *, at_ms, epoch=10):
    for _ in range(times):
        sessions.stream_broke(broker_id, epoch, at_ms)
        at_ms += 20
        sessions.touch(broker_id, epoch, -1, at_ms)
    return at_ms


def test_a_process_that_dies_without_flapping_is_fenced_after_the_grace():
    sessions = sessions_of(1, 2)
    sessions.stream_broke(1, 10, 50)
    assert sessions.next_deadline_ms() == 50 + GRACE_MS
    assert sessions.expired(149) == []
    assert [broker_id for broker_id, _ in sessions.expired(150)] == [1]


@pytest.mark.parametrize(
    ("returns", "grace_ms"),
    [(0, 100), (1, 200), (2, 400), (3, 800), (4, 1_600), (5, 2_000), (9, 2_000)],
)
def test_each_return_of_the_same_process_doubles_its_grace_up_to_the_session_timeout(
    returns, grace_ms
):
    sessions = sessions_of(1, 2)
    at_ms = flap(sessions, 1, returns, at_ms=0)
    assert sessions.grace_ms(1, at_ms) == grace_ms
    assert sessions.grace_ms(2, at_ms) == GRACE_MS  # its own, not everybody's


def test_a_broker_that_was_fenced_meanwhile_was_not_dead_either():
    world = World()
    sessions = world.controller.sessions
    sessions.stream_broke(101, world.epochs[101], 0)
    assert world.expire(100) == [101]
    world.now_ms = 130
    world.heartbeat(101)
    sessions.stream_broke(101, world.epochs[101], 140)
    assert world.expire(339) == []
    assert world.expire(340) == [101]


def test_another_process_of_that_id_begins_anew():
    sessions = sessions_of(1)
    at_ms = flap(sessions, 1, 3, at_ms=0)
    sessions.stream_began(1, 11)
    sessions.touch(1, 11, -1, at_ms)
    assert sessions.grace_ms(1, at_ms) == GRACE_MS
    sessions.stream_broke(1, 11, at_ms)
    assert [broker_id for broker_id, _ in sessions.expired(at_ms + GRACE_MS)] == [1]


def test_the_return_of_another_process_is_none():
    sessions = sessions_of(1)
    sessions.stream_broke(1, 10, 0)
    sessions.touch(1, 11, -1, 20)  # it had died, and its successor registers
    assert sessions.grace_ms(1, 20) == GRACE_MS


def test_each_quiet_time_takes_one_doubling_back():
    sessions = sessions_of(1)
    at_ms = flap(sessions, 1, 3, at_ms=0)
    graces = [sessions.grace_ms(1, at_ms + n * FLAP_QUIET_MS) for n in range(5)]
    assert graces == [800, 400, 200, 100, 100]


def test_a_long_storm_is_forgotten_as_soon_as_a_short_one():
    sessions = sessions_of(1)
    at_ms = flap(sessions, 1, 500, at_ms=0)
    assert sessions.grace_ms(1, at_ms) == TIMEOUT_MS
    assert sessions.grace_ms(1, at_ms + 5 * FLAP_QUIET_MS) == GRACE_MS


def test_a_new_active_controller_has_seen_no_flaps():
    sessions = sessions_of(1)
    at_ms = flap(sessions, 1, 4, at_ms=0)
    sessions.reset({1: 10}, at_ms)
    assert sessions.grace_ms(1, at_ms) == GRACE_MS


def test_heartbeats_over_a_whole_stream_double_nothing():
    sessions = sessions_of(1)
    for at_ms in range(0, 5_000, 500):
        sessions.touch(1, 10, -1, at_ms)
    assert sessions.grace_ms(1, 5_000) == GRACE_MS


def test_the_late_end_of_an_older_connection_is_no_end_of_the_newer_one():
    # Bad sequence: 1. The link goes silent. 2. The broker comes back over a new connection. 3. Only
    # then the controller notices the end of the old one. The next heartbeat comes after the grace.
    sessions = sessions_of(1)
    old = sessions.stream_began(1, 10)
    new = sessions.stream_began(1, 10)
    sessions.touch(1, 10, -1, 1_000)
    sessions.stream_broke(1, 10, 1_010, old)
    assert sessions.expired(1_400) == []
    sessions.stream_broke(1, 10, 1_500, new)
    assert [broker_id for broker_id, _ in sessions.expired(1_600)] == [1]


def test_a_stall_of_the_controller_moves_the_grace_too():
    sessions = sessions_of(1)
    flap(sessions, 1, 1, at_ms=0)
    sessions.stream_broke(1, 10, 100)
    sessions.on_timer(300, 5_300)
    assert sessions.expired(5_399) == []
    assert [broker_id for broker_id, _ in sessions.expired(5_400)] == [1]


def test_after_a_stall_there_is_time_to_read_what_came_meanwhile():
    # The stall began right after the timer was set, so the broker's heartbeats since then are not
    # read yet.
    sessions = sessions_of(1, at_ms=0)
    sessions.on_timer(TIMEOUT_MS, 7_000)
    assert sessions.expired(7_000) == []
    sessions.touch(1, 10, -1, 7_050)
    assert sessions.expired(7_100) == []


@given(
    st.lists(
        st.tuples(st.sampled_from(["break", "beat", "restart", "wait"]), st.integers(1, 30_000)),
        max_size=60,
    )
)
def test_the_grace_lies_between_the_configured_one_and_the_session_timeout(steps):
    """Against a plain model: a list of the moments at which the process came back."""
    sessions = sessions_of(1)
    now_ms, epoch, is_broken = 0, 10, False
    doublings, since_ms = 0, 0

    def left():
        return max(doublings - (now_ms - since_ms) // FLAP_QUIET_MS, 0)

    for kind, wait_ms in steps:
        match kind:
            case "wait":
                now_ms += wait_ms
            case "break":
                sessions.touch(1, epoch, -1, now_ms)
                if is_broken:
                    doublings, since_ms = min(left() + 1, 5), now_ms
                sessions.stream_broke(1, epoch, now_ms)
                is_broken = True
            case "beat":
                sessions.touch(1, epoch, -1, now_ms)
                if is_broken:
                    doublings, since_ms = min(left() + 1, 5), now_ms
                is_broken = False
            case "restart":
                epoch += 1
                sessions.stream_began(1, epoch)
                sessions.touch(1, epoch, -1, now_ms)
                doublings, is_broken = 0, False
        assert sessions.grace_ms(1, now_ms) == min(GRACE_MS << left(), TIMEOUT_MS)
