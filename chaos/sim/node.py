"""One simulated node: the real core over the real log, on a disk in memory.

Does what `raft.node` does, in virtual time: effects in order, the fsync taking a while, a failed
disk ending the process. `start`, `stop` and `_carry_out` are the only places where a process
begins, ends and acts.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from chaos.sim.clock import RATE_EXACT, Alarm, LocalClock
from chaos.sim.disk import MemoryDisk, PowerCut
from chaos.sim.flusher import Flusher
from chaos.sim.mirror import Mirror, log_entries, next_digest
from raft.core import RaftCore
from raft.effects import (
    AppendFetched,
    AppendLeaderChange,
    AppendProposed,
    AppendVoters,
    Effect,
    FlushLog,
    HighWatermarkAdvanced,
    LeaderChanged,
    Noted,
    PersistVoteState,
    Reply,
    ReplyWithRecords,
    SendRequest,
    TruncateLog,
)
from raft.events import Event, Propose, Tick
from raft.model import RaftConfig, VoteState
from raft.replica_log import ReplicaLog
from raft.vote_store import VoteStore
from runtime.errors import InvariantViolated, required
from storage.batch import build_batch
from storage.log import Log, LogConfig

if TYPE_CHECKING:
    from chaos.sim.quorum import QuorumWorld

DIRECTORY = "/node/__cluster_metadata-0"
SEGMENT_BYTES = 3_000
"""Small, so that every run rolls segments."""

LOG_CONFIG = LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=-1, retention_bytes=-1)

RESTART_MS = 300
"""How long a node stays down that stopped by itself, as a supervisor would have it."""

LOCAL_START_MS_MAX = 1_000_000
"""A machine's clock counts from some moment of its own."""


