"""The rules of a controller over its log: when it is active, what it appends, when it replies.

The rules are synchronous, without a clock or an event loop. Time comes in as now_ms,
`next_deadline_ms` says when `on_timer` is due, and `ControllerPort` is the log and the quorum. The
driver is `metadata.controller.loop`; the simulator has its own.

A reply waits in the purgatory until the high watermark passes the last record that it relies on. A
reply without records waits for all earlier decisions, so that no client gets an answer from state
that may still be lost.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kvorum.metadata.controller.core.controller import SHUT_DOWN, Controller, Reply, Request
from kvorum.metadata.controller.core.leader_check import CHUNK_PAUSE_MS, LeaderCheck
from kvorum.metadata.controller.decide import RECORDS_PER_BATCH_MAX
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.loader import CHUNK_BYTES, advance
from kvorum.metadata.image.record_codec import encode_records
from kvorum.metadata.image.records import Record
from kvorum.raft.model.effects import LeaderChanged
from kvorum.runtime.errors import ErrorCode, Rejected, invariant
from kvorum.storage.log.log import Log

PARKED_MAX = 20_000
"""Replies that may wait for commitment; further requests are refused, not queued."""

AT_ONCE_MS = 0
"""A deadline that means: in the next turn of the driver, whatever the clock shows."""

OnReply = Callable[[Reply], None]
"""Called with the outcome of a request, once, perhaps before `submit` returns."""


class ControllerPort(Protocol):
    """The node, as the controller's rules need it."""

    @property
    def node_id(self) -> int: ...

    @property
    def next_offset(self) -> int:
        """Offset of the next proposed record, while this node leads."""

    @property
    def log(self) -> Log:
        """The log; it has all committed records after the newest image given to `on_loaded`."""

    @property
    def leader_id(self) -> int:
        """The quorum's leader; NO_NODE if none is known."""

    @property
    def voter_ids(self) -> Sequence[int]:
        """The ids of the voters, ascending."""

    @property
    def wall_ms(self) -> int:
        """The time since 1970, for times that records have."""

    def propose(self, values: Sequence[bytes]) -> None:
        """Append encoded records as one batch, all or nothing; for the leader only."""

    def on_image(self, image: ClusterImage) -> None:
        """The committed image has advanced."""

    def note(self, text: str, *, is_warning: bool = False) -> None:
        """Write a line to the node's log."""


@dataclass(slots=True)
class _Parked:
    end_offset: int
    image: ClusterImage | None
    reply: Reply | None
    on_reply: OnReply | None


