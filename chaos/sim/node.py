"""One simulated node: the real core over the real log, on a disk in memory.

Does what `raft.node` does, in virtual time: effects in order, the fsync taking a while.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from chaos.sim.disk import MemoryDisk
from raft.core import RaftCore
from raft.effects import (
    AppendFetched,
    AppendLeaderChange,
    AppendProposed,
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
from raft.events import Event, LogFlushed, Propose, Tick
from raft.model import RaftConfig
from raft.replica_log import ReplicaLog
from raft.vote_store import VoteStore
from runtime.errors import required
from storage.batch import build_batch, iter_headers, iter_records
from storage.log import Log, LogConfig

if TYPE_CHECKING:
    from chaos.sim.quorum import QuorumWorld

DIRECTORY = "/node/__cluster_metadata-0"
SEGMENT_BYTES = 1_500
"""Small, so that every run rolls segments."""

Entry = tuple[int, bytes]
"""Epoch and value of one record; the value of a control record is empty."""


class SimNode:
    """A node that may crash and come back. `entries` mirrors its log, for the checks."""

    def __init__(self, world: QuorumWorld, config: RaftConfig, rng: random.Random) -> None:
        self.world = world
        self.config = config
        self.rng = rng
        self.disk = MemoryDisk(rng)
        self.incarnation = 0
        self.is_up = False
        self.is_paused = False
        self.entries: list[Entry] = []
        self.durable_end_offset = 0
        self._held: list[Callable[[], None]] = []
        self._core: RaftCore | None = None
        self._replica_log: ReplicaLog | None = None
        self._flush_wanted: FlushLog | None = None
        self._is_flushing = False
        self._timer_at_ms = -1

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def is_voter(self) -> bool:
        return self.node_id in self.config.voters

    @property
    def core(self) -> RaftCore:
        return required(self._core, f"node {self.node_id} is down")

    @property
    def replica_log(self) -> ReplicaLog:
        return required(self._replica_log, f"node {self.node_id} is down")

    @property
    def is_leader(self) -> bool:
        return self.is_up and self.core.is_leader

    def start(self) -> None:
        """Recover from the disk and take part."""
        self.incarnation += 1
        self.disk.make_dirs(DIRECTORY)
        for parent in ("/", "/node"):  # a folder whose name is not on disk takes its files along
            self.disk.sync_dir(parent)
        config = LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=-1, retention_bytes=-1)
        log = Log.open(self.disk, DIRECTORY, config, now_ms=self.world.now_ms)
        log.flush()
        self._replica_log = ReplicaLog(log, VoteStore(self.disk, DIRECTORY))
        self.entries = _entries_of(log)
        self.durable_end_offset = log.end_offset
        self._flush_wanted, self._is_flushing, self._timer_at_ms = None, False, -1
        self.is_up, self.is_paused, self._held = True, False, []
        self._core = RaftCore(
            self.config,
            vote_state=self.replica_log.vote_store.load(),
            log=self.replica_log.tail(),
            rng=self.rng,
            now_ms=self.world.now_ms,
        )
        self.world.checks.on_vote_state(self, self.replica_log.vote_store.load())
        self.deliver(Tick())

    def crash(self) -> None:
        """Lose the process and whatever the disk had not synced."""
        self.is_up = False
        self._core = None
        self._replica_log = None
        self.disk.crash()

    def pause(self) -> None:
        """Stand still, connections up (SIGSTOP)."""
        self.is_paused = True

    def resume(self) -> None:
        """Go on with what came in meanwhile."""
        self.is_paused = False
        held, self._held = self._held, []
        for call in held:
            call()

    def deliver(self, event: Event) -> None:
        """Let an event happen now, or once the node goes on."""
        if not self.is_up:
            return
        if self.is_paused:
            self._held.append(lambda: self.deliver(event))
            return
        for effect in self.core.step(event, self.world.now_ms):
            self._carry_out(effect)
        self._arm_timer()
        self.world.checks.after_event(self)

    def propose(self, value: bytes) -> int:
        """Append a value as leader; its offset."""
        offset = self.core.log.end_offset
        batch = build_batch([(None, value)], timestamp_ms=self.world.now_ms)
        self.deliver(Propose((batch,), (1,)))
        return offset

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case ReplyWithRecords():
                response = self.replica_log.fetch_response(effect)
                self.world.reply(self, effect.token, response)
            case Reply(token, response):
                self.world.reply(self, token, response)
            case SendRequest(receiver_id, correlation_id, request):
                self.world.send(self, receiver_id, correlation_id, request)
            case FlushLog():
                self._flush_wanted = effect
                self._flush()
            case HighWatermarkAdvanced(high_watermark):
                self.world.checks.on_committed(self, high_watermark)
            case LeaderChanged():
                self.world.checks.on_leader_changed(self, effect)
            case Noted(text):
                self.world.note(self, text)
            case PersistVoteState(state):
                self.replica_log.carry_out(effect, wall_ms=self.world.now_ms)
                self.world.checks.on_vote_state(self, state)
            case AppendProposed() | AppendLeaderChange() | AppendFetched() | TruncateLog():
                self.replica_log.carry_out(effect, wall_ms=self.world.now_ms)
                self._mirror(effect)

    def _mirror(self, effect: Effect) -> None:
        match effect:
            case AppendProposed(_, epoch, batches):
                for batch in batches:
                    self.entries += [(epoch, value) for _, value in _values(bytes(batch))]
            case AppendLeaderChange():
                self.entries.append((effect.epoch, b""))
            case AppendFetched(_, records):
                self.entries += _values(records)
            case TruncateLog(end_offset):
                del self.entries[end_offset:]
                self.durable_end_offset = min(self.durable_end_offset, end_offset)

    def _flush(self) -> None:
        if self._is_flushing or self._flush_wanted is None:
            return
        self._is_flushing = True
        wanted, self._flush_wanted = self._flush_wanted, None
        ticket = self.replica_log.log.begin_flush()
        incarnation = self.incarnation

        def done() -> None:
            if not self.is_up or self.incarnation != incarnation:
                return
            ticket.run()
            self.replica_log.log.complete_flush(ticket)
            self._is_flushing = False
            if wanted.generation == self.core.log.generation:
                self.durable_end_offset = max(self.durable_end_offset, ticket.end_offset)
            self.deliver(LogFlushed(ticket.end_offset, wanted.generation))
            if self.is_up:
                self._flush()

        self.world.after(self.world.fsync_ms(self), done)

    def _arm_timer(self) -> None:
        deadline_ms = self.core.next_deadline_ms()
        if deadline_ms is None or deadline_ms == self._timer_at_ms:
            return
        self._timer_at_ms = deadline_ms
        incarnation = self.incarnation

        def fire() -> None:
            if self.incarnation == incarnation and self._timer_at_ms == deadline_ms:
                self._timer_at_ms = -1
                self.deliver(Tick())

        self.world.after(max(deadline_ms - self.world.now_ms, 0), fire)

    def summary(self) -> str:
        return self.core.summary() if self.is_up else f"node={self.node_id} down"


def _values(records: bytes) -> list[Entry]:
    entries: list[Entry] = []
    for position, header in iter_headers(records):
        for record in iter_records(records, position, header):
            value = b"" if header.is_control else record.value or b""
            entries.append((header.leader_epoch, value))
    return entries


def _entries_of(log: Log) -> list[Entry]:
    entries: list[Entry] = []
    offset = log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, bytes_max=1 << 20, end_offset=log.end_offset).read()
        entries += _values(data)
        offset = max((h.end_offset for _, h in iter_headers(data)), default=log.end_offset)
    return entries
