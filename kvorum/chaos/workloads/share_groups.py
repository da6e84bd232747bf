"""A share group that reads the append load's topic: its configs, and its members."""

from __future__ import annotations

import contextlib
import itertools
import random
import select
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import Any

from kvorum.chaos.addresses import client_of
from kvorum.chaos.experiment_file.workloads import ShareGroupPlan
from kvorum.chaos.history import (
    DELIVER,
    INFO,
    LEAVE,
    Delivery,
    HistoryWriter,
)
from kvorum.chaos.workloads.clients import QUICK_SHARE
from kvorum.chaos.workloads.share_member import ShareSession, piped_event, start_line
from kvorum.chaos.workloads.worker import LoadThread
from kvorum.runtime.errors import KvorumError
from kvorum.runtime.python_module import module_command

_ADMIN_TIMEOUT_S = 20.0
_LOOK_S = 0.2
#: A member that is to be killed is killed empty-handed if it gets no record for so long.
_EMPTY_HANDED_S = 5.0
_ENDS_WITHIN_S = 10.0


def configure_group(admin: Any, plan: ShareGroupPlan) -> None:
    """Set the configs of the group: it begins with the first record. Raises KvorumError."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    configs = {
        "share.auto.offset.reset": "earliest",
        "share.record.lock.duration.ms": str(plan.lock_duration_ms),
        "share.delivery.count.limit": str(plan.delivery_count_limit),
    }
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, plan.group, incremental_configs=entries)
    answers = admin.incremental_alter_configs([resource], request_timeout=_ADMIN_TIMEOUT_S)
    try:
        answers[resource].result()
    except KafkaException as error:
        raise KvorumError(f"share group {plan.group} cannot be configured: {error}") from error


class Progress:
    """The records of a topic that a share group's members got, by partition. Its members share it.

    It holds the end of the gapless beginning, and what lies above: a long run needs no more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[int, int] = {}
        self._above: dict[int, set[int]] = {}
        self.delivered = 0

    def add(self, delivery: Delivery) -> None:
        with self._lock:
            above = self._above.setdefault(delivery.partition, set())
            reached = self._next.get(delivery.partition, 0)
            above.update(offset for offset in delivery.offsets if offset >= reached)
            while reached in above:
                above.discard(reached)
                reached += 1
            self._next[delivery.partition] = reached
            self.delivered += len(delivery.offsets)

    def has_all(self, ends: Mapping[int, int]) -> bool:
        """True if every offset below these ends was delivered."""
        with self._lock:
            return all(self._next.get(number, 0) >= end for number, end in ends.items())


class NotedHistory:
    """Appends events to the history, and their deliveries to the progress."""

    def __init__(self, history: HistoryWriter, progress: Progress) -> None:
        self._history = history
        self._progress = progress

    def append(self, **fields: Any) -> float:
        time_ms = self._history.append(**fields)
        for op in fields.get("ops", ()):
            if isinstance(op, Delivery):
                self._progress.add(op)
        return time_ms


class ShareMember(LoadThread):
    """One member. After plan.rejoin_ms it ends, by a leave or a kill, and a new one joins."""

    def __init__(
        self,
        *,
        bootstrap: str,
        plan: ShareGroupPlan,
        topic: str,
        number: int,
        history: HistoryWriter,
        progress: Progress,
        rng: random.Random,
    ) -> None:
        super().__init__(f"{plan.group}-{number}", self._work)
        self._settings = {**client_of(bootstrap), **QUICK_SHARE}
        self._plan = plan
        self._topic = topic
        self._number = number
        self._history = NotedHistory(history, progress)
        self._rng = rng

    def _work(self, stop: threading.Event) -> None:
        plan = self._plan
        for session in itertools.count(1):
            if stop.is_set():
                return
            process = f"{plan.group}-{self._number}.{session}"
            # The members take turns, so that one ends every rejoin_ms.
            turns = self._number if session == 1 else plan.members
            length_s = plan.rejoin_ms * turns / 1000
            is_killed = self._rng.randrange(100) < plan.killed_percent
            seed = self._rng.getrandbits(63)
            if length_s and is_killed and _can_be_sent(self._settings):
                self._be_killed(process, seed, stop, length_s)
            else:
                self._session(process, seed, stop, length_s)

    def _session(self, process: str, seed: int, stop: threading.Event, length_s: float) -> None:
        session = ShareSession(
            process=process,
            settings=self._settings,
            plan=self._plan,
            topic=self._topic,
            history=self._history,
            rng=random.Random(seed),
        )
        ends_at = time.monotonic() + length_s
        session.join()
        try:
            while not stop.is_set() and (not length_s or time.monotonic() < ends_at):
                session.turn()
        finally:
            session.leave()

    def _be_killed(self, process: str, seed: int, stop: threading.Event, length_s: float) -> None:
        """A session as a process, which is killed after length_s with records in hand."""
        command = module_command("kvorum.chaos.workloads.share_member")
        with tempfile.TemporaryFile() as complaints:
            # In a session of its own it does not get a Ctrl-C at the terminal.
            member = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                start_new_session=True,
            )
            try:
                _write(
                    member,
                    start_line(
                        process=process,
                        settings=self._settings,
                        plan=self._plan,
                        topic=self._topic,
                        seed=seed,
                    ),
                )
                if not self._relay(member, stop, length_s):
                    complaints.seek(0)
                    said = complaints.read().decode(errors="replace").strip()
                    raise KvorumError(f"{process} ended with {member.wait()}: {said}")
                # Before the kill: its records may be another member's a moment later.
                self._history.append(process=process, type=INFO, f=LEAVE, group=self._plan.group)
            finally:
                member.kill()
                member.wait(_ENDS_WITHIN_S)
                _close(member)

    def _relay(
        self, member: subprocess.Popen[bytes], stop: threading.Event, length_s: float
    ) -> bool:
        """Write the member's events to the history. Returns True when it is to be killed, and False
        if it has ended before."""
        kill_at = time.monotonic() + length_s
        while True:
            now = time.monotonic()
            if stop.is_set() or now >= kill_at + _EMPTY_HANDED_S:
                return True
            line = _line_of(member)
            if line is None:
                continue
            if not line:
                return False
            fields = piped_event(line)
            time_ms = self._history.append(**fields)
            if fields["f"] == DELIVER and fields.get("ops") and time.monotonic() >= kill_at:
                return True
            if not _write(member, b"%r\n" % time_ms):
                return False


def _can_be_sent(settings: Mapping[str, Any]) -> bool:
    """False for settings with a callback (OAUTHBEARER): such members leave, and are not killed."""
    return not any(callable(value) for value in settings.values())


def _line_of(member: subprocess.Popen[bytes]) -> bytes | None:
    """The next line of a member; empty if it has ended, None if it says nothing for a while. It
    waits for an answer after each line, so none is left in the buffer."""
    if member.stdout is None or not select.select([member.stdout], [], [], _LOOK_S)[0]:
        return None
    return member.stdout.readline()


def _write(member: subprocess.Popen[bytes], line: bytes) -> bool:
    """Send a line to a member; False if it has ended."""
    try:
        if member.stdin is not None:
            member.stdin.write(line)
            member.stdin.flush()
    except BrokenPipeError:
        return False
    return True


def _close(member: subprocess.Popen[bytes]) -> None:
    for pipe in (member.stdin, member.stdout):
        if pipe is not None:
            # The rest of a line that a dead member does not read.
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