class QuorumController:
    """Runs a Controller over a log. After every call, ask `next_deadline_ms` and call `on_timer`
    when it is due. Any exception from a method is a bug, and the node must exit."""

    def __init__(
        self, controller: Controller, port: ControllerPort, *, chunk_bytes: int = CHUNK_BYTES
    ) -> None:
        """chunk_bytes: bytes of the log that are applied at a time."""
        self.controller = controller
        self._port = port
        self._chunk_bytes = chunk_bytes
        self._parked: deque[_Parked] = deque()
        self._deadlines: list[tuple[int, int, int, _Parked]] = []
        self._sequence = 0
        self._high_watermark = 0
        self._leadership: LeaderChanged | None = None
        self._is_loading = False
        self._is_catching_up = False
        self._session_timer_ms: int | None = None
        self._leader_check = LeaderCheck()
        self._token_check_ms: int | None = None

    # Requests.

    def submit(self, request: Request, on_reply: OnReply, *, timeout_ms: int, now_ms: int) -> None:
        """Decide a request; on_reply is called with the outcome once it is committed.

        Rejected(NOT_CONTROLLER) at once if this node is not active; or later, if it stops being
        active before the commit, when the outcome is unknown. Rejected(REQUEST_TIMED_OUT) after
        timeout_ms: the decision may still be committed.
        """
        controller = self.controller
        if not controller.is_active:
            on_reply(self._not_controller())
            return
        if len(self._parked) >= PARKED_MAX:
            on_reply(Rejected(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many requests in flight"))
            return
        # The quorum may have appended a change of the voter set after the last decision's records.
        controller.skip_to(self._port.next_offset)
        decision = controller.decide(request, now_ms, wall_ms=self._port.wall_ms)
        self._append(decision.records)
        if self._session_timer_ms is None:
            # A timer that is set fires early enough: a request only postpones deadlines.
            self._arm_session_timer()
        end_offset = self._port.next_offset
        if end_offset <= self._high_watermark:
            on_reply(decision.reply)
            return
        parked = self._park(end_offset, decision.reply, on_reply)
        self._sequence += 1
        heapq.heappush(self._deadlines, (now_ms + timeout_ms, self._sequence, timeout_ms, parked))

    def stream_began(self, broker_id: int, broker_epoch: int) -> int:
        """A new heartbeat stream of this broker epoch has its first heartbeat; returns the stream's
        serial number."""
        if broker_id not in self.controller.committed.brokers:
            return 0  # unknown broker ids get no entry
        return self.controller.sessions.stream_began(broker_id, broker_epoch)

    def stream_broke(self, broker_id: int, broker_epoch: int, serial: int, now_ms: int) -> None:
        """A broker's heartbeat stream ended."""
        if self.controller.is_active:
            self.controller.sessions.stream_broke(broker_id, broker_epoch, now_ms, serial)
            self._arm_session_timer()

    # Events of the log and the quorum.

    def on_committed(self, high_watermark: int, now_ms: int) -> None:
        """Send the replies, and adopt the images, that are committed now."""
        self._high_watermark = high_watermark
        if not self.controller.is_active:
            self._catch_up(now_ms)
            return
        parked = self._parked
        while parked and parked[0].end_offset <= high_watermark:
            first = parked.popleft()
            if first.image is not None:
                self._note_committed(first.image)
            _settle(first, first.reply)

    def on_leader_changed(self, change: LeaderChanged, now_ms: int) -> None:
        """Renounce now if this node was active. If it leads, claim when the epoch's first record is
        committed."""
        self._leadership = change
        if self.controller.is_active:
            self._port.note(f"node={self._port.node_id} renounces epoch={self.controller.epoch}")
            self.controller.renounce()
            self._leader_check.stop()
            self._token_check_ms = None
            while self._parked:
                _settle(self._parked.popleft(), self._not_controller())
            self._catch_up(now_ms)
        self._maybe_claim(now_ms)

    def on_voters_changed(self, voter_ids: Sequence[int]) -> None:
        """Adopt the voters; feature levels depend on what they support."""
        self.controller.voter_ids = tuple(voter_ids)

    def on_loading(self) -> None:
        """The log restarts after a snapshot: nothing is applied before `on_loaded`."""
        self._is_loading = True

    def on_loaded(self, image: ClusterImage, now_ms: int) -> None:
        """Adopt the image of a snapshot: the leader's, or at the start the node's own."""
        self._is_loading = False
        self.controller.note_committed(image)
        self._catch_up(now_ms)

    # Time.

    def next_deadline_ms(self) -> int | None:
        """When `on_timer` is due; AT_ONCE_MS for the next turn, None for never."""
        if self._is_catching_up or self.controller.is_fencing:
            return AT_ONCE_MS
        deadlines = self._deadlines
        while deadlines and deadlines[0][3].on_reply is None:
            heapq.heappop(deadlines)
        deadline_ms = deadlines[0][0] if deadlines else None
        for other_ms in (
            self._session_timer_ms,
            self._leader_check.next_deadline_ms,
            self._token_check_ms,
        ):
            if other_ms is not None and (deadline_ms is None or other_ms < deadline_ms):
                deadline_ms = other_ms
        return deadline_ms

    def on_timer(self, now_ms: int) -> None:
        """Do what is due; does nothing if called too early."""
        if self._is_catching_up:
            self._is_catching_up = False
            if not self.controller.is_active:
                self._catch_up(now_ms)
        if self._session_timer_ms is not None and self._session_timer_ms <= now_ms:
            self._on_session_timer(self._session_timer_ms, now_ms)
        elif self.controller.is_fencing:
            self._fence(now_ms)
        check_ms = self._leader_check.next_deadline_ms
        if check_ms is not None and check_ms <= now_ms:
            self._check_leaders(now_ms)
        if self._token_check_ms is not None and self._token_check_ms <= now_ms:
            self._remove_expired_tokens(now_ms)
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, _, timeout_ms, parked = heapq.heappop(self._deadlines)
            message = f"not committed within {timeout_ms} ms; it may still be committed"
            _settle(parked, Rejected(ErrorCode.REQUEST_TIMED_OUT, message))

    # Helpers.

    def _note_committed(self, image: ClusterImage) -> None:
        self.controller.note_committed(image)
        self._port.on_image(image)

    def _not_controller(self) -> Rejected:
        leader_id = self._port.leader_id
        leader = f"the leader is {leader_id}" if leader_id >= 0 else "no leader is known"
        return Rejected(
            ErrorCode.NOT_CONTROLLER,
            f"node {self._port.node_id} is not the active controller; {leader}",
        )

    def _catch_up(self, now_ms: int) -> None:
        """Apply committed records in chunks; the driver has a turn between two chunks."""
        if self._is_catching_up or self._is_loading:
            return
        controller = self.controller
        if controller.committed.end_offset < self._high_watermark:
            _, image = advance(
                self._port.log,
                controller.committed,
                self._high_watermark,
                bytes_max=self._chunk_bytes,
            )
            self._note_committed(image)
        if controller.committed.end_offset < self._high_watermark:
            self._is_catching_up = True
        else:
            self._maybe_claim(now_ms)

    def _maybe_claim(self, now_ms: int) -> None:
        change, controller = self._leadership, self.controller
        if (
            change is None
            or change.leader_id != self._port.node_id
            or controller.is_active
            or self._high_watermark <= change.epoch_start_offset
            or self._is_loading
            or controller.committed.end_offset < self._high_watermark
        ):
            return
        controller.voter_ids = tuple(self._port.voter_ids)
        controller.claim(change.epoch, controller.committed.end_offset, now_ms)
        # The quorum may have appended a change of the voter set while the log was being applied.
        # Everything else in the log was committed with the epoch's first record.
        controller.skip_to(self._port.next_offset)
        self._append(controller.begin())
        self._port.note(f"node={self._port.node_id} claims epoch={change.epoch}")
        self._arm_session_timer()
        self._leader_check.start(controller.leader_check_interval_ms, now_ms)
        # The first check comes soon. If the active controller changed within every interval, no
        # expired token would ever be removed.
        self._token_check_ms = now_ms + CHUNK_PAUSE_MS

    def _check_leaders(self, now_ms: int) -> None:
        self.controller.skip_to(self._port.next_offset)
        # Preferred leaders are elected only after one interval, not during a fail-over.
        check = self._leader_check
        decision = self.controller.sweep_leaders(check.at, only_missing=not check.has_walked)
        self._append(decision.records)
        if decision.records:
            self._port.note(f"elections={len(decision.records)} by the periodic check")
        check.note_chunk(decision.reply, now_ms)

    def _remove_expired_tokens(self, now_ms: int) -> None:
        self.controller.skip_to(self._port.next_offset)
        decision = self.controller.remove_expired_tokens(self._port.wall_ms)
        self._append(decision.records)
        if decision.records:
            self._port.note(f"delegation_tokens_removed={len(decision.records)}")
        interval_ms = self.controller.token_check_interval_ms
        self._token_check_ms = now_ms + (CHUNK_PAUSE_MS if decision.reply else interval_ms)

    def _append(self, records: Sequence[Record]) -> None:
        if not records:
            return
        level = self.controller.metadata_version
        for start in range(0, len(records), RECORDS_PER_BATCH_MAX):
            self._port.propose(
                encode_records(records[start : start + RECORDS_PER_BATCH_MAX], level)
            )
        end_offset, image = self._port.next_offset, self.controller.speculative
        invariant(
            image is not None and image.end_offset == end_offset,
            "the speculative image and the log have parted",
        )
        self._parked.append(_Parked(end_offset, image, None, None))

    def _park(self, end_offset: int, reply: Reply, on_reply: OnReply) -> _Parked:
        last = self._parked[-1] if self._parked else None
        if last is not None and last.reply is None and last.end_offset == end_offset:
            last.reply, last.on_reply = reply, on_reply
            return last
        parked = _Parked(end_offset, None, reply, on_reply)
        self._parked.append(parked)
        return parked

    def _arm_session_timer(self) -> None:
        deadline_ms = self.controller.sessions.next_deadline_ms()
        if deadline_ms is None or not self.controller.is_active:
            return
        # A timer that is set earlier fires in time, and then this is called again.
        if self._session_timer_ms is None or deadline_ms < self._session_timer_ms:
            self._session_timer_ms = deadline_ms

    def _on_session_timer(self, due_ms: int, now_ms: int) -> None:
        self._session_timer_ms = None
        controller = self.controller
        if not controller.is_active:
            return
        controller.sessions.on_timer(due_ms, now_ms)
        self._fence(now_ms)

    def _fence(self, now_ms: int) -> None:
        """Fence the brokers whose sessions have ended. Of many partitions only one chunk is
        decided; the driver has a turn before the next."""
        controller = self.controller
        controller.skip_to(self._port.next_offset)
        while (chunk := controller.fence_next(now_ms)) is not None:
            fenced, records = chunk
            self._append(records)
            if controller.is_fencing:
                break
            for broker_id, cause in fenced.items():
                is_warning = cause != SHUT_DOWN
                self._port.note(f"broker={broker_id} is fenced: {cause}", is_warning=is_warning)
        self._arm_session_timer()


def _settle(parked: _Parked, reply: Reply | None) -> None:
    on_reply, parked.on_reply = parked.on_reply, None
    if on_reply is not None and reply is not None:
        on_reply(reply)
