"""One simulated node: the real core over the real log, on a disk in memory.

It does the work of `raft.node.raft_node` in virtual time: effects are carried out in order, disk
work has a duration, a failed disk ends the process. A process begins only in `start`, ends only in
`stop` and acts only in `_carry_out`.
"""

from __future__ import annotations

import dataclasses
import errno
import random
from collections.abc import Callable, Sequence

from kvorum.chaos.sim.kernel.checks import check
from kvorum.chaos.sim.kernel.clock import Alarm, drawn_clock
from kvorum.chaos.sim.quorum.disk_effects import carry_out_log_effect, carry_out_snapshot_effect
from kvorum.chaos.sim.quorum.flusher import Flusher
from kvorum.chaos.sim.quorum.model.mirror import Mirror
from kvorum.chaos.sim.quorum.model.recovery import empty_disk, open_node
from kvorum.chaos.sim.quorum.model.state import ListState
from kvorum.chaos.sim.quorum.process import NodeMachine, ProcessWorld
from kvorum.chaos.sim.quorum.snapshot_worker import SnapshotWorker
from kvorum.raft.core.raft_core import RaftCore
from kvorum.raft.model.effects import (
    AppendFetched,
    AppendLeaderChange,
    AppendProposed,
    AppendVoters,
    Effect,
    FlushLog,
    HighWatermarkAdvanced,
    LeaderChanged,
    PersistVoteState,
    QuorumAlert,
    Reply,
    ReplyWithRecords,
    SendRequest,
    TimelineEntry,
    TruncateLog,
)
from kvorum.raft.model.events import Event, Propose, RequestReceived, Tick
from kvorum.raft.model.messages import VoterChangeRequest
from kvorum.raft.model.values import RaftConfig, VoteState
from kvorum.raft.node.replica_log import ReplicaLog
from kvorum.raft.node.snapshot_files import SnapshotFiles
from kvorum.runtime.errors import invariant, required
from kvorum.runtime.ids import new_uuid
from kvorum.runtime.memory_disk import Killed, PowerCut
from kvorum.storage.format.batch import build_batch

RESTART_MS = 300
"""Time until a node that exited by itself is restarted, as by a supervisor."""


