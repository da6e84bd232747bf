"""The driver of one node of the quorum: waits, reads clocks, moves bytes, decides nothing.

Walk 3: events in, `RaftCore.step`, effects out in order. The log is flushed by a thread; one
fsync covers all that was appended before it began (group commit).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from typing import Protocol

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
from raft.events import Event, LogFlushed, Propose, Resign, Tick
from raft.model import RaftConfig
from raft.replica_log import ReplicaLog
from raft.transport import PeerAddress, RaftServicer, RaftTransport
from runtime.clock import monotonic_ms, wall_ms
from runtime.tasks import TaskGroup, Worker
from storage.flush import FlushTicket

logger = logging.getLogger("kvorum.raft")

PROPOSAL_BYTES_MAX = 8 << 20
"""Proposals gathered for one append; more wait for the next turn of the loop."""

HAND_OVER_TIMEOUT_MS = 200
"""How long a stopping leader waits for the voters to hear of it."""

TIMELINE_LINES = 1_000
"""Election timeline kept in memory."""


class RaftListener(Protocol):
    """The state machine above the log. Called on the loop; must not block."""

    def on_committed(self, high_watermark: int) -> None:
        """Everything below high_watermark is committed."""

    def on_leader_changed(self, change: LeaderChanged) -> None:
        """Another leader or epoch."""


class RaftNode:
    """One voter or observer of the metadata quorum."""

    def __init__(
        self,
        config: RaftConfig,
        replica_log: ReplicaLog,
        *,
        peer_address: PeerAddress,
        listener: RaftListener,
        on_failure: Callable[[BaseException], None],
        rng: random.Random,
    ) -> None:
        self.config = config
        self.replica_log = replica_log
        self.log = replica_log.log
        self.timeline: deque[str] = deque(maxlen=TIMELINE_LINES)
        self.servicer = RaftServicer(self._deliver)
        self._listener = listener
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._tasks = TaskGroup(on_failure)
        self._transport = RaftTransport(
            peer_address=peer_address,
            request_timeout_ms=config.request_timeout_ms,
            deliver=self._deliver,
            tasks=self._tasks,
        )
        self._flusher: Worker[None] = Worker(f"flush-{config.node_id}", self._loop)
        self._flush_wanted: FlushLog | None = None
        self._is_flushing = False
        self._events: deque[Event] = deque()
        self._is_stepping = False
        self._timer: asyncio.TimerHandle | None = None
        self._proposals: list[tuple[bytes | bytearray, int]] = []
        self._proposed_records = 0
        self._is_stopped = False
        self.core = RaftCore(
            config,
            vote_state=replica_log.vote_store.load(),
            log=replica_log.tail(),
            rng=rng,
            now_ms=monotonic_ms(),
        )

    # What the state machine uses.

    def start(self) -> None:
        """Begin to take part. The servicer must be reachable from now on."""
        self._deliver(Tick())

    @property
    def is_leader(self) -> bool:
        return self.core.is_leader

    @property
    def next_offset(self) -> int:
        """Offset that the next proposed record gets, while this node leads."""
        return self.core.log.end_offset + self._proposed_records

    def propose(self, batch: bytes | bytearray, record_count: int) -> int:
        """Append a batch as leader; the offset its first record gets.

        All proposals of one turn of the loop become one append, one wake-up of each follower
        and one fsync. They are committed when `on_committed` passes their last offset, or never
        if the leadership is lost first, which `on_leader_changed` tells.
        """
        base_offset = self.next_offset
        if not self._proposals:
            self._loop.call_soon(self._append_proposals)
        self._proposals.append((batch, record_count))
        self._proposed_records += record_count
        return base_offset

    def resign(self) -> None:
        """Hand leadership over, if this node has it."""
        self._deliver(Resign())

    async def stop(self) -> None:
        """Hand over, then end. The log is flushed; closing it is its owner's business."""
        if self.core.is_leader:
            self.resign()
            await self._transport.drain(HAND_OVER_TIMEOUT_MS)
        self._is_stopped = True
        self.servicer.stop()
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.stop()
        await self._transport.stop()
        self._flusher.stop()

    # Events in.

    def _deliver(self, event: Event) -> None:
        """Step the core; an event that arrives while it steps waits its turn."""
        if self._is_stopped:
            return
        self._events.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._events:
                for effect in self.core.step(self._events.popleft(), monotonic_ms()):
                    self._carry_out(effect)
        except Exception as error:  # noqa: BLE001 - a bug or a failed disk: the node must exit
            self._is_stopped = True
            self._on_failure(error)
            return
        finally:
            self._is_stepping = False
        self._arm_timer()

    def _arm_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self.core.next_deadline_ms()
        if deadline_ms is not None:
            delay_s = max(deadline_ms - monotonic_ms(), 0) / 1000
            self._timer = self._loop.call_later(delay_s, self._deliver, Tick())

    def _append_proposals(self) -> None:
        if not self.core.is_leader:
            self._proposals.clear()
            self._proposed_records = 0
            return
        size_bytes = 0
        taken = 0
        for batch, _ in self._proposals:
            size_bytes += len(batch)
            if taken and size_bytes > PROPOSAL_BYTES_MAX:
                break
            taken += 1
        now, self._proposals = self._proposals[:taken], self._proposals[taken:]
        self._proposed_records -= sum(count for _, count in now)
        if self._proposals:
            self._loop.call_soon(self._append_proposals)
        self._deliver(Propose(tuple(b for b, _ in now), tuple(c for _, c in now)))

    # Effects out.

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case ReplyWithRecords():
                self.servicer.reply(effect.token, self.replica_log.fetch_response(effect))
            case Reply(token, response):
                self.servicer.reply(token, response)
            case SendRequest(receiver_id, correlation_id, request):
                self._transport.send(receiver_id, correlation_id, request)
            case FlushLog():
                self._flush_wanted = effect
                self._flush()
            case HighWatermarkAdvanced(high_watermark):
                self._listener.on_committed(high_watermark)
            case LeaderChanged():
                self._listener.on_leader_changed(effect)
            case Noted(text):
                self.timeline.append(f"{wall_ms()} {text}")
                logger.info("node=%d %s", self.config.node_id, text)
            case (
                PersistVoteState()
                | AppendProposed()
                | AppendLeaderChange()
                | AppendFetched()
                | TruncateLog()
            ):
                self.replica_log.carry_out(effect, wall_ms=wall_ms())

    def _flush(self) -> None:
        if self._is_flushing or self._flush_wanted is None:
            return
        self._is_flushing = True
        wanted, self._flush_wanted = self._flush_wanted, None
        ticket = self.log.begin_flush()
        self._flusher.submit(
            ticket.run, lambda _, error: self._on_flushed(ticket, wanted.generation, error)
        )

    def _on_flushed(
        self, ticket: FlushTicket, generation: int, error: BaseException | None
    ) -> None:
        self._is_flushing = False
        if error is not None:
            # A failed fsync may have dropped the pages it could not write; trying again would
            # vouch for what is not on disk. The process ends and recovers from what is there.
            self._is_stopped = True
            self._on_failure(error)
            return
        self.log.complete_flush(ticket)
        self._deliver(LogFlushed(ticket.end_offset, generation))
        self._flush()
