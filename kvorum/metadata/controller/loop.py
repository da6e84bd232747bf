"""The driver of the controller: takes requests, appends records, sends replies once they are
committed.

Walk 1 passes through this module. The rules are in `core.quorum_controller`; this
module has futures, one timer, snapshots and the node. No code awaits while the state changes, so
the event loop is the controller's single owner.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from kvorum.metadata.controller.core.controller import Controller, DecisionFailed, Reply, Request
from kvorum.metadata.controller.core.quorum_controller import QuorumController
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.snapshotter import ImageLoader, Snapshotter, load_newest
from kvorum.raft.core.states import Follower
from kvorum.raft.model.effects import LeaderChanged
from kvorum.raft.model.values import OffsetAndEpoch
from kvorum.raft.model.voters import VoterSet
from kvorum.raft.node.raft_node import RaftNode
from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.errors import ErrorCode, Rejected, invariant, required
from kvorum.runtime.ids import NO_NODE
from kvorum.storage.format.batch import build_batch
from kvorum.storage.log.log import Log

logger = logging.getLogger("kvorum.controller")


class ControllerLoop:
    """Runs a Controller over a RaftNode; it is the node's `RaftListener`."""

    def __init__(
        self, controller: Controller, *, on_failure: Callable[[BaseException], None]
    ) -> None:
        self.controller = controller
        self.on_image: Callable[[ClusterImage], object] = lambda _: None
        """Is called with every committed image."""
        self._on_failure = on_failure
        self._node: RaftNode | None = None
        self._snapshotter: Snapshotter | None = None
        self._loader: ImageLoader | None = None
        self._loop = asyncio.get_running_loop()
        self._core = QuorumController(controller, _Port(self))
        self._leaderless_since_ms: int | None = monotonic_ms()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def attach(self, node: RaftNode) -> None:
        """Set the node; once, before the node starts."""
        self._node = node
        self._snapshotter = Snapshotter(node)
        self._loader = ImageLoader(node, on_loaded=self._on_loaded, on_failure=self._on_failure)

    async def load(self, snapshot: OffsetAndEpoch | None) -> None:
        """Load this node's newest snapshot; before the node starts."""
        if snapshot is not None:
            self._on_loaded(await load_newest(self.node, snapshot))

    @property
    def node(self) -> RaftNode:
        invariant(self._node is not None, "the controller loop has no node yet")
        return self._node  # type: ignore[return-value]

    @property
    def leader_id(self) -> int:
        """The quorum's leader; NO_NODE if this node knows none or has lost it."""
        core = self.node.core
        if isinstance(core.role, Follower) and core.role.is_leader_lost:
            return NO_NODE
        return core.leader_id

    @property
    def leaderless_ms(self) -> int:
        """Time since this node last knew a leader, in ms; 0 if it knows one."""
        self._note_leader()
        if self._leaderless_since_ms is None:
            return 0
        return monotonic_ms() - self._leaderless_since_ms

    async def submit(self, request: Request, timeout_ms: int) -> Reply:
        """Decide a request and wait until it is committed: see `QuorumController.submit`."""
        future: asyncio.Future[Reply] = self._loop.create_future()

        def on_reply(reply: Reply) -> None:
            # The request may have been cancelled.
            if not future.done():
                future.set_result(reply)

        is_active, began_s = self.controller.is_active, time.perf_counter()
        try:
            self._core.submit(request, on_reply, timeout_ms=timeout_ms, now_ms=monotonic_ms())
            if is_active:
                self.controller.metrics.decisions += 1
                self.controller.metrics.decision_s.observe(time.perf_counter() - began_s)
        except DecisionFailed as bug:
            self.controller.metrics.failed_decisions += 1
            logger.exception("node=%d refuses a request: %s", self.node.config.node_id, bug)
            return Rejected(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "the active controller could not decide this request; its log says why",
            )
        except Exception as error:
            # A bug of ours: the speculative image can no longer be trusted.
            self._on_failure(error)
            raise
        self._arm_timer()
        return await future

    def stream_began(self, broker_id: int, broker_epoch: int) -> int:
        """A new heartbeat stream of this broker epoch has its first heartbeat; returns the stream's
        serial number."""
        return self._core.stream_began(broker_id, broker_epoch)

    def stream_broke(self, broker_id: int, broker_epoch: int, serial: int) -> None:
        """A broker's heartbeat stream ended."""
        self._core.stream_broke(broker_id, broker_epoch, serial, monotonic_ms())
        self._arm_timer()

    # RaftListener.

    def on_committed(self, high_watermark: int) -> None:
        self._note_leader()
        self._core.on_committed(high_watermark, monotonic_ms())
        self._arm_timer()

    def on_leader_changed(self, change: LeaderChanged) -> None:
        self._note_leader()
        self._core.on_leader_changed(change, monotonic_ms())
        self._arm_timer()

    def on_voters_changed(self, voters: VoterSet) -> None:
        self._core.on_voters_changed(voters.ids)
        logger.info("node=%d voters=%s", self.node.config.node_id, voters)

    def on_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        """The leader sent a snapshot: this node lacks the log before the snapshot's end."""
        self._core.on_loading()
        required(self._loader, "the controller loop has no node yet").load(snapshot)

    # Calls from the core to its driver.

    def note_image(self, image: ClusterImage) -> None:
        """The committed image has advanced."""
        required(self._snapshotter, "attached with the node").on_image(image)
        self.on_image(image)

    # Helpers.

    def _on_loaded(self, image: ClusterImage) -> None:
        required(self._snapshotter, "attached with the node").note_loaded(image)
        self.on_image(image)
        self._core.on_loaded(image, monotonic_ms())
        self._arm_timer()

    def _note_leader(self) -> None:
        # A voter that follows a dead leader again, because it got no votes, still has no leader.
        if self.leader_id != NO_NODE:
            self._leaderless_since_ms = None
        elif self._leaderless_since_ms is None:
            self._leaderless_since_ms = monotonic_ms()

    def _arm_timer(self) -> None:
        deadline_ms = self._core.next_deadline_ms()
        if deadline_ms is None:
            return
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return  # it fires in time, and this is called again
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_s = max(deadline_ms - monotonic_ms(), 0) / 1000
        self._timer = self._loop.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        try:
            self._core.on_timer(monotonic_ms())
        except Exception as error:  # noqa: BLE001 - a bug or an unreadable record: the node exits
            self._on_failure(error)
            return
        self._arm_timer()


class _Port:
    """Implements the core's `ControllerPort` over the loop's node."""

    __slots__ = ("_loop",)

    def __init__(self, loop: ControllerLoop) -> None:
        self._loop = loop

    @property
    def node_id(self) -> int:
        return self._loop.node.config.node_id

    @property
    def next_offset(self) -> int:
        return self._loop.node.next_offset

    @property
    def log(self) -> Log:
        return self._loop.node.log

    @property
    def leader_id(self) -> int:
        return self._loop.leader_id

    @property
    def voter_ids(self) -> Sequence[int]:
        return self._loop.node.core.voter_set.ids

    @property
    def wall_ms(self) -> int:
        return self._loop.node.clock.wall_ms()

    def propose(self, values: Sequence[bytes]) -> None:
        node = self._loop.node
        batch = build_batch([(None, value) for value in values], timestamp_ms=self.wall_ms)
        node.propose(batch, len(values))

    def on_image(self, image: ClusterImage) -> None:
        self._loop.note_image(image)

    def note(self, text: str, *, is_warning: bool = False) -> None:
        logger.log(logging.WARNING if is_warning else logging.INFO, "%s", text)
