"""A small cluster of cores: logs in memory, messages that wait, one clock that only a script
advances.

Carries out effects as the driver does, on lists instead of files, and checks the safety of the
cluster: one leader an epoch, one vote an epoch and disk, committed records never change.
"""

from __future__ import annotations

import dataclasses
import random
from collections import deque
from dataclasses import dataclass, field

from kvorum.raft.core.raft_core import RaftCore
from kvorum.raft.model.events import (
    CallerGone,
    Event,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    SnapshotTaken,
    Tick,
)
from kvorum.raft.model.log_tail import LogTail
from kvorum.raft.model.messages import Request, Response
from kvorum.raft.model.values import OffsetAndEpoch, RaftConfig, VoteState
from kvorum.raft.model.voters import NO_VOTERS, Voter, VoterSet
from kvorum.runtime.errors import InvariantViolated
from kvorum.runtime.ids import UUID_ZERO
from tests.scripts import describe
from tests.scripts.disk import NodeDisk
from tests.scripts.effects import carry_out
from tests.scripts.network import ADMIN, Message

STEPS_MAX = 20_000
"""Messages and ticks of one command: more is a loop without an end."""


@dataclass
class Node:
    """One process and its disk. life: counts restarts, so that an answer to an earlier process is
    dropped.

    outstanding: by correlation id, the receiver of each unanswered request, as the core named it.
    ahead_ms: how far its clock is ahead of the others', because a script advanced this clock alone.
    """

    config: RaftConfig
    disk: NodeDisk
    rng: random.Random
    core: RaftCore | None = None
    life: int = 0
    ahead_ms: int = 0
    disk_letter: str = "a"
    is_held: bool = False
    held: list[Event] = field(default_factory=list)
    outstanding: dict[int, int] = field(default_factory=dict)
    events: deque[Event] = field(default_factory=deque)
    is_stepping: bool = False

    @property
    def id(self) -> int:
        return self.config.node_id

    def deadline_ms(self) -> int | None:
        """The core's next deadline, by the world's clock."""
        deadline_ms = None if self.core is None else self.core.next_deadline_ms()
        return None if deadline_ms is None else deadline_ms - self.ahead_ms


