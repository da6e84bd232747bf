"""The commands of a transcript, one a line; `tests/scripts/README.md` lists them. A message waits
until the script delivers it; only `run` and the commands that say so move time. `deliver`, `tick`
and the commands that change something print every message; `deliver-all` and `run` print only what
the messages caused.
"""

from __future__ import annotations

import dataclasses
import random

from kvorum.raft.core.states import Candidate, Prospective
from kvorum.raft.model.events import LogFlushed, Propose, Resign, SnapshotsExpired
from kvorum.raft.model.messages import AddVoterRequest, RemoveVoterRequest
from kvorum.raft.model.values import VoteState
from kvorum.runtime.ids import UUID_ZERO
from tests.scripts import describe
from tests.scripts.disk import Entry
from tests.scripts.world import Node, World

SEED = 48394
"""With it the first voters of a fresh cluster would stand in turn, about 20 ms apart."""

PRESET = "-"
"""Value of an entry that a script starts with."""


class Harness:
    """One script's world and how its commands act on it."""

    def __init__(self) -> None:
        self.world = World()

    def run(self, line: str) -> list[str]:
        """Carry out one command; the lines it has to show."""
        name, *words = line.split()
        world = self.world
        world.lines = []
        world.is_verbose = "quiet" not in words
        words = [word for word in words if word != "quiet"]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        flags = [word for word in words if "=" not in word]
        command = getattr(self, "_" + name.replace("-", "_"))
        try:
            command(*flags, **options)
        except AssertionError as error:
            # A safety check of the world failed: a transcript must never hold this line.
            self.world.say(f"UNSAFE {error}")
        return self.world.lines

    def _node(self, text: str) -> Node:
        return self.world.nodes[int(text)]

    # --- building ----------------------------------------------------------------------------

    def _cluster(self, count: str, *kinds: str, seed: str = str(SEED), **config: str) -> None:
        """batch: batches in one answer to a fetch; piece: bytes in a piece of a snapshot."""
        names = {"batch": "fetch_bytes_max", "piece": "snapshot_chunk_bytes"}
        numbers = {names.get(key, key): int(value) for key, value in config.items()}
        is_dynamic = "dynamic" in kinds or "prepared" in kinds
        self.world = World(is_dynamic=is_dynamic, seed=int(seed), **numbers)
        self.world.is_prepared = "prepared" in kinds
        self.world.create(list(range(1, int(count) + 1)))

    def _add_node(self, node: str, kind: str = "observer") -> None:
        self.world.add_node(int(node), is_broker=kind == "broker")

    def _preset(self, node: str, *epochs: str, epoch: str = "0") -> None:
        """Begin again with a log of these epochs on disk, and this epoch in the state file."""
        one = self._node(node)
        one.disk.entries = [Entry(int(e), PRESET) for e in epochs]
        one.disk.synced_end_offset = one.disk.end_offset
        last_epoch = one.disk.entries[-1].epoch if epochs else 0
        one.disk.vote = VoteState(max(int(epoch), last_epoch))
        one.rng = random.Random(f"{self.world.seed}/{one.id}")
        self.world.start(one)

    # --- time and messages -------------------------------------------------------------------

    def _tick(self, node: str, kind: str = "to-deadline") -> None:
        """Advance the clock of one node alone to the node's next deadline."""
        one = self._node(node)
        deadline_ms = one.deadline_ms()
        if kind == "to-deadline" and deadline_ms is not None:
            one.ahead_ms += max(deadline_ms - self.world.now_ms, 0)
        self.world.tick(one)

    def _stand(self, node: str) -> None:
        """Advance the clock of one node alone until the node asks for pre-votes or votes."""
        one = self._node(node)
        for _ in range(100):
            epoch = one.core.epoch
            self._tick(node)
            if isinstance(one.core.role, Prospective | Candidate) or one.core.epoch > epoch:
                return
        raise AssertionError(f"{node} does not stand")

    def _elect(self, node: str) -> None:
        """Let a node become a candidate and deliver all messages; the node must win."""
        world, one = self.world, self._node(node)
        world.is_verbose = False
        for _ in range(3):
            if not one.core.is_leader:
                self._stand(node)
                world.deliver_all()
        assert one.core.is_leader, f"{node} was not elected"
        world.run(300)
        assert one.core.is_leader, f"{node} did not stay leader"
        world.lines = [line for line in world.lines if "FATAL" in line]
        world.say(f"{node} leads epoch={one.core.epoch} hw={one.core.high_watermark}")

    def _wait(self, duration_ms: str) -> None:
        """Let time pass without events."""
        self.world.now_ms += int(duration_ms)

    def _run(self, duration_ms: str, kind: str = "") -> None:
        self.world.is_verbose = kind == "verbose"
        self.world.run(int(duration_ms))

    def _deliver(self, link: str = "", kind: str = "") -> None:
        """Deliver all messages that are on their way now, or those of one link, or of one kind."""
        for message in list(self.world.messages):
            name = describe.message(message.payload).split()[0]
            is_link = not link or (message.sender, message.receiver) == _link(link)
            if is_link and kind in ("", name) and message in self.world.messages:
                self.world.deliver(message)

    def _deliver_all(self, kind: str = "") -> None:
        self.world.is_verbose = kind == "verbose"
        self.world.deliver_all()

    def _drop(self, link: str) -> None:
        self.world.drop(*_link(link))

    def _in_flight(self) -> None:
        for message in self.world.messages:
            text = describe.message(message.payload)
            self.world.say(f"{message.sender}->{message.receiver} {text}")

    def _isolate(self, *nodes: str) -> None:
        """Cut nodes off from all others without a broken stream; messages on their way are lost
        too.
        """
        inside = {int(node) for node in nodes}
        for one in inside:
            for other in self.world.nodes.keys() - inside:
                for link in ((one, other), (other, one)):
                    self.world.cut.add(link)
                    self.world.drop(*link)

    def _cut(self, link: str) -> None:
        """Cut links in one direction only."""
        self.world.cut.add(_link(link))
        self.world.drop(*_link(link))

    def _heal(self) -> None:
        self.world.cut.clear()

    def _break_stream(self, link: str) -> None:
        self.world.break_stream(*_link(link))

    # --- nodes -------------------------------------------------------------------------------

    def _crash(self, node: str, kind: str = "") -> None:
        self.world.stop(self._node(node), is_silent=kind == "silently")

    def _restart(self, node: str, kind: str = "", port: str = "") -> None:
        """wiped: with an empty disk, and so with a new directory id. copied: the same, with the
        folder of its first installation on it. port: the port of its listener.
        """
        one = self._node(node)
        if one.core is not None:
            self.world.stop(one)
        letter = one.disk_letter
        if kind in ("wiped", "copied"):
            letter = one.disk_letter = chr(ord(letter) + 1)
            one.disk = type(one.disk)()
        if kind == "copied":
            one.disk.bootstrap = self.world.initial
        place = describe.voter(one.id, letter, int(port) if port else None)
        if not port and one.config.address is not None:
            place = describe.voter(one.id, letter, one.config.address[1])
        address = None if one.config.address is None else (place.host, place.port)
        one.config = dataclasses.replace(
            one.config, directory_id=place.directory_id, address=address
        )
        one.rng = random.Random(f"{self.world.seed}/{one.id}/{one.life}")
        self.world.start(one)
        self.world.say(f"{one.id}: {type(one.core.role).__name__} epoch={one.core.epoch}")

    def _resign(self, node: str) -> None:
        self.world.step(self._node(node), Resign())

    def _propose(self, node: str, *values: str) -> None:
        self.world.step(self._node(node), Propose(values, (1,) * len(values)))

    def _hold(self, node: str) -> None:
        """Withhold the disk's answers until `flush`."""
        self._node(node).is_held = True

    def _flush(self, node: str) -> None:
        """Give the core the disk's withheld answers, and withhold no more."""
        one = self._node(node)
        one.is_held = False
        held, one.held = one.held, []
        for event in held:
            if isinstance(event, LogFlushed) and event.generation == one.core.log.generation:
                synced = min(event.end_offset, one.disk.end_offset)
                one.disk.synced_end_offset = max(one.disk.synced_end_offset, synced)
            self.world.step(one, event)

    # --- snapshots and voters ----------------------------------------------------------------

    def _snapshot(self, node: str) -> None:
        self.world.snapshot(self._node(node))

    def _expire(self, node: str, count: str = "1") -> None:
        self.world.step(self._node(node), SnapshotsExpired(int(count)))

    def _damage_part(self, node: str) -> None:
        """Flip a bit in the part of a snapshot that a node is fetching."""
        disk = self._node(node).disk
        disk.part = bytes((disk.part[0] ^ 1,)) + disk.part[1:]

    def _add_voter(self, leader: str, voter: str, kind: str = "") -> None:
        """The voter by id, disk letter and port: `4`, `2b`, `4a:9104`."""
        text = f"{voter}a" if voter.isdigit() else voter
        request = AddVoterRequest(
            cluster_id="test", voter=describe.parse_voter(text), is_dry_run=kind == "dry-run"
        )
        self._ask(leader, request)

    def _remove_voter(self, leader: str, voter: str, kind: str = "") -> None:
        """The voter by id, or by id and disk letter."""
        named = describe.parse_voter(voter)
        directory_id = UUID_ZERO if voter.isdigit() else named.directory_id
        request = RemoveVoterRequest(
            cluster_id="test",
            node_id=named.node_id,
            directory_id=directory_id,
            is_dry_run=kind == "dry-run",
        )
        self._ask(leader, request)

    def _ask(self, leader: str, request: AddVoterRequest | RemoveVoterRequest) -> None:
        self.world.ask_as_admin(int(leader), request)
        self.world.deliver(self.world.messages[-1])

    # --- showing -----------------------------------------------------------------------------

    def _state(self, *nodes: str) -> None:
        for one in self.world.nodes.values():
            if nodes and str(one.id) not in nodes:
                continue
            if one.core is None:
                self.world.say(f"{one.id} down")
                continue
            core = one.core
            flushed = core.log.flushed_end_offset
            unsynced = f" flushed={flushed}" if flushed < core.log.end_offset else ""
            self.world.say(
                f"{one.id} {type(core.role).__name__} epoch={core.epoch} "
                f"leader={describe.node(core.leader_id)} end={core.log.end_offset}{unsynced} "
                f"hw={core.high_watermark}"
            )

    def _voters(self, *nodes: str) -> None:
        """The voter set in force at each node, and where its record stands."""
        for one in self.world.nodes.values():
            if one.core is not None and (not nodes or str(one.id) in nodes):
                log = one.core.log.voters
                text = describe.voters(one.core.voter_set) or "none"
                self.world.say(f"{one.id} voters={text} from={log.last_offset}")

    def _log(self, *nodes: str) -> None:
        """Each node's entries as value@epoch from its start offset on, with `|` at the high
        watermark.
        """
        for one in self.world.nodes.values():
            if nodes and str(one.id) not in nodes:
                continue
            disk = one.disk
            high_watermark = -1 if one.core is None else one.core.high_watermark
            words = []
            for offset, entry in enumerate(disk.entries, disk.start_offset):
                words += ["|"] if offset == high_watermark else []
                words.append(describe.entry(entry))
            words += ["|"] if disk.end_offset == high_watermark else []
            self.world.say(f"{one.id} {disk.start_offset}: {' '.join(words)}".rstrip())

    def _snapshots(self, *nodes: str) -> None:
        for one in self.world.nodes.values():
            if not nodes or str(one.id) in nodes:
                names = " ".join(map(describe.snapshot, one.disk.snapshot_ids)) or "none"
                self.world.say(f"{one.id} {names}")

    def _values(self, *nodes: str) -> None:
        """The entries that each node's state machine has applied."""
        for one in self.world.nodes.values():
            if one.core is not None and (not nodes or str(one.id) in nodes):
                values = one.disk.values_below(one.core.high_watermark)
                self.world.say(f"{one.id} {' '.join(values)}".rstrip())

    def _votes(self, *nodes: str) -> None:
        """The state file of each node."""
        for one in self.world.nodes.values():
            if not nodes or str(one.id) in nodes:
                self.world.say(f"{one.id} {describe.vote_state(one.disk.vote)}")


def _link(text: str) -> tuple[int, int]:
    sender, receiver = text.split("->")
    return int(sender), int(receiver)
