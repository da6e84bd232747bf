"""Carries out the faults of a schedule, and heals the world when their time is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol, assert_never

from kvorum.chaos.sim.fault_draws import kind_of
from kvorum.chaos.sim.faults import (
    LEADER,
    AddVoter,
    AnyFault,
    BlockOneWay,
    ChangeClock,
    Crash,
    CrashAll,
    CutOff,
    CutPowerAtDiskCall,
    FailDisk,
    FillDisk,
    FlipBits,
    HandOver,
    MoveListener,
    Partition,
    Pause,
    RemoveVoter,
    ResetConnections,
    TakeSnapshot,
    TwoChanges,
    WipeDisk,
)
from kvorum.chaos.sim.quorum.decay import Damage, examine, flip_byte
from kvorum.chaos.sim.quorum.recovery import DIRECTORY
from kvorum.raft.events import Resign
from kvorum.runtime.errors import InvariantViolated
from kvorum.runtime.memory_disk import MemoryDisk

if TYPE_CHECKING:
    from kvorum.chaos.sim.kernel.network import Link, Network
    from kvorum.chaos.sim.kernel.timeline import Timeline
    from kvorum.chaos.sim.quorum.changes import Operator
    from kvorum.chaos.sim.quorum.node import SimNode
    from kvorum.chaos.sim.quorum.recovery import DiskSettings


class StruckWorld(Protocol):
    """The part of a world that faults strike."""

    @property
    def timeline(self) -> Timeline: ...

    @property
    def network(self) -> Network: ...

    @property
    def nodes(self) -> Mapping[int, SimNode]: ...

    @property
    def operator(self) -> Operator: ...

    @property
    def disk_settings(self) -> DiskSettings: ...

    def may_vote(self, node: SimNode) -> bool:
        """True if the node, with its disk, is a voter somewhere, or may be."""

    def can_spare(self, node: SimNode) -> bool:
        """True if every voter set that is in force, or may be, can do without the node's disk."""

    def start_later(self, node: SimNode, delay_ms: int) -> None:
        """Start a node that is down, unless somebody else has by then."""


