"""The last member of a share group, which takes what is left once nothing is written any more."""

from __future__ import annotations

import dataclasses
import math
import random
import threading
import time
from collections.abc import Callable, Mapping

from kvorum.chaos.addresses import client_of
from kvorum.chaos.experiment_file.workloads import ShareGroupPlan
from kvorum.chaos.history import OBSERVE, OBSERVER, OK, HistoryWriter
from kvorum.chaos.workloads.clients import QUICK_SHARE, open_admin
from kvorum.chaos.workloads.consume import end_offsets
from kvorum.chaos.workloads.share_groups import NotedHistory, Progress
from kvorum.chaos.workloads.share_member import ShareSession
from kvorum.chaos.workloads.worker import LoadThread

#: With the time to leave, all of it fits into the time that a load has to end (live/loads.py).
_ASK_TIMEOUT_S = 4.0
_DRAIN_S_MAX = 25.0
#: Records that were released may come again for so long after the last one.
_IDLE_S = 1.0
_SLACK_S = 3.0


class ShareDrain(LoadThread):
    """The member that joins last, once nothing is written any more, and accepts what is left.

    It writes the observation `drained` when every record below the topic's end was delivered, or
    when none came for longer than a lock and a dead member's session last. An abandoned run is not
    drained.
    """

    def __init__(
        self,
        *,
        bootstrap: str,
        plan: ShareGroupPlan,
        topic: str,
        partitions: int,
        history: HistoryWriter,
        progress: Progress,
    ) -> None:
        super().__init__(f"{plan.group}-drain", self._drain)
        self._servers = bootstrap
        self._plan = plan
        self._topic = topic
        self._partitions = partitions
        self._history = history
        self._progress = progress
        self._is_abandoned = threading.Event()

    def abandon(self) -> None:
        self._is_abandoned.set()
        super().abandon()

    def _drain(self, stop: threading.Event) -> None:
        stop.wait()
        if self._is_abandoned.is_set():
            return
        ends = end_offsets(
            bootstrap=self._servers,
            topic=self._topic,
            partitions=self._partitions,
            timeout_ms=int(_ASK_TIMEOUT_S * 1000),
        )
        if len(ends) < self._partitions:
            # A partition that gives no answer is none that has nothing left.
            return
        session = ShareSession(
            process=f"{self._plan.group}-drain",
            settings={**client_of(self._servers), **QUICK_SHARE},
            plan=_accepting(self._plan),
            topic=self._topic,
            history=NotedHistory(self._history, self._progress),
            rng=random.Random(0),
        )
        longest_wait_s = self._longest_wait_s()
        session.join()
        try:
            is_drained = self._take_all(session.turn, ends, longest_wait_s)
        finally:
            session.leave()
        if is_drained:
            self._history.append(
                process=OBSERVER,
                type=OK,
                f=OBSERVE,
                topic=self._topic,
                details={"what": "drained", "group": self._plan.group},
            )

    def _take_all(
        self, turn: Callable[[], int], ends: Mapping[int, int], longest_wait_s: float
    ) -> bool:
        """True if no record can come any more; False if it stops before that is certain."""
        begun = last = time.monotonic()
        while not self._is_abandoned.is_set():
            taken = turn()
            now = time.monotonic()
            if taken:
                last = now
            if now - last >= _IDLE_S and self._progress.has_all(ends):
                return True
            if now - last >= longest_wait_s:
                return True
            if now - begun >= _DRAIN_S_MAX:
                return False
        return False

    def _longest_wait_s(self) -> float:
        """How long a record may stay with a member that has died: a lock's time. And how long a
        partition may stay assigned to it: a session's time. Without end if no broker tells."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import (  # type: ignore[attr-defined]
            ConfigResource,
            ResourceType,
        )

        resource = ConfigResource(ResourceType.GROUP, self._plan.group)
        admin = open_admin(self._servers)
        answers = admin.describe_configs([resource], request_timeout=_ASK_TIMEOUT_S)
        try:
            session_ms = int(answers[resource].result()["share.session.timeout.ms"].value)
        except KafkaException:
            # A cluster that has not recovered is the verdict's matter; this run goes on to it.
            return math.inf
        return max(session_ms, self._plan.lock_duration_ms) / 1000 + _SLACK_S


def _accepting(plan: ShareGroupPlan) -> ShareGroupPlan:
    """The same plan, without records that are released or rejected."""
    return dataclasses.replace(plan, released_percent=0, rejected_percent=0)
