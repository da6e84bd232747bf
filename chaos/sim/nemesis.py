"""Carries out the faults of a schedule, and heals the world when their time is over."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, assert_never

from chaos.sim.decay import Damage, examine, flip_byte
from chaos.sim.faults import (
    LEADER,
    BlockOneWay,
    ChangeClock,
    Crash,
    CrashAll,
    CutPowerAtDiskCall,
    FailFsync,
    Fault,
    FillDisk,
    FlipBits,
    HandOver,
    Partition,
    Pause,
    ResetConnections,
    kind_of,
)
from chaos.sim.network import Link
from chaos.sim.node import DIRECTORY, LOG_CONFIG, SimNode
from raft.events import Resign
from raft.quorum import majority

if TYPE_CHECKING:
    from chaos.sim.quorum import QuorumWorld


class Nemesis:
    """struck: faults that hit somebody, by kind; outcomes of flipped bits are counted as well."""

    def __init__(self, world: QuorumWorld) -> None:
        self.struck: Counter[str] = Counter()
        self._world = world

    def strike(self, fault: Fault) -> None:
        """Let it happen. A fault whose target is not there does nothing."""
        hit: bool
        match fault:
            case Crash() | FlipBits() | CutPowerAtDiskCall() | FailFsync() | FillDisk():
                hit = self._harm_node(fault)
            case Pause() | ChangeClock() | ResetConnections():
                hit = self._disturb_node(fault)
            case CrashAll():
                hit = self._crash_all(fault)
            case Partition() | BlockOneWay():
                hit = self._cut_links(fault)
            case HandOver():
                leader = self._node(LEADER)
                if hit := leader is not None and not leader.is_paused:
                    self._note(f"hand-over node={leader.node_id}")
                    leader.deliver(Resign())
            case _:
                assert_never(fault)
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
        self, fault: Crash | FlipBits | CutPowerAtDiskCall | FailFsync | FillDisk
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
            case FailFsync():
                node.disk.fail("sync", path_part=fault.path_part)
            case FillDisk():
                disk = node.disk
                disk.capacity_bytes = disk.used_bytes() + fault.room_bytes
                self._world.timeline.after(fault.lasts_ms, partial(_empty, node))
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
        would vote with less than it acknowledged. So such a voter is either gone for good, or its
        operator puts back the bytes as they were. An observer vouches for nothing: it comes back
        with an empty disk.
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
                LOG_CONFIG,
                flipped=flipped,
                durable=node.mirror,
                durable_end_offset=node.durable_end_offset,
                now_ms=node.local_ms,
            )
        self._note(f"node={node.node_id} flipped {flipped}: {damage.value}")
        self.struck[f"flip-bits {damage.name.lower()}"] += 1
        if damage in (Damage.CUT, Damage.REFUSED):
            if not self._world.is_voter(node):
                node.lose_disk()
            elif fault.is_for_good and self._can_spare_one():
                node.is_removed = True
                self.struck["removed for good"] += 1
            else:
                node.disk.restore(saved)
        self._world.start_later(node, fault.down_ms)

    def _can_spare_one(self) -> bool:
        voters = [node for node in self._world.nodes.values() if self._world.is_voter(node)]
        removed = sum(node.is_removed for node in voters)
        return len(voters) - removed - 1 >= majority(len(voters))

    # Time and links.

    def _disturb_node(self, fault: Pause | ChangeClock | ResetConnections) -> bool:
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


def _empty(node: SimNode) -> None:
    node.disk.capacity_bytes = None


def _resume(node: SimNode, incarnation: int) -> None:
    if node.is_paused and node.incarnation == incarnation:
        node.resume()