class SimNode:
    """A node that may stop and start again.

    - mirror: its log.
    - durable_end_offset: records below it must survive a power cut.
    - saved_vote: the vote state last saved.
    - saving_vote: one whose save was under way when the node stopped.
    - is_dark: the whole machine is down, so that connections to it are not even refused.
    - is_removed: down for good; its disk lost records that it had acknowledged.
    - has_decayed: bits of its disk were flipped, so a snapshot on it may be damaged.
    - machine_of: makes the state machine of a new process.
    - on_stopped: called when a process has ended.
    """

    def __init__(
        self,
        world: ProcessWorld,
        config: RaftConfig,
        rng: random.Random,
        *,
        machine_of: Callable[[SimNode, ListState], NodeMachine],
        on_stopped: Callable[[SimNode], None],
    ) -> None:
        self.world = world
        self._machine_of = machine_of
        self._on_stopped = on_stopped
        self.config = config
        self.rng = rng
        self.disk = empty_disk(rng)
        self.clock = drawn_clock(rng, world.scenario.drift)
        self.incarnation = 0
        self.is_up = self.is_paused = self.is_dark = self.is_removed = False
        self.has_decayed = False
        self.mirror = Mirror()
        self.durable_end_offset = 0
        self.saved_vote = VoteState()
        self.saving_vote: VoteState | None = None
        self._held: list[Callable[[], None]] = []
        self._core: RaftCore | None = None
        self._replica_log: ReplicaLog | None = None
        self._files: SnapshotFiles | None = None
        self._flusher = Flusher(self)
        self.worker = self._new_worker()
        self.machine: NodeMachine = machine_of(self, ListState())
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
    def files(self) -> SnapshotFiles:
        return required(self._files, "the node is down")

    @property
    def is_leader(self) -> bool:
        return self._core is not None and self._core.is_leader

    @property
    def local_ms(self) -> int:
        return self.clock.local_ms(self.world.timeline.now_ms)

    @property
    def applied(self) -> ListState:
        """State of the state machine; while the node is down, that of the last process."""
        return self.machine.state

    def summary(self) -> str:
        if self._core is not None:
            return f"{self._core.summary()} start={self._core.log.start_offset}"
        return f"node={self.node_id} {'removed' if self.is_removed else 'down'}"

    def _new_worker(self) -> SnapshotWorker:
        world = self.world
        return SnapshotWorker(self, world.timeline, disk_call_ms=world.disk_call_ms, die=self.die)

    # Start and stop of a process.

    def start_later(self, delay_ms: int) -> None:
        """Start after delay_ms, unless a process has been started by then."""
        incarnation = self.incarnation

        def start() -> None:
            if self.incarnation == incarnation:
                self.start()

        self.world.timeline.after(delay_ms, start)

    def start(self) -> None:
        """Recover from the disk and join the quorum; no effect if the node is up or removed."""
        if self.is_up or self.is_removed:
            return
        if self.is_dark:
            # The new process resets connections that peers still have open to the old machine.
            self.world.network.break_connections(self.node_id)
        self.incarnation += 1
        self.is_up, self.is_paused, self.is_dark = True, False, False
        self._flusher = Flusher(self)
        self.worker = self._new_worker()
        try:
            self._recover()
        except (OSError, PowerCut) as error:
            self.die(error)
            return
        self.deliver(Tick())

    def stop(self, *, is_power_cut: bool) -> None:
        """End the process; in a power cut the disk also loses its unsynced bytes."""
        self.is_up, self.is_dark = False, is_power_cut
        self._core = self._replica_log = self._files = None
        self._held.clear()
        self.machine.stop()
        self.worker.drop()
        self._alarm.cancel()
        if is_power_cut:
            self.disk.crash()
        else:
            self.disk.kill_process()
        self._on_stopped(self)

    def lose_disk(self) -> None:
        """Replace the disk of a stopped node by an empty one with another directory id."""
        invariant(not self.is_up, "a disk is changed while its node is down")
        self.world.checks.forget(self)
        self.disk = empty_disk(self.rng)
        self.config = dataclasses.replace(self.config, directory_id=new_uuid(self.rng))
        self.mirror = Mirror(voters=self.world.disk_settings.static_voters)
        self.durable_end_offset = 0
        self.saved_vote, self.saving_vote = VoteState(), None
        self.has_decayed = False

    def move_listener(self) -> None:
        """Listen on another port from the next start on."""
        host, port = required(self.config.address, "only controllers have a listener")
        self.config = dataclasses.replace(self.config, address=(host, port + 1))

    def pause(self) -> None:
        """Pause the process; its connections stay open (SIGSTOP)."""
        self.is_paused = True

    def resume(self) -> None:
        """Continue, first with the events that arrived during the pause."""
        self.is_paused = False
        held, self._held = self._held, []
        incarnation = self.incarnation
        for call in held:
            if self.is_up and self.incarnation == incarnation:
                call()

    def _recover(self) -> None:
        opened = open_node(self.disk, self.world.disk_settings, now_ms=self.local_ms)
        replica_log = opened.metadata.replica_log
        vote_state = replica_log.vote_store.load()
        self.world.snapshot_checks.on_opened(self, opened)
        self.world.checks.on_recovered(self, opened.mirror, vote_state)
        self.mirror = opened.mirror
        self.durable_end_offset = opened.mirror.end_offset
        self.saved_vote, self.saving_vote = vote_state, None
        self._replica_log, self._files = replica_log, opened.metadata.files
        self._core = RaftCore(
            self.config,
            vote_state=vote_state,
            log=replica_log.tail(),
            rng=self.rng,
            now_ms=self.local_ms,
        )
        self.machine = self._machine_of(self, opened.state)
        self.world.checks.on_applied(self)
        self.world.checks.on_log_changed(self)

    def die(self, error: OSError | PowerCut) -> None:
        """End the process after a failed disk call, as the driver does; the next process recovers
        from the disk.

        After a failed fsync the kernel may have dropped the bytes that it could not write.
        """
        if isinstance(error, OSError) and error.errno not in (errno.EIO, errno.ENOSPC):
            raise error  # not a failed disk: the code made an invalid disk call
        self.world.note(self, f"dies of {error}")
        is_full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        is_kill = isinstance(error, Killed)
        self.stop(is_power_cut=not is_full and not is_kill)
        self.start_later(RESTART_MS)

    # Incoming events.

    def deliver(self, event: Event) -> None:
        """Handle an event now, or when the paused node is resumed."""
        if not self.is_up:
            return
        if self.is_paused:
            self._held.append(lambda: self.deliver(event))
            return
        if isinstance(event, RequestReceived) and isinstance(event.request, VoterChangeRequest):
            self.machine.before_voter_change()
            if not self.is_up:
                return  # the disk failed
        self._step(event)

    def submit(self, call: Callable[[], None]) -> None:
        """Run a call now, or when the paused node is resumed; never if the node stops before."""
        if self.is_paused:
            self._held.append(call)
        elif self.is_up:
            call()

    def propose(self, values: Sequence[bytes]) -> int:
        """Append values as leader, in one batch; returns the offset of the first."""
        offset = self.core.log.end_offset
        batches = [build_batch([(None, value)], timestamp_ms=self.local_ms) for value in values]
        self._step(Propose(tuple(batches), (1,) * len(batches)))
        return offset

    def on_clock_changed(self) -> None:
        """The clock jumped or runs at another rate: set the alarm again."""
        self._alarm.cancel()
        if self.is_up:
            self._set_alarm()
            self.machine.on_clock_changed()

    def _step(self, event: Event) -> None:
        self.world.timeline.fold(self.node_id)
        try:
            for effect in self.core.step(event, self.local_ms):
                self._carry_out(effect)
            self.machine.after_event()
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

    # Outgoing effects.

    def _carry_out(self, effect: Effect) -> None:
        world = self.world
        match effect:
            case ReplyWithRecords():
                response = self.replica_log.fetch_response(effect)
                world.transport.reply(self.node_id, effect.token, response)
            case Reply(token, response):
                world.transport.reply(self.node_id, token, response)
            case SendRequest(receiver_id, correlation_id, request):
                world.transport.send(self, receiver_id, correlation_id, request)
            case FlushLog():
                self._flusher.flush(effect)
            case HighWatermarkAdvanced(high_watermark):
                world.checks.on_committed(self, high_watermark)
                self.machine.apply(high_watermark)
                world.clients.on_committed(self, high_watermark)
            case LeaderChanged():
                world.checks.on_leader_changed(self, effect)
                self.machine.on_leader_changed(effect)
                world.clients.on_leader_changed(self)
            case QuorumAlert(text):
                check(False, "NoQuorumAlert", f"node {self.node_id}: {text}")
            case TimelineEntry(text):
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
                carry_out_log_effect(self, effect)
            case _:
                carry_out_snapshot_effect(self, effect)
