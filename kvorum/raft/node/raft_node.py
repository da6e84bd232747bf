"""The driver of one node of the quorum: waits, reads clocks, moves bytes, decides nothing.

Walk 3: events in, `RaftCore.step`, effects out in order. One fsync covers all records that were
appended before it began (group commit); it runs in a thread unless the disk is quick
(`flush_pace`).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol

from kvorum.raft.core.raft_core import RaftCore
from kvorum.raft.model.effects import (
    AppendFetched,
    AppendLeaderChange,
    AppendProposed,
    AppendVoters,
    DropSnapshots,
    Effect,
    FinishSnapshot,
    FlushLog,
    HighWatermarkAdvanced,
    LeaderChanged,
    PersistVoteState,
    QuorumAlert,
    ReplaceLog,
    Reply,
    ReplyWithRecords,
    ReplyWithSnapshot,
    SendRequest,
    TimelineEntry,
    TruncateLog,
    WriteSnapshotChunk,
)
from kvorum.raft.model.events import (
    Event,
    LogFlushed,
    Propose,
    RequestReceived,
    Resign,
    ResponseReceived,
    SnapshotsExpired,
    Tick,
)
from kvorum.raft.model.messages import VoterChangeRequest
from kvorum.raft.model.values import OffsetAndEpoch, RaftConfig
from kvorum.raft.model.voters import NO_VOTERS, VoterSet
from kvorum.raft.node.committed_mark import CommittedMark
from kvorum.raft.node.flight_recorder import FlightRecorder
from kvorum.raft.node.flush_pace import FlushPace
from kvorum.raft.node.metadata_log import MetadataLog
from kvorum.raft.node.metrics import RaftMetrics
from kvorum.raft.node.servicer import RaftServicer
from kvorum.raft.node.snapshot_files import header_voters
from kvorum.raft.node.transport import Address, PeerAddress, RaftTransport
from kvorum.runtime.clock import REARM_MS, SYSTEM_CLOCK, Clock, monotonic_ms
from kvorum.runtime.errors import NodeRefused, required
from kvorum.runtime.http2.rpc import USUAL_CHANNELS, Channels
from kvorum.runtime.tasks import TaskGroup, Worker
from kvorum.snapshots.format import SnapshotHeader
from kvorum.storage.log.flush import FlushTicket

logger = logging.getLogger("kvorum.raft")

PROPOSAL_BYTES_MAX = 8 << 20
"""Limit of the proposals gathered for one append; the rest waits for the next turn of the loop."""

STANDBY_DELAY_MS = 20
"""How long a voter that does not lead may delay telling its listener of commits. When such a voter
becomes leader, the listener hears of every known commit first."""

HAND_OVER_TIMEOUT_MS = 200
"""How long a stopping leader waits for its EndQuorumEpoch requests to be answered."""

TIMELINE_LINES = 1_000
"""Lines of the election timeline that are kept in memory."""


class RaftListener(Protocol):
    """The state machine above the log. Its methods are called on the event loop and must not
    block."""

    def on_committed(self, high_watermark: int) -> None:
        """Every record below high_watermark is committed."""

    def on_leader_changed(self, change: LeaderChanged) -> None:
        """This node knows another leader or epoch than before."""

    def on_voters_changed(self, voters: VoterSet) -> None:
        """Another voter set is in force, committed or not. Called at the start too if a set is
        known, which for static voters is the only call."""

    def on_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        """The log now begins at the end of this snapshot from the leader: load the state from it.

        Never called on the leader. Every later `on_committed` names records behind this snapshot.
        """


class RaftNode:
    """One voter or observer of the metadata quorum, with its log, connections and timers."""

    _voters = NO_VOTERS

    def __init__(
        self,
        config: RaftConfig,
        metadata_log: MetadataLog,
        *,
        peer_address: PeerAddress,
        listener: RaftListener,
        on_failure: Callable[[BaseException], None],
        rng: random.Random,
        clock: Clock = SYSTEM_CLOCK,
        channels: Channels = USUAL_CHANNELS,
    ) -> None:
        """peer_address: the configured address of a node, None if it has none. clock: for
        timestamps; deadlines are the event loop's."""
        self.config = config
        replica_log = self.replica_log = metadata_log.replica_log
        self.log = replica_log.log
        self.clock = clock
        self.files = metadata_log.files
        self._configured_address = peer_address
        # Flight records lie one folder above the log, where no other reader looks.
        self._record_directory = os.path.dirname(self.log.directory)
        self._learnt_addresses: dict[int, Address] = {}
        self.timeline: deque[str] = deque(maxlen=TIMELINE_LINES)
        self.metrics = RaftMetrics(config.node_id)
        self.servicer = RaftServicer(
            self._deliver,
            peer_address=self.address_of,
            note_address=self._note_address,
            clock=clock,
        )
        self._listener = listener
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._tasks = TaskGroup(on_failure)
        self._transport = RaftTransport(
            peer_address=self.address_of,
            note_address=self._note_address,
            own_address=config.address,
            request_timeout_ms=config.request_timeout_ms,
            clock=clock,
            channels=channels,
            deliver=self._deliver,
            tasks=self._tasks,
        )
        self._flush_pace = FlushPace()
        self._flusher: Worker[float] = Worker(f"flush-{config.node_id}", self._loop)
        self._flush_wanted: FlushLog | None = None
        self._is_flushing = False
        self._events: deque[Event] = deque()
        self._is_stepping = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._proposals: list[tuple[bytes | bytearray, int]] = []
        self._proposed_records = 0
        self._is_stopped = False
        # The high watermark, and the part of it that the listener has been told of.
        self._committed = self._told_committed = -1
        self._telling: asyncio.TimerHandle | None = None
        self._mark = CommittedMark(self.log.disk, self._record_directory, self._loop.call_later)
        self._snapshot_work: deque[Coroutine[Any, Any, Event | None]] = deque()
        self._is_working = False
        self.core = RaftCore(
            config,
            vote_state=replica_log.vote_store.load(),
            log=replica_log.tail(),
            rng=rng,
            now_ms=monotonic_ms(),
        )
        self.recorder = FlightRecorder(self.core, clock=clock)

    # Methods for the state machine.

    def start(self) -> None:
        """Begin to take part. From here on, peers must be able to reach the servicer."""
        self._deliver(Tick())

    @property
    def is_leader(self) -> bool:
        return self.core.is_leader

    @property
    def next_offset(self) -> int:
        """The offset that the next proposed record gets, while this node leads."""
        return self.core.log.end_offset + self._proposed_records

    def propose(self, batch: bytes | bytearray, record_count: int) -> int:
        """Append a batch as leader and return the offset of its first record.

        All proposals of one turn of the loop become one append, one wake-up of each follower and
        one fsync. They are committed when `on_committed` passes their last offset. If the
        leadership is lost first, which `on_leader_changed` tells, they may never be.
        """
        base_offset = self.next_offset
        if not self._proposals:
            self._loop.call_soon(self._append_proposals)
        self._proposals.append((batch, record_count))
        self._proposed_records += record_count
        return base_offset

    def take_snapshot(
        self,
        end_offset: int,
        epoch: int,
        payloads: Iterable[bytes],
        on_done: Callable[[bool], None],
    ) -> None:
        """Write a snapshot of the state at end_offset, which is committed and within this log.

        The work runs in the background; the loop runs between two payloads. on_done gets True once
        the snapshot is durable, False if it could not be written. Retention decides when the log
        below it is trimmed.
        """
        voters = self.core.log.voters.at(end_offset)
        header = SnapshotHeader(
            end_offset=end_offset,
            epoch=epoch,
            timestamp_ms=self.replica_log.timestamp_before(end_offset),
            kraft_version=int(self.config.is_dynamic),
            voters=header_voters(voters) if self.config.is_dynamic else (),
        )
        self._queue_work(self._take_snapshot(header, payloads, on_done))

    async def _take_snapshot(
        self, header: SnapshotHeader, payloads: Iterable[bytes], on_done: Callable[[bool], None]
    ) -> None:
        try:
            taken = await self.files.take(header, payloads)
        except OSError as error:
            # Nothing depends on this snapshot yet; the log just stays longer.
            logger.error("node=%d cannot write a snapshot: %s", self.config.node_id, error)
            on_done(False)
            return
        self._deliver(taken)
        count = self.files.expired(
            self.core.log.snapshots, log_bytes=self.log.size_bytes, now_ms=self.clock.wall_ms()
        )
        if count:
            self._deliver(SnapshotsExpired(count))
        on_done(True)

    def address_of(self, node_id: int) -> Address | None:
        """A node's address: from the configuration, else the voter set, else a message that named
        it."""
        if node_id == self.config.node_id:
            return self.config.address
        configured = self._configured_address(node_id)
        if configured is not None:
            return configured
        voter = self.core.voter_set.get(node_id)
        if voter is not None and voter.host:
            return voter.host, voter.port
        return self._learnt_addresses.get(node_id)

    def resign(self) -> None:
        """Hand leadership over if this node leads."""
        self._deliver(Resign())

    async def stop(self) -> None:
        """Hand leadership over, then end. The caller closes the log, which is flushed."""
        if self.core.is_leader:
            self.resign()
            await self._transport.drain(HAND_OVER_TIMEOUT_MS)
        self._is_stopped = True
        self.servicer.stop()
        for timer in (self._timer, self._telling):
            if timer is not None:
                timer.cancel()
        self._mark.close()
        await self._tasks.stop()
        while self._snapshot_work:
            self._snapshot_work.popleft().close()
        await self._transport.stop()
        self._flusher.stop()
        # Give the loop one turn for the thread's last result: a log with an open flush cannot be
        # closed.
        await asyncio.sleep(0)

    # Take in events.

    def _deliver(self, event: Event) -> None:
        """Step the core with an event, or queue it if the core is being stepped already."""
        if self._is_stopped:
            return
        if isinstance(event, RequestReceived) and isinstance(event.request, VoterChangeRequest):
            # A voter change may append a record of its own. Append the proposals first, because
            # their offsets have been promised already.
            while self._proposals and self.core.is_leader:
                self._append_proposals()
            if self._is_stopped:
                return  # the append failed, so the node has failed already
        if isinstance(event, ResponseReceived):
            self.metrics.responses_received += 1
        self._events.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._events:
                for effect in self._step(self._events.popleft()):
                    self._carry_out(effect)
                if self.core.voter_set is not self._voters:
                    self._voters = self.core.voter_set
                    complaint = self._voters.complaint_of(
                        self.config.node_id, self.config.directory_id
                    )
                    if complaint is not None:
                        logger.warning("%s", complaint)
                    self._listener.on_voters_changed(self._voters)
        except Exception as error:  # noqa: BLE001 - a bug or a failed disk: the node must exit
            self._fail(error)
            return
        finally:
            self._is_stepping = False
        self._arm_timer()

    def _step(self, event: Event) -> list[Effect]:
        now_ms = monotonic_ms()
        try:
            effects = self.core.step(event, now_ms)
        except Exception as error:
            self.recorder.note_failure(now_ms, event, error)
            raise
        self.recorder.note(now_ms, event, effects)
        return effects

    def _fail(self, error: BaseException) -> None:
        """Stop this node for good. Its flight record is written, to be replayed later."""
        self._is_stopped = True
        if isinstance(error, NodeRefused):
            self._on_failure(error)
            return
        try:
            reason = f"{type(error).__name__}: {error}"
            path = self.recorder.dump_to(self._record_directory, reason, disk=self.log.disk)
            logger.critical("node=%d flight record: %s", self.config.node_id, path)
        except OSError as disk_error:
            logger.critical("node=%d no flight record: %s", self.config.node_id, disk_error)
        self._on_failure(error)

    def _note_address(self, node_id: int, address: Address) -> None:
        self._learnt_addresses[node_id] = address

    def _queue_work(self, work: Coroutine[Any, Any, Event | None]) -> None:
        """Queue work on the snapshot files; it runs after the work queued before it."""
        self._snapshot_work.append(work)
        if not self._is_working:
            self._is_working = True
            self._tasks.spawn(self._work(), f"snapshots-{self.config.node_id}")

    async def _work(self) -> None:
        while self._snapshot_work:
            event = await self._snapshot_work.popleft()
            if event is not None:
                self._deliver(event)
        self._is_working = False

    def _arm_timer(self) -> None:
        deadline_ms = self.core.next_deadline_ms()
        if self._timer is not None:
            if deadline_ms is not None and 0 <= deadline_ms - self._timer_ms < REARM_MS:
                return  # the timer fires in time and is armed again then; most deadlines move away
            self._timer.cancel()
            self._timer = None
        if deadline_ms is not None:
            self._timer_ms = deadline_ms
            delay_s = max(deadline_ms - monotonic_ms(), 0) / 1000
            self._timer = self._loop.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        deadline_ms = self.core.next_deadline_ms()
        if deadline_ms is not None and monotonic_ms() >= deadline_ms:
            self._deliver(Tick())
        else:
            self._arm_timer()

    def _append_proposals(self) -> None:
        if not self.core.is_leader:
            self._proposals.clear()
            self._proposed_records = 0
        if not self._proposals:
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

    # Carry out effects.

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case ReplyWithRecords():
                response = self.replica_log.fetch_response(effect)
                self.metrics.bytes_sent += len(response.records)
                self.servicer.reply(effect.token, response)
            case Reply(token, response):
                self.servicer.reply(token, response)
            case ReplyWithSnapshot():
                self._tasks.spawn(self._reply_with_snapshot(effect), "snapshot-read")
            case SendRequest(receiver_id, correlation_id, request):
                self.metrics.requests_sent += 1
                self._transport.send(receiver_id, correlation_id, request)
            case FlushLog():
                self._flush_wanted = effect
                self._flush()
            case HighWatermarkAdvanced(high_watermark):
                self._committed = high_watermark
                self._mark.note(high_watermark)
                self.metrics.note_committed(high_watermark, self._loop.time())
                if self.core.is_leader:
                    self._tell_committed()
                elif self.core.is_voter:
                    # Nobody waits for the image of a standby. Telling its listener of each commit
                    # separately would cost as much CPU as acknowledging the records does.
                    if self._telling is None:
                        delay_s = STANDBY_DELAY_MS / 1000
                        self._telling = self._loop.call_later(delay_s, self._tell_standby)
                else:
                    # Start the fsync and the next fetch of this turn first, because the leader
                    # waits for both; the image can wait.
                    self._loop.call_soon(self._tell_committed)
            case LeaderChanged(_, leader_id):
                self.metrics.note_leader(leader_id, self._loop.time())
                self._tell_committed()
                self._listener.on_leader_changed(effect)
            case QuorumAlert(text):
                self.timeline.append(f"{self.clock.wall_ms()} {text}")
                logger.error("node=%d %s", self.config.node_id, text)
            case TimelineEntry(text):
                self.timeline.append(f"{self.clock.wall_ms()} {text}")
                logger.info("node=%d %s", self.config.node_id, text)
            case WriteSnapshotChunk():
                self._queue_work(self.files.write_chunk(effect))
            case FinishSnapshot():
                self._queue_work(self.files.finish(effect))
            case DropSnapshots():
                self._queue_work(self._drop_snapshots(effect))
            case ReplaceLog(snapshot):
                self.replica_log.carry_out(effect, wall_ms=self.clock.wall_ms())
                self._queue_work(self.files.remove_older(snapshot))
                self._told_committed = self._committed
                self._listener.on_snapshot(snapshot)
            case (
                PersistVoteState()
                | AppendProposed()
                | AppendLeaderChange()
                | AppendVoters()
                | AppendFetched()
                | TruncateLog()
            ):
                self.replica_log.carry_out(effect, wall_ms=self.clock.wall_ms())
                self.metrics.note_disk(effect, self.core.log.end_offset, self._loop.time())

    def _tell_standby(self) -> None:
        self._telling = None
        self._tell_committed()

    def _tell_committed(self) -> None:
        if self._told_committed < self._committed and not self._is_stopped:
            self._told_committed = self._committed
            self._listener.on_committed(self._committed)

    async def _reply_with_snapshot(self, effect: ReplyWithSnapshot) -> None:
        self.servicer.reply(effect.token, await self.files.read(effect))

    async def _drop_snapshots(self, effect: DropSnapshots) -> None:
        await self.files.remove(effect.snapshots)
        self.replica_log.trim(effect.start_offset, wall_ms=self.clock.wall_ms())

    def _flush(self) -> None:
        if self._is_flushing or self._flush_wanted is None or self._is_stopped:
            return
        self._is_flushing = True
        if self._flush_pace.is_quick and self.core.is_voter:
            # FlushLog is the last effect. So a leader has already answered the voters' fetches, and
            # the voters fsync at the same time.
            self._flush_in_place()
        else:
            ticket, generation = self._take_flush()
            self._flusher.submit(
                functools.partial(_timed, ticket),
                lambda took_us, error: self._on_flushed(ticket, generation, took_us, error),
            )

    def _flush_in_place(self) -> None:
        if self._is_stopped:
            return
        ticket, generation = self._take_flush()
        error: BaseException | None = None
        took_us = 0.0
        try:
            took_us = _timed(ticket)
        except OSError as caught:
            error = caught
        self._on_flushed(ticket, generation, took_us, error)

    def _take_flush(self) -> tuple[FlushTicket, int]:
        wanted = required(self._flush_wanted, "a flush is wanted")
        self._flush_wanted = None
        return self.log.begin_flush(), wanted.generation

    def _on_flushed(
        self,
        ticket: FlushTicket,
        generation: int,
        took_us: float | None,
        error: BaseException | None,
    ) -> None:
        self._is_flushing = False
        if error is not None:
            # A failed fsync may have dropped the pages that it could not write, so a second fsync
            # would acknowledge records that are not on disk. The process ends and recovers from the
            # disk.
            self._fail(error)
            return
        self._flush_pace.note(took_us or 0.0)
        self.metrics.flush_s.observe((took_us or 0.0) / 1e6)
        self.log.complete_flush(ticket)
        self._deliver(LogFlushed(ticket.end_offset, generation))
        self._flush()


def _timed(ticket: FlushTicket) -> float:
    """Run the flush and return how many microseconds it took. Raises OSError."""
    began = time.perf_counter()
    ticket.run()
    return (time.perf_counter() - began) * 1e6
