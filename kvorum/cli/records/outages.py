"""Partitions that nobody serves, found by asking their leaders: librdkafka only goes on trying."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from kvorum.client.cluster.brokers import Brokers, Partition
from kvorum.client.cluster.offsets import ends_at
from kvorum.client.connection import BrokerGone
from kvorum.client.failures import CommandFailed

PROBE_EACH_S = 5.0
OUTAGE_S = 60.0
"""A partition without an answer for so long ends the command; a topic that is gone has no other
sign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """The reason why a partition has no answer, and since when."""

    reason: str
    since_s: float


class Outages:
    """The partitions that are read and have no answer."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._due_s = time.monotonic() + PROBE_EACH_S
        self._problems: dict[Partition, _Problem] = {}

    def check(self, partitions: Iterable[Partition]) -> None:
        """Ask the partitions' leaders if it is time to. Raises CommandFailed for a partition
        without an answer for OUTAGE_S."""
        if time.monotonic() < self._due_s:
            return
        reasons = self._reasons(sorted(partitions))
        now_s = time.monotonic()
        self._due_s = now_s + PROBE_EACH_S
        # A partition that another member had meanwhile begins anew.
        before, self._problems = self._problems, {}
        for partition, reason in reasons.items():
            since_s = before[partition].since_s if partition in before else now_s
            self._problems[partition] = _Problem(reason=reason, since_s=since_s)
            if now_s - since_s > OUTAGE_S:
                topic, number = partition
                raise CommandFailed(f"{topic}-{number}: no answer for {OUTAGE_S:g} s: {reason}")

    def _reasons(self, partitions: list[Partition]) -> dict[Partition, str]:
        """The reasons why these have no answer; without those that have one."""
        try:
            topics = self._brokers.topics(sorted({topic for topic, _ in partitions}))
        except BrokerGone as error:
            return dict.fromkeys(partitions, str(error))
        reasons: dict[Partition, str] = {}
        led: dict[int, list[Partition]] = {}
        for topic, number in partitions:
            leader = topics[topic].leaders.get(number, -1) if topic in topics else -1
            if topic not in topics:
                reasons[topic, number] = f"topic {topic} is gone"
            elif leader < 0:
                reasons[topic, number] = "the partition has no leader"
            else:
                led.setdefault(leader, []).append((topic, number))
        for leader, asked in led.items():
            try:
                answered = ends_at(self._brokers.to(leader), asked)
            except BrokerGone as error:
                self._brokers.forget(leader)
                reasons.update(dict.fromkeys(asked, str(error)))
            else:
                left = [p for p in asked if p not in answered]
                reasons.update(dict.fromkeys(left, f"broker {leader} does not lead it any more"))
        return reasons