class SimNode:
    """A node that may stop and come back.

    mirror: its log. durable_end_offset: everything below must survive a power cut.
    saved_vote: as last saved; saving_vote: one being saved when the node stopped.
    is_dark: down with its whole machine, so that peers are not even refused.
    is_removed: down for good; its disk lost what it had vouched for.
    """

    def __init__(self, world: QuorumWorld, config: RaftConfig, rng: random.Random) -> None:
        self.world = world
        self.config = config
        self.rng = rng
        self.disk = MemoryDisk(rng)
        drift = world.scenario.drift
        rate = RATE_EXACT + rng.randint(-drift, drift)
        self.clock = LocalClock(now_ms=0, local_ms=rng.randrange(LOCAL_START_MS_MAX), rate=rate)
        self.incarnation = 0
        self.is_up = self.is_paused = self.is_dark = self.is_removed = False
        self.mirror = Mirror()
        self.durable_end_offset = 0
        self.saved_vote = VoteState()
        self.saving_vote: VoteState | None = None
        self.applied_end_offset = 0
        self.applied_digest = 0
        self._held: list[Callable[[], None]] = []
        self._core: RaftCore | None = None
        self._replica_log: ReplicaLog | None = None
        self._flusher = Flusher(self)
        self._alarm = Alarm(world.timeline, self.clock, self._on_alarm)

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def core(self) -> RaftCore:
        return required(self._core, "the node is down")

    @property
    def replica_log(self) -> ReplicaLog:
        return required(self._replica_log, "the node is down")

    @property
    def is_leader(self) -> bool:
        return self._core is not None and self._core.is_leader

    @property
    def local_ms(self) -> int:
        return self.clock.local_ms(self.world.timeline.now_ms)

    def summary(self) -> str:
        if self._core is not None:
            return self._core.summary()
        return f"node={self.node_id} {'removed' if self.is_removed else 'down'}"

    # A process begins and ends.

    def start(self) -> None:
        """Recover from the disk and take part; does nothing if up already or removed."""
        if self.is_up or self.is_removed:
            return
        if self.is_dark:
            # What peers still hold open to the machine that went is reset by the one that came.
            self.world.network.break_connections(self.node_id)
        self.incarnation += 1
        self.is_up, self.is_paused, self.is_dark = True, False, False
        self._flusher = Flusher(self)
        self.applied_end_offset = self.applied_digest = 0
        try:
            self._recover()
        except (OSError, PowerCut) as error:
            self.die(error)
            return
        self.deliver(Tick())

    def stop(self, *, is_power_cut: bool) -> None:
        """Lose the process, and with the power whatever the disk had not synced."""
        self.is_up, self.is_dark = False, is_power_cut
        self._core = self._replica_log = None
        self._held.clear()
        self._alarm.cancel()
        if is_power_cut:
            self.disk.crash()
        else:
            self.disk.kill_process()
        self.world.on_stopped(self)

    def lose_disk(self) -> None:
        """Have an empty disk from now on, while down. Only for a node that vouched for nothing."""
        self.disk = MemoryDisk(self.rng)
        self.mirror, self.durable_end_offset = Mirror(), 0
        self.saved_vote, self.saving_vote = VoteState(), None
        self.world.checks.forget(self)

    def pause(self) -> None:
        """Stand still, connections up (SIGSTOP)."""
        self.is_paused = True

    def resume(self) -> None:
        """Go on with what came in meanwhile."""
        self.is_paused = False
        held, self._held = self._held, []
        incarnation = self.incarnation
        for call in held:
            if self.is_up and self.incarnation == incarnation:
                call()

    def _recover(self) -> None:
        self.disk.make_dirs(DIRECTORY)
        for parent in ("/", "/node"):  # a folder whose name is not on disk takes its files along
            self.disk.sync_dir(parent)
        log = Log.open(self.disk, DIRECTORY, LOG_CONFIG, now_ms=self.local_ms)
        log.flush()
        replica_log = ReplicaLog(log, VoteStore(self.disk, DIRECTORY))
        vote_state = replica_log.vote_store.load()
        mirror = Mirror(log_entries(log, log.start_offset, log.end_offset))
        self.world.checks.on_recovered(self, mirror, vote_state)
        self.mirror, self.durable_end_offset = mirror, mirror.end_offset
        self.saved_vote, self.saving_vote = vote_state, None
        self._replica_log = replica_log
        self._core = RaftCore(
            self.config,
            vote_state=vote_state,
            log=replica_log.tail(),
            rng=self.rng,
            now_ms=self.local_ms,
        )

    def die(self, error: OSError | PowerCut) -> None:
        """The driver's rule: a disk that fails ends the process, which recovers from what is there.

        After a failed fsync the kernel may have dropped what it could not write.
        """
        self.world.note(self, f"dies of {error}")
        is_full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        self.stop(is_power_cut=not is_full)
        self.world.start_later(self, RESTART_MS)

    # Events in.

    def deliver(self, event: Event) -> None:
        """Let an event happen now, or once the node goes on."""
        if not self.is_up:
            return
        if self.is_paused:
            self._held.append(lambda: self.deliver(event))
            return
        self._step(event)

    def submit(self, call: Callable[[], None]) -> None:
        """Let a client's call happen now, or once the node goes on; never if it stops before."""
        if self.is_paused:
            self._held.append(call)
        elif self.is_up:
            call()

    def propose(self, values: Sequence[bytes]) -> int:
        """Append values as leader, together; the offset of the first."""
        offset = self.core.log.end_offset
        batches = [build_batch([(None, value)], timestamp_ms=self.local_ms) for value in values]
        self._step(Propose(tuple(batches), (1,) * len(batches)))
        return offset

    def on_clock_changed(self) -> None:
        """The clock jumped or runs at another rate: wake at the right time."""
        self._alarm.cancel()
        if self.is_up:
            self._set_alarm()

    def _step(self, event: Event) -> None:
        self.world.timeline.fold(self.node_id)
        try:
            for effect in self.core.step(event, self.local_ms):
                self._carry_out(effect)
        except (OSError, PowerCut) as error:
            self.die(error)
            return
        self._set_alarm()
        self.world.checks.after_event(self)

    def _set_alarm(self) -> None:
        deadline_ms = self.core.next_deadline_ms()
        if deadline_ms is not None:
            self._alarm.set(deadline_ms)

    def _on_alarm(self) -> None:
        deadline_ms = self.core.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self.local_ms:
            self.deliver(Tick())
        else:
            self._set_alarm()

    # Effects out.

    def _carry_out(self, effect: Effect) -> None:
        world = self.world
        match effect:
            case ReplyWithRecords():
                response = self.replica_log.fetch_response(effect)
                world.network.reply(self, effect.token, response)
            case Reply(token, response):
                world.network.reply(self, token, response)
            case SendRequest(receiver_id, correlation_id, request):
                world.network.send(self, receiver_id, correlation_id, request)
            case FlushLog():
                self._flusher.flush(effect)
            case HighWatermarkAdvanced(high_watermark):
                world.checks.on_committed(self, high_watermark)
                self._apply(high_watermark)
                world.clients.on_committed(self, high_watermark)
            case LeaderChanged():
                world.checks.on_leader_changed(self, effect)
                world.clients.on_leader_changed(self)
            case Noted(text):
                world.note(self, text)
            case PersistVoteState(state):
                self.saving_vote = state
                self.replica_log.carry_out(effect, wall_ms=self.local_ms)
                self.saved_vote, self.saving_vote = state, None
                world.checks.on_vote_state(self, state)
            case (
                AppendProposed()
                | AppendLeaderChange()
                | AppendVoters()
                | AppendFetched()
                | TruncateLog()
            ):
                if isinstance(effect, TruncateLog):
                    # What is being cut is no longer vouched for, whether or not the cut succeeds.
                    self.durable_end_offset = min(self.durable_end_offset, effect.end_offset)
                self.replica_log.carry_out(effect, wall_ms=self.local_ms)
                self.mirror.carry_out(effect)
                world.checks.on_log_changed(self)
            case _:
                raise InvariantViolated(f"the simulator cannot carry out {effect}")

    def _apply(self, high_watermark: int) -> None:
        """The state machine: a digest of what the log really holds, read back from its bytes."""
        log = self.replica_log.log
        digest = self.applied_digest
        for epoch, value in log_entries(log, self.applied_end_offset, high_watermark):
            digest = next_digest(digest, epoch, value)
        self.applied_end_offset, self.applied_digest = high_watermark, digest
        self.world.checks.on_applied(self)