class World:
    """See the top of the file. Commands are in `harness`."""

    def __init__(self, *, is_dynamic: bool = False, seed: int = 0, **config: int) -> None:
        self.is_dynamic = is_dynamic
        self.seed = seed
        self.config = config
        self.initial = NO_VOTERS
        self.is_prepared = False
        """The first voters are named without directory ids, as by kvorum init."""
        self.now_ms = 0
        self.nodes: dict[int, Node] = {}
        self.messages: list[Message] = []
        self.cut: set[tuple[int, int]] = set()
        self.lines: list[str] = []
        self.is_verbose = True
        self._tokens: dict[int, Message] = {}
        self._next_token = 0
        self._leaders: dict[int, int] = {}
        self._votes: dict[tuple[int, bytes, int], int] = {}
        self._committed: dict[int, tuple[int, str]] = {}

    # --- nodes -------------------------------------------------------------------------------

    def create(self, node_ids: list[int]) -> None:
        """Create the nodes that are voters from the beginning."""
        self.initial = (
            VoterSet.of(describe.voter(i) for i in node_ids)
            if self.is_dynamic
            else VoterSet.static(node_ids)
        )
        if self.is_prepared:
            self.initial = VoterSet.of(
                dataclasses.replace(voter, directory_id=UUID_ZERO) for voter in self.initial.voters
            )
        for node_id in node_ids:
            self.add_node(node_id)

    def add_node(self, node_id: int, *, is_broker: bool = False) -> None:
        own = describe.voter(node_id)
        config = RaftConfig(
            # The value for which the transcripts were written; the default may be tuned.
            fetch_wait_max_ms=250,
            node_id=node_id,
            cluster_id="test",
            voters=() if self.is_dynamic else self.initial.ids,
            directory_id=own.directory_id,
            address=None if is_broker else (own.host, own.port),
            bootstrap_ids=tuple(-1 - i for i in self.initial.ids) if self.is_dynamic else (),
            **self.config,
        )
        disk = NodeDisk()
        if self.is_dynamic and node_id in self.initial.ids:
            disk.bootstrap = self.initial
        node = Node(config, disk, random.Random(f"{self.seed}/{node_id}"))
        self.nodes[node_id] = node
        self.start(node)

    def start(self, node: Node) -> None:
        node.life += 1
        disk = node.disk
        disk.recover()
        node.core = RaftCore(
            node.config,
            vote_state=disk.vote,
            log=LogTail(
                epochs=disk.epochs(),
                end_offset=disk.end_offset,
                flushed_end_offset=disk.end_offset,
                snapshots=disk.snapshot_ids,
                voter_sets=disk.voter_sets() if self.is_dynamic else (),
            ),
            rng=node.rng,
            now_ms=self.now_ms + node.ahead_ms,
        )

    def stop(self, node: Node, *, is_silent: bool = False) -> None:
        """Kill the process. Bytes that the disk had not synced are lost, and peers see their
        streams break.
        """
        node.core = None
        node.is_held = False
        node.disk.crash()
        node.held.clear()
        node.events.clear()
        node.outstanding.clear()
        self.messages = [m for m in self.messages if m.sender != node.id or not m.is_response]
        if not is_silent:
            for other in list(self.nodes.values()):
                if other is not node and not self.is_cut(other.id, node.id):
                    self.break_stream(other.id, node.id)
                    self.break_stream(node.id, other.id)

    # --- events ------------------------------------------------------------------------------

    def step(self, node: Node, event: Event) -> None:
        """Handle one event at one core, with all of its effects; the events that these cause are
        queued."""
        if node.core is None:
            return
        node.events.append(event)
        if node.is_stepping:
            return
        node.is_stepping = True
        try:
            while node.events and node.core is not None:
                now_ms = self.now_ms + node.ahead_ms
                for effect in node.core.step(node.events.popleft(), now_ms):
                    carry_out(self, node, effect)
                self._check(node)
        except InvariantViolated as error:
            self.say(f"{node.id}: FATAL {error}")
            self.stop(node)
        finally:
            node.is_stepping = False

    def disk_done(self, node: Node, event: Event) -> None:
        """Hand the core the disk's answer; a held disk withholds it."""
        if node.is_held:
            node.held.append(event)
        else:
            self.step(node, event)

    def tick(self, node: Node) -> None:
        self.step(node, Tick())

    def snapshot(self, node: Node) -> None:
        """The node's state machine snapshots what is committed."""
        core = node.core
        if core is None:
            return
        offset = core.high_watermark
        snapshot = OffsetAndEpoch(offset, node.disk.epoch_at(offset - 1))
        node.disk.take_snapshot(snapshot, core.log.voters.at(offset))
        self.say(f"{node.id}: snapshot {describe.snapshot(snapshot)}")
        self.step(node, SnapshotTaken(snapshot))

    # --- messages ----------------------------------------------------------------------------

    def resolve(self, node_id: int) -> int:
        """The voter that a node id means. The ids -2, -3, ... are the bootstrap servers: the first
        voters in turn.
        """
        return node_id if node_id >= 0 else -1 - node_id

    def is_cut(self, one: int, other: int) -> bool:
        return (one, other) in self.cut or (other, one) in self.cut

    def send(self, message: Message) -> None:
        link = (message.sender, message.receiver)
        lost = "  (lost)" if link in self.cut else ""
        text = describe.message(message.payload)
        self.detail(f"{message.sender}->{message.receiver} {text}{lost}")
        if not lost:
            self.messages.append(message)
        elif not message.is_response:
            self.nodes[message.sender].outstanding.pop(message.correlation_id, None)

    def ask_as_admin(self, receiver: int, request: Request) -> None:
        self.messages.append(Message(ADMIN, receiver, request, 0))

    def reply(self, node: Node, token: int, response: Response) -> None:
        asked = self._tokens.pop(token, None)
        if asked is None:
            return
        if asked.sender == ADMIN:
            self.say(f"admin<-{node.id} {describe.message(response)}")
        elif self.nodes[asked.sender].life == asked.life:
            answer = Message(
                node.id, asked.sender, response, asked.correlation_id, asked.life, is_response=True
            )
            self.send(answer)

    def deliver(self, message: Message) -> None:
        """Hand one message over; a request to a process that is gone is refused."""
        receiver = self.nodes[message.receiver]
        self.messages.remove(message)
        if message.is_response:
            asked = receiver.outstanding.pop(message.correlation_id, None)
            if asked is not None and receiver.life == message.life:
                self.step(
                    receiver, ResponseReceived(asked, message.correlation_id, message.payload)
                )
        elif receiver.core is None:
            self._fail_request(message.sender, message.correlation_id, message.life)
        else:
            self._next_token += 1
            self._tokens[self._next_token] = message
            self.step(receiver, RequestReceived(message.payload, self._next_token))

    def deliver_all(self) -> None:
        for _ in range(STEPS_MAX):
            if not self.messages:
                return
            self.deliver(self.messages[0])
        raise AssertionError("messages without an end")

    def run(self, duration_ms: int) -> None:
        """Advance the clock; nodes handle their deadlines, and messages arrive at once."""
        end_ms = self.now_ms + duration_ms
        self.deliver_all()
        for _ in range(STEPS_MAX):
            deadlines = [node.deadline_ms() for node in self.nodes.values()]
            next_ms = min((d for d in deadlines if d is not None), default=end_ms + 1)
            if next_ms > end_ms:
                self.now_ms = end_ms
                return
            self.now_ms = max(self.now_ms, next_ms)
            for node in list(self.nodes.values()):
                deadline_ms = node.deadline_ms()
                if deadline_ms is not None and deadline_ms <= self.now_ms:
                    self.tick(node)
            self.deliver_all()
        raise AssertionError("deadlines without an end")

    def break_stream(self, sender: int, receiver: int) -> None:
        """Every unanswered request of `sender` to `receiver` fails; the receiver sees it."""
        gone = ((sender, receiver, False), (receiver, sender, True))
        self.messages = [
            m for m in self.messages if (m.sender, m.receiver, m.is_response) not in gone
        ]
        node, peer = self.nodes[sender], self.nodes[receiver]
        for token, asked in list(self._tokens.items()):
            if (asked.sender, asked.receiver, asked.life) == (sender, receiver, node.life):
                del self._tokens[token]
                self.step(peer, CallerGone(token))
        for correlation_id, asked in list(node.outstanding.items()):
            if self.resolve(asked) == receiver:
                self._fail_request(sender, correlation_id, node.life)

    def drop(self, sender: int, receiver: int) -> None:
        """Drop messages on their way; no node sees a broken stream."""
        self.messages = [m for m in self.messages if (m.sender, m.receiver) != (sender, receiver)]

    def _fail_request(self, sender: int, correlation_id: int, life: int) -> None:
        node = self.nodes.get(sender)
        if node is None or node.life != life:
            return
        asked = node.outstanding.pop(correlation_id, None)
        if asked is not None:
            self.detail(f"{sender}->{self.resolve(asked)} refused")
            self.step(node, RequestFailed(asked, correlation_id))

    # --- what is said and checked ------------------------------------------------------------

    def say(self, line: str) -> None:
        self.lines.append(line)

    def detail(self, line: str) -> None:
        if self.is_verbose:
            self.lines.append(line)

    def note_vote(self, node: Node, state: VoteState) -> None:
        if state.voted_id < 0:
            return
        key = (node.id, node.config.directory_id, state.epoch)
        before = self._votes.setdefault(key, state.voted_id)
        assert before == state.voted_id, f"{node.id} voted for {before} and {state.voted_id}"

    def note_committed(self, node: Node, high_watermark: int) -> None:
        for offset in range(node.disk.start_offset, high_watermark):
            entry = node.disk.entries[offset - node.disk.start_offset]
            before = self._committed.setdefault(offset, (entry.epoch, entry.value))
            assert before == (entry.epoch, entry.value), (
                f"committed {before} at {offset}, {node.id} has {entry}"
            )

    def _check(self, node: Node) -> None:
        core = node.core
        if core is not None and core.is_leader:
            leader_id = self._leaders.setdefault(core.epoch, node.id)
            assert leader_id == node.id, f"{leader_id} and {node.id} lead epoch {core.epoch}"
        if core is not None:
            log, disk = core.log, node.disk
            assert (log.start_offset, log.end_offset) == (disk.start_offset, disk.end_offset)


def own_voter(node: Node) -> Voter:
    """The voter entry that a node would have now."""
    host, port = node.config.address or ("", 0)
    return Voter(node.id, node.config.directory_id, host, port)
