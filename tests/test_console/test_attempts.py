"""The limit for passwords that are tried."""

from __future__ import annotations

from kvorum.console.core.attempts import (
    FAILURES_OF_ADDRESS_MAX,
    FAILURES_OF_USER_MAX,
    KEPT_MAX,
    WINDOW_S,
    Attempts,
)


def test_a_user_may_be_tried_again_when_the_oldest_failure_is_a_minute_old():
    attempts = Attempts()
    for at in range(FAILURES_OF_USER_MAX):
        assert attempts.refusal("alice", "a", at) == ""
        attempts.failed("alice", "a", at)
    said = attempts.refusal("alice", "b", 10.0)
    assert said == "too many wrong passwords for this user; try again in 50 seconds"
    assert attempts.refusal("bob", "a", 10.0) == ""
    assert attempts.refusal("alice", "b", WINDOW_S - 0.1) != ""
    assert attempts.refusal("alice", "b", WINDOW_S) == ""


def test_an_address_that_tries_many_users_is_refused_for_all():
    attempts = Attempts()
    for number in range(FAILURES_OF_ADDRESS_MAX):
        attempts.failed(f"user-{number}", "a", 0.0)
    assert "for this address" in attempts.refusal("another", "a", 1.0)
    assert attempts.refusal("another", "b", 1.0) == ""


def test_what_is_remembered_is_bounded_and_the_oldest_is_forgotten():
    attempts = Attempts()
    for _ in range(FAILURES_OF_USER_MAX):
        attempts.failed("first", "x", 0.0)
    for number in range(KEPT_MAX):
        attempts.failed(f"user-{number}", f"address-{number}", 1.0)
    assert len(attempts._failures) == KEPT_MAX
    assert attempts.refusal("first", "y", 2.0) == ""