class Nemesis:
    """struck: faults that hit somebody, by kind; outcomes of flipped bits are counted as well."""

    def __init__(self, world: StruckWorld) -> None:
        self.struck: Counter[str] = Counter()
        self._world = world

    def strike(self, fault: AnyFault) -> None:
        """Let it happen. A fault whose target is not there does nothing."""
        hit: bool
        match fault:
            case Crash() | FlipBits() | CutPowerAtDiskCall() | FailDisk() | FillDisk() | WipeDisk():
                hit = self._harm_node(fault)
            case AddVoter() | RemoveVoter() | TwoChanges():
                hit = self._change_voters(fault)
            case Pause() | ChangeClock() | ResetConnections() | TakeSnapshot() | MoveListener():
                hit = self._disturb_node(fault)
            case CrashAll():
                hit = self._crash_all(fault)
            case Partition() | BlockOneWay():
                hit = self._cut_links(fault)
            case CutOff(lasts_ms=lasts_ms, down_ms=down_ms):
                if hit := self._node(LEADER) is not None:
                    self._cut_links(Partition(side=(LEADER,), lasts_ms=lasts_ms))
                    end = CrashAll(down_ms=down_ms)
                    self._world.timeline.after(lasts_ms, lambda: self.strike(end))
            case HandOver():
                leader = self._node(LEADER)
                if hit := leader is not None and not leader.is_paused:
                    self._note(f"hand-over node={leader.node_id}")
                    leader.deliver(Resign())
            case _:
                # Of another world: its own nemesis carries it out.
                raise InvariantViolated(f"the quorum has no {fault}")
        self.struck[kind_of(fault)] += hit

    def heal(self) -> None:
        """No more faults: links, disks and processes are well from now on."""
        self._note("healed")
        self._world.network.heal()
        for node in self._world.nodes.values():
            node.disk.calm()
            node.start()
            if node.is_paused:
                node.resume()

    # Targets.

    def _node(self, node_id: int) -> SimNode | None:
        """The node meant, None if there is none or it is down for good."""
        nodes = self._world.nodes
        if node_id == LEADER:
            leaders = [node for node in nodes.values() if node.is_leader]
            return max(leaders, key=lambda node: node.core.epoch, default=None)
        node = nodes.get(node_id)
        return None if node is None or node.is_removed else node

    def _note(self, text: str) -> None:
        self._world.timeline.note(f"fault: {text}")

    # Processes and disks.

    def _harm_node(
        self, fault: Crash | FlipBits | CutPowerAtDiskCall | FailDisk | FillDisk | WipeDisk
    ) -> bool:
        node = self._node(fault.node_id)
        if node is None:
            return False
        self._note(f"node={node.node_id} {fault}")
        match fault:
            case Crash():
                if not node.is_up:
                    return False
                node.stop(is_power_cut=fault.is_power_cut)
                self._world.start_later(node, fault.down_ms)
            case FlipBits():
                self._flip_bits(node, fault)
            case CutPowerAtDiskCall():
                node.disk.cut_power_after(fault.calls)
            case FailDisk():
                node.disk.fail(fault.operation, path_part=fault.path_part)
            case FillDisk():
                disk = node.disk
                disk.capacity_bytes = disk.used_bytes() + fault.room_bytes
                self._world.timeline.after(fault.lasts_ms, partial(_empty, disk))
            case WipeDisk():
                if not self._world.can_spare(node):
                    return False
                if node.is_up:
                    node.stop(is_power_cut=True)
                node.lose_disk()
                self._world.start_later(node, fault.down_ms)
            case _:
                assert_never(fault)
        return True

    def _crash_all(self, fault: CrashAll) -> bool:
        up = [node for node in self._world.nodes.values() if node.is_up]
        self._note(f"power cut for {[node.node_id for node in up]}")
        for node in up:
            node.stop(is_power_cut=True)
            self._world.start_later(node, fault.down_ms)
        return bool(up)

    def _flip_bits(self, node: SimNode, fault: FlipBits) -> None:
        """Damage a stopped node's disk and see what recovery says.

        Damage below what a voter vouched for is loss that Raft does not tolerate: come back, it
        would vote with less than it acknowledged. So either its operator puts back the bytes as
        they were, or it is gone for good; with dynamic voters it comes back with an empty disk and
        another directory id, as does an observer, whose loss harms nobody.
        """
        if node.is_up:
            node.stop(is_power_cut=True)
        else:
            node.disk.crash()
        node.disk.calm()
        saved = node.disk.save()
        flipped = flip_byte(node.disk, DIRECTORY, draw=fault.draw, mask=fault.mask)
        damage = Damage.NONE
        if flipped is not None:
            damage = examine(
                node.disk,
                DIRECTORY,
                self._world.disk_settings,
                flipped=flipped,
                durable=node.mirror,
                durable_end_offset=node.durable_end_offset,
                now_ms=node.local_ms,
            )
        self._note(f"node={node.node_id} flipped {flipped}: {damage.value}")
        self.struck[f"flip-bits {damage.name.lower()}"] += 1
        node.has_decayed |= damage is Damage.HARMLESS
        if damage in (Damage.CUT, Damage.REFUSED):
            is_voter = self._world.may_vote(node)
            if is_voter and not (fault.is_for_good and self._world.can_spare(node)):
                node.disk.restore(saved)
            elif is_voter and not node.config.is_dynamic:
                node.is_removed = True
                self.struck["removed for good"] += 1
            else:
                node.lose_disk()
        self._world.start_later(node, fault.down_ms)

    # Voters.

    def _change_voters(self, fault: AddVoter | RemoveVoter | TwoChanges) -> bool:
        added_id = removed_id = -1
        match fault:
            case AddVoter():
                added_id = fault.node_id
            case RemoveVoter():
                removed_id = fault.node_id
            case TwoChanges():
                added_id, removed_id = fault.added_id, fault.removed_id
            case _:
                assert_never(fault)
        hit = False
        added, removed = self._node(added_id), self._node(removed_id)
        if added is not None:
            hit |= self._world.operator.add(added.node_id)
        if removed is not None:
            hit |= self._world.operator.remove(removed.node_id)
        return hit

    # Time and links.

    def _disturb_node(
        self, fault: Pause | ChangeClock | ResetConnections | TakeSnapshot | MoveListener
    ) -> bool:
        node = self._node(fault.node_id)
        if node is None or not node.is_up:
            return False
        self._note(f"node={node.node_id} {fault}")
        match fault:
            case Pause():
                if node.is_paused:
                    return False
                node.pause()
                self._world.timeline.after(fault.lasts_ms, partial(_resume, node, node.incarnation))
            case ChangeClock():
                now_ms = self._world.timeline.now_ms
                node.clock.change(now_ms, jump_ms=fault.jump_ms, rate=fault.rate)
                node.on_clock_changed()
            case ResetConnections():
                self._world.network.break_connections(node.node_id)
            case TakeSnapshot():
                return not node.is_paused and node.machine.snapshot()
            case MoveListener():
                if node.config.address is None:
                    return False
                node.stop(is_power_cut=False)
                node.move_listener()
                self._world.start_later(node, 0)
            case _:
                assert_never(fault)
        return True

    def _cut_links(self, fault: Partition | BlockOneWay) -> bool:
        ids = list(self._world.nodes)
        links: list[Link]
        if isinstance(fault, Partition):
            leader = self._node(LEADER)
            side = {leader.node_id if leader and i == LEADER else i for i in fault.side}
            links = [(a, b) for a in ids for b in ids if (a in side) != (b in side)]
        else:
            links = [(fault.sender_id, fault.receiver_id)]
        self._note(str(fault))
        self._world.network.block(links)
        self._world.timeline.after(fault.lasts_ms, partial(self._world.network.unblock, links))
        return bool(links)


def _empty(disk: MemoryDisk) -> None:
    disk.capacity_bytes = None


def _resume(node: SimNode, incarnation: int) -> None:
    if node.is_paused and node.incarnation == incarnation:
        node.resume()
