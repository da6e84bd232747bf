"""The controller that a caller asks next."""

from __future__ import annotations

from kvorum.metadata.rpc.active_controller import ActiveController


def test_without_a_leader_each_controller_is_asked_in_turn() -> None:
    active = ActiveController([3, 1, 2])
    assert [active.next() for _ in range(4)] == [2, 3, 1, 2]
    assert ActiveController([1, 2, 3], turn=1).next() == 3


def test_the_one_that_answered_as_active_is_asked_until_it_fails() -> None:
    active = ActiveController([1, 2, 3])
    active.note_active(3)
    assert [active.next(), active.next()] == [3, 3]
    active.note_failure(1)
    assert active.next() == 3
    active.note_failure(3)
    assert active.leader_id is None


def test_the_hint_of_one_that_is_not_active_is_followed() -> None:
    active = ActiveController([1, 2, 3])
    active.note_active(1)
    active.note_failure(1, hint=2)
    assert active.next() == 2
    active.note_failure(2, hint=2)
    assert active.leader_id is None
    active.note_failure(3, hint=-1)
    assert active.leader_id is None


def test_an_unknown_controller_is_not_followed() -> None:
    active = ActiveController([1, 2, 3])
    active.note_active(9)
    active.note_failure(1, hint=9)
    assert not active.note_election(9, 5)
    assert (active.leader_id, active.epoch) == (None, -1)


def test_only_the_newest_election_counts() -> None:
    active = ActiveController([1, 2, 3])
    assert active.note_election(2, 7)
    assert not active.note_election(3, 7)
    assert not active.note_election(1, 6)
    assert (active.next(), active.epoch) == (2, 7)


def test_a_controller_that_is_no_longer_one_is_forgotten() -> None:
    active = ActiveController([-2])
    active.note_active(-2)
    active.update([-2, 1])
    assert active.next() == -2
    active.update([1, 2])
    assert active.leader_id is None
    assert {active.next(), active.next()} == {1, 2}
