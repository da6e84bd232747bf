"""The sessions of a group's members: a member that sends nothing for its time-out is out. Pure.

A heartbeat only moves the deadline. The timer stays set, and if it fires too early it is set again:
one timer effect per session time-out, and not one per heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from kvorum.broker.groups.steps.step_effects import StepEffects


class MemberSessions:
    """The sessions of one group's members, by member id."""

    __slots__ = ("_deadlines_ms", "_name", "_timers_ms")

    def __init__(self, name: Callable[[str], Hashable]) -> None:
        """name: the timer's name for a member id."""
        self._name = name
        self._deadlines_ms: dict[str, int] = {}
        self._timers_ms: dict[str, int] = {}

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._deadlines_ms

    def extend(self, member_id: str, timeout_ms: int, step: StepEffects) -> None:
        """Start the member's session again."""
        deadline_ms = step.now.monotonic_ms + timeout_ms
        self._deadlines_ms[member_id] = deadline_ms
        if deadline_ms < self._timers_ms.get(member_id, deadline_ms + 1):
            self._timers_ms[member_id] = deadline_ms
            step.set_timer(self._name(member_id), timeout_ms)

    def forget(self, member_id: str, step: StepEffects) -> None:
        """The member has left."""
        self._deadlines_ms.pop(member_id, None)
        if self._timers_ms.pop(member_id, None) is not None:
            step.cancel_timer(self._name(member_id))

    def is_over(self, member_id: str, step: StepEffects) -> bool:
        """The member's timer has fired: True if it has sent nothing meanwhile. Otherwise the timer
        is set again."""
        if self._timers_ms.pop(member_id, None) is None:
            return False
        left_ms = self._deadlines_ms[member_id] - step.now.monotonic_ms
        if left_ms <= 0:
            return True
        self._timers_ms[member_id] = self._deadlines_ms[member_id]
        step.set_timer(self._name(member_id), left_ms)
        return False
