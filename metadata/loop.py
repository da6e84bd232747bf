"""The driver of the controller: requests in, records to the log, replies out once committed.

Walk 1. One task owns the controller (the loop itself: nothing here awaits while it changes
state). A reply waits in the purgatory until the high watermark passes the last record it rests
on; a reply without records waits for whatever was decided before it, so that nobody is ever
answered from state that may still vanish.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from metadata.controller import Controller, Reply, Request
from metadata.decide.elections import Sweep
from metadata.image import ClusterImage
from metadata.leader_check import LeaderCheck
from metadata.loader import advance
from metadata.record_codec import encode_records
from metadata.records import Record
from metadata.snapshotter import ImageLoader, Snapshotter, load_newest
from raft.effects import LeaderChanged
from raft.model import OffsetAndEpoch
from raft.node import RaftNode
from raft.roles.states import Follower
from raft.voters import VoterSet
from runtime.clock import monotonic_ms, wall_ms
from runtime.errors import ErrorCode, Rejected, invariant, required
from runtime.ids import NO_NODE
from storage.batch import build_batch

logger = logging.getLogger("kvorum.controller")

RECORDS_PER_BATCH_MAX = 50_000
"""Records of one decision in one batch, all or nothing; only fencing may need more."""

PARKED_MAX = 20_000
"""Replies waiting for commitment; more requests are turned away, not queued."""


@dataclass(slots=True)
class _Parked:
    end_offset: int
    image: ClusterImage | None
    reply: Reply | None
    future: asyncio.Future[Reply] | None


class ControllerLoop:
    """Runs a Controller over a RaftNode; a `raft.node.RaftListener`."""

    def __init__(
        self, controller: Controller, *, on_failure: Callable[[BaseException], None]
    ) -> None:
        self.controller = controller
        self._on_failure = on_failure
        self._node: RaftNode | None = None
        self._snapshotter: Snapshotter | None = None
        self._loader: ImageLoader | None = None
        self._loop = asyncio.get_running_loop()
        self._parked: deque[_Parked] = deque()
        self._high_watermark = 0
        self._leadership: LeaderChanged | None = None
        self._leaderless_since_ms: int | None = monotonic_ms()
        self._is_catching_up = False
        self._session_timer: asyncio.TimerHandle | None = None
        self._session_timer_ms = 0
        self._leader_check = LeaderCheck(self._check_leaders)

    def attach(self, node: RaftNode) -> None:
        """Give the loop its node; once, before the node starts."""
        self._node = node
        self._snapshotter = Snapshotter(node)
        self._loader = ImageLoader(node, on_loaded=self._on_loaded, on_failure=self._on_failure)

    async def load(self, snapshot: OffsetAndEpoch | None) -> None:
        """Begin with the state of this node's newest snapshot; before the node starts."""
        if snapshot is not None:
            self._on_loaded(await load_newest(self.node, snapshot))

    @property
    def node(self) -> RaftNode:
        invariant(self._node is not None, "the controller loop has no node yet")
        return self._node  # type: ignore[return-value]

    @property
    def leader_id(self) -> int:
        """Who leads; NO_NODE if this node has no leader, or has lost the one it had."""
        core = self.node.core
        if isinstance(core.role, Follower) and core.role.is_leader_lost:
            return NO_NODE
        return core.leader_id

    @property
    def leaderless_ms(self) -> int:
        """For how long there has been no leader, as far as noticed; 0 if there is one."""
        self._note_leader()
        if self._leaderless_since_ms is None:
            return 0
        return monotonic_ms() - self._leaderless_since_ms

    async def submit(self, request: Request, timeout_ms: int) -> Reply:
        """Decide a request and wait until its outcome is committed.

        Rejected(NOT_CONTROLLER) at once if this node is not active, and also when it stops being
        active before the commit: the outcome is then unknown to it.
        Rejected(REQUEST_TIMED_OUT) after timeout_ms: the outcome may still come true.
        """
        if not self.controller.is_active:
            return self._not_controller()
        if len(self._parked) >= PARKED_MAX:
            return Rejected(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many requests in flight")
        try:
            # A change of the voter set may stand behind the last decision's records.
            self.controller.skip_to(self.node.next_offset)
            decision = self.controller.decide(request, monotonic_ms())
            self._append(decision.records)
            self._arm_session_timer()
        except Exception as error:
            # A bug of ours; the speculative image can no longer be trusted.
            self._on_failure(error)
            raise
        end_offset = self.node.next_offset
        if end_offset <= self._high_watermark:
            return decision.reply
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._park(end_offset, decision.reply, future)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await future
        except TimeoutError:
            return Rejected(
                ErrorCode.REQUEST_TIMED_OUT,
                f"not committed within {timeout_ms} ms; it may still come true",
            )

    def stream_broke(self, broker_id: int, broker_epoch: int) -> None:
        """The heartbeat stream of a broker ended."""
        if self.controller.is_active:
            self.controller.sessions.stream_broke(broker_id, broker_epoch, monotonic_ms())
            self._arm_session_timer()

    # RaftListener.

    def on_committed(self, high_watermark: int) -> None:
        """Release what is committed now."""
        self._high_watermark = high_watermark
        self._note_leader()
        if not self.controller.is_active:
            self._catch_up()
            return
        while self._parked and self._parked[0].end_offset <= high_watermark:
            parked = self._parked.popleft()
            if parked.image is not None:
                self._note_committed(parked.image)
            if parked.future is not None and not parked.future.done():
                parked.future.set_result(parked.reply)  # type: ignore[arg-type]

    def on_leader_changed(self, change: LeaderChanged) -> None:
        """Claim later, when the epoch's first record is committed, or renounce now."""
        self._leadership = change
        self._note_leader()
        if self.controller.is_active:
            logger.info("node=%d renounces epoch=%d", self._node_id, self.controller.epoch)
            self.controller.renounce()
            self._leader_check.stop()
            while self._parked:
                parked = self._parked.popleft()
                if parked.future is not None and not parked.future.done():
                    parked.future.set_result(self._not_controller())
            self._catch_up()
        self._maybe_claim()

    def on_voters_changed(self, voters: VoterSet) -> None:
        """Feature levels depend on what those who vote can do."""
        self.controller.voter_ids = tuple(voters.ids)
        logger.info("node=%d voters=%s", self._node_id, voters)

    def on_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        """The leader sent a snapshot: the log up to its end is not here."""
        required(self._loader, "the controller loop has no node yet").load(snapshot)

    # Inside.

    def _on_loaded(self, image: ClusterImage) -> None:
        self.controller.note_committed(image)
        required(self._snapshotter, "attached with the node").note_loaded(image)
        self._catch_up()

    def _note_committed(self, image: ClusterImage) -> None:
        self.controller.note_committed(image)
        required(self._snapshotter, "attached with the node").on_image(image)

    @property
    def _node_id(self) -> int:
        return self.node.config.node_id

    def _note_leader(self) -> None:
        # A voter that returns to a dead leader for want of votes has not got it back.
        if self.leader_id != NO_NODE:
            self._leaderless_since_ms = None
        elif self._leaderless_since_ms is None:
            self._leaderless_since_ms = monotonic_ms()

    def _not_controller(self) -> Rejected:
        leader_id = self.leader_id
        leader = f"the leader is {leader_id}" if leader_id >= 0 else "no leader is known"
        return Rejected(
            ErrorCode.NOT_CONTROLLER, f"node {self._node_id} is not the active controller; {leader}"
        )

    def _catch_up(self) -> None:
        """Apply committed records in chunks, giving way to the loop in between."""
        if self._is_catching_up or required(self._loader, "attached with the node").is_loading:
            return
        controller = self.controller
        if controller.committed.end_offset < self._high_watermark:
            _, image = advance(self.node.log, controller.committed, self._high_watermark)
            self._note_committed(image)
        if controller.committed.end_offset < self._high_watermark:
            self._is_catching_up = True
            self._loop.call_soon(self._continue_catch_up)
        else:
            self._maybe_claim()

    def _continue_catch_up(self) -> None:
        self._is_catching_up = False
        try:
            self._catch_up()
        except Exception as error:  # noqa: BLE001 - an unreadable record: the node must exit
            self._on_failure(error)

    def _maybe_claim(self) -> None:
        change = self._leadership
        if (
            change is None
            or change.leader_id != self._node_id
            or self.controller.is_active
            or self._high_watermark <= change.epoch_start_offset
            or required(self._loader, "attached with the node").is_loading
            or self.controller.committed.end_offset < self._high_watermark
        ):
            return
        self.controller.voter_ids = tuple(self.node.core.voter_set.ids)
        self.controller.claim(change.epoch, self.node.next_offset, monotonic_ms())
        self._append(self.controller.begin())
        logger.info("node=%d claims epoch=%d", self._node_id, change.epoch)
        self._arm_session_timer()
        self._leader_check.start(self.controller.leader_check_interval_ms)

    def _check_leaders(self, at: Sweep | None) -> Sweep | None:
        if not self.controller.is_active:
            return None
        try:
            self.controller.skip_to(self.node.next_offset)
            decision = self.controller.sweep_leaders(at)
            self._append(decision.records)
        except Exception as error:  # noqa: BLE001 - as in `submit`: the node must exit
            self._on_failure(error)
            return None
        if decision.records:
            logger.info("elections=%d by the periodic check", len(decision.records))
        return decision.reply

    def _append(self, records: Sequence[Record]) -> None:
        level = self.controller.metadata_version
        for start in range(0, len(records), RECORDS_PER_BATCH_MAX):
            values = encode_records(records[start : start + RECORDS_PER_BATCH_MAX], level)
            batch = build_batch([(None, value) for value in values], timestamp_ms=wall_ms())
            self.node.propose(batch, len(values))
        if records:
            image = self.controller.speculative
            invariant(
                image is not None and image.end_offset == self.node.next_offset,
                "the speculative image and the log have parted",
            )
            self._parked.append(_Parked(self.node.next_offset, image, None, None))

    def _park(self, end_offset: int, reply: Reply, future: asyncio.Future[Reply]) -> None:
        last = self._parked[-1] if self._parked else None
        if last is not None and last.future is None and last.end_offset == end_offset:
            last.reply, last.future = reply, future
        else:
            self._parked.append(_Parked(end_offset, None, reply, future))

    def _arm_session_timer(self) -> None:
        deadline_ms = self.controller.sessions.next_deadline_ms()
        if deadline_ms is None or not self.controller.is_active:
            return
        if self._session_timer is not None:
            if self._session_timer_ms <= deadline_ms:
                return  # it fires in time and looks again
            self._session_timer.cancel()
        self._session_timer_ms = deadline_ms
        delay_s = max(deadline_ms - monotonic_ms(), 0) / 1000
        self._session_timer = self._loop.call_later(delay_s, self._on_session_timer)

    def _on_session_timer(self) -> None:
        self._session_timer = None
        if not self.controller.is_active:
            return
        now_ms = monotonic_ms()
        self.controller.skip_to(self.node.next_offset)
        self.controller.sessions.on_timer(self._session_timer_ms, now_ms)
        while (fenced := self.controller.expire_session(now_ms)) is not None:
            broker_id, cause, records = fenced
            logger.warning("broker=%d is fenced: %s", broker_id, cause)
            self._append(records)
        self._arm_session_timer()
