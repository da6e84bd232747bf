"""A consumer group that reads and commits: who owned which partition, and what was committed."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

from kvorum.chaos.experiment_file.workloads import GroupPlan
from kvorum.chaos.history import (
    ASSIGN,
    COMMIT,
    FAIL,
    INFO,
    INVOKE,
    OBSERVE,
    OBSERVER,
    OK,
    POLL,
    REVOKE,
    Commit,
    HistoryWriter,
    Type,
)
from kvorum.chaos.workloads.clients import open_admin, open_consumer
from kvorum.chaos.workloads.consume import polls_of
from kvorum.chaos.workloads.worker import LoadThread

_POLL_S = 0.1
_BATCH_RECORDS_MAX = 500
_REQUEST_TIMEOUT_S = 3.0
_SESSION_TIMEOUT_MS = 6_000
_DESCRIBE_INTERVAL_S = 0.3

#: Errors with which the coordinator refuses a commit for certain.
_REFUSALS = frozenset(
    {
        "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "FENCED_INSTANCE_ID",
        "STALE_MEMBER_EPOCH", "FENCED_MEMBER_EPOCH", "GROUP_ID_NOT_FOUND",
    }
)  # fmt: skip


class GroupMember(LoadThread):
    """One member. It leaves and joins again as a new member after plan.rejoin_ms."""

    def __init__(
        self, *, bootstrap: str, plan: GroupPlan, topic: str, number: int, history: HistoryWriter
    ) -> None:
        super().__init__(f"{plan.group}-{number}", self._work)
        self._servers = bootstrap
        self._plan = plan
        self._topic = topic
        self._number = number
        self._history = history
        self._process = ""
        self._next: dict[int, int] = {}
        self.committed = 0

    def _work(self, stop: threading.Event) -> None:
        for session in itertools.count(1):
            if stop.is_set():
                return
            # The group is part of the name: a history may have members of several groups.
            self._process = f"{self._plan.group}-{self._number}.{session}"
            # The members take turns, so that one leaves every rejoin_ms.
            turns = self._number if session == 1 else self._plan.members
            self._session(stop, self._plan.rejoin_ms * turns / 1000 or None)

    def _session(self, stop: threading.Event, length_s: float | None) -> None:
        is_classic = self._plan.protocol == "classic"
        settings: dict[str, Any] = {
            "group.id": self._plan.group,
            "group.protocol": self._plan.protocol,
        }
        if is_classic:
            settings["session.timeout.ms"] = _SESSION_TIMEOUT_MS
            settings["heartbeat.interval.ms"] = 500
        consumer = open_consumer(self._servers, settings)
        self._next.clear()
        ends_at = None if length_s is None else time.monotonic() + length_s
        commit_at = 0.0
        try:
            consumer.subscribe(
                [self._topic],
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
            while not stop.is_set() and (ends_at is None or time.monotonic() < ends_at):
                self._read(consumer)
                if time.monotonic() >= commit_at and self._next:
                    self._commit(consumer)
                    commit_at = time.monotonic() + self._plan.commit_interval_ms / 1000
        finally:
            consumer.close()

    def _read(self, consumer: Any) -> None:
        messages = consumer.consume(_BATCH_RECORDS_MAX, _POLL_S)
        polls = polls_of([message for message in messages if message.error() is None])
        if polls:
            self._history.append(
                process=self._process, type=OK, f=POLL, ops=polls, group=self._plan.group
            )
        for poll in polls:
            self._next[poll.partition] = poll.offsets[-1] + 1
        for message in messages:
            if message.error() is not None:
                self._history.append(
                    process=self._process, type=INFO, f=POLL, error=str(message.error())
                )

    def _commit(self, consumer: Any) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        commits = [Commit(self._topic, n, offset) for n, offset in sorted(self._next.items())]
        offsets = [TopicPartition(item.topic, item.partition, item.offset) for item in commits]
        invoked_ms = self._history.append(
            process=self._process, type=INVOKE, f=COMMIT, ops=commits, group=self._plan.group
        )
        kind: Type = OK
        reason: str | None = None
        try:
            # An answer may refuse single partitions, without an exception.
            for place in consumer.commit(offsets=offsets, asynchronous=False):
                if place.error is not None:
                    kind, reason = INFO, place.error.name()
        except KafkaException as error:
            reason = error.args[0].name()
            kind = FAIL if reason in _REFUSALS else INFO
        self._history.append(
            process=self._process,
            type=kind,
            f=COMMIT,
            ops=commits,
            group=self._plan.group,
            invoked_ms=invoked_ms,
            error=reason,
        )
        self.committed += kind == OK

    def _on_assign(self, consumer: Any, places: list[Any]) -> None:
        """Note the assignment, with the committed offsets at which the member begins."""
        from confluent_kafka import KafkaException

        invoked_ms = self._history.now_ms()
        try:
            known = consumer.committed(places, timeout=_REQUEST_TIMEOUT_S)
        except KafkaException:
            # The member begins at the offset that its own request finds, which is not known here.
            known = []
        self._note(
            ASSIGN,
            OK,
            places,
            ops=[
                Commit(item.topic, item.partition, item.offset)
                for item in known
                if item.offset >= 0
            ],
            invoked_ms=invoked_ms,
        )

    def _on_revoke(self, _: Any, places: list[Any]) -> None:
        self._note(REVOKE, OK, places)

    def _on_lost(self, _: Any, places: list[Any]) -> None:
        self._note(REVOKE, INFO, places)

    def _note(
        self,
        function: Any,
        kind: Type,
        places: list[Any],
        *,
        ops: list[Commit] | None = None,
        invoked_ms: float | None = None,
    ) -> None:
        self._history.append(
            process=self._process,
            type=kind,
            f=function,
            ops=ops or (),
            partitions=[(place.topic, place.partition) for place in places],
            group=self._plan.group,
            invoked_ms=invoked_ms,
        )
        if function == REVOKE:
            for place in places:
                self._next.pop(place.partition, None)


class GroupWatch(LoadThread):
    """Asks the coordinator who owns what: an observation `group`, with each member's partitions."""

    def __init__(self, *, bootstrap: str, plan: GroupPlan, history: HistoryWriter) -> None:
        super().__init__(f"group-watch-{plan.group}", self._watch)
        self._servers = bootstrap
        self._group = plan.group
        self._history = history

    def _watch(self, stop: threading.Event) -> None:
        from confluent_kafka import KafkaException

        admin = open_admin(self._servers)
        previous: dict[str, Any] | None = None
        while not stop.wait(_DESCRIBE_INTERVAL_S):
            answer = admin.describe_consumer_groups(
                [self._group], request_timeout=_REQUEST_TIMEOUT_S
            )
            try:
                found = answer[self._group].result()
            except KafkaException:
                # No coordinator answers now; the outage shows in the members' commits.
                continue
            members = {
                member.member_id: sorted(
                    [place.topic, place.partition] for place in member.assignment.topic_partitions
                )
                for member in found.members
            }
            details = {
                "what": "group",
                "group": self._group,
                "state": found.state.name.lower(),
                "members": members,
            }
            if details != previous:
                previous = details
                self._history.append(process=OBSERVER, type=OK, f=OBSERVE, details=details)
