"""The simulator's back end of faults: carries out the faults of a schedule, and ends them all in
the second phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import assert_never

from kvorum.chaos.faults import (
    AddVoter,
    ChangeClock,
    CutLink,
    CutPower,
    CutPowerAtDiskCall,
    FailDiskCall,
    Fault,
    FillDisk,
    FlipBits,
    HandOver,
    KillNode,
    MoveListener,
    NetworkPartition,
    PartitionThenPowerCut,
    PauseNode,
    RemoveVoter,
    ResetConnections,
    TakeSnapshot,
    TwoChanges,
    WipeDisk,
    duration_of,
)
from kvorum.chaos.sim.kernel.fault_draws import ACTIVE_CONTROLLER, ALL, CRASH_ALL
from kvorum.chaos.sim.kernel.network import Link
from kvorum.chaos.sim.quorum.changes import Operator
from kvorum.chaos.sim.quorum.decay import Damage, examine, flip_byte
from kvorum.chaos.sim.quorum.model.recovery import DIRECTORY
from kvorum.chaos.sim.quorum.node import SimNode
from kvorum.chaos.sim.quorum.nodes import NodesWorld
from kvorum.chaos.targets import Target, TargetKind
from kvorum.raft.model.events import Resign
from kvorum.runtime.errors import InvariantViolated, required
from kvorum.runtime.memory_disk import MemoryDisk


class QuorumNemesis:
    """struck: faults that hit a node, by kind; outcomes of flipped bits are counted too."""

    def __init__(self, world: NodesWorld, operator: Operator) -> None:
        self.struck: Counter[str] = Counter()
        self._operator = operator
        self._world = world

    def strike(self, fault: Fault, kind: str = "") -> None:
        """Carry out a fault, and count it under its kind. A fault without a present target has no
        effect. Raises InvariantViolated for a fault that no world supports."""
        self.struck[kind or fault.func] += self._strike(fault)

    def _strike(self, fault: Fault) -> bool:
        match fault:
            case KillNode() | CutPower():
                return self._end_processes(fault)
            case FlipBits() | CutPowerAtDiskCall() | FailDiskCall() | FillDisk() | WipeDisk():
                return self._each(fault.target, partial(self._harm_disk, fault))
            case PauseNode() | ChangeClock() | ResetConnections():
                return self._each(fault.target, partial(self._disturb_node, fault))
            case TakeSnapshot() | MoveListener():
                return self._each(fault.target, partial(self._disturb_node, fault))
            case AddVoter():
                return self._each(fault.target, self._add_voter)
            case RemoveVoter():
                return self._each(fault.target, self._remove_voter)
            case TwoChanges():
                is_added = self._each(fault.added, self._add_voter)
                return self._each(fault.removed, self._remove_voter) or is_added
            case NetworkPartition() | CutLink():
                return self._cut_links(fault)
            case PartitionThenPowerCut():
                return self._partition_then_cut_power(fault)
            case HandOver():
                return self._each(ACTIVE_CONTROLLER, self._hand_over)
            case _:
                raise InvariantViolated(f"this world cannot do {fault.func}")

    def heal(self) -> None:
        """End all faults of links, disks and processes. A PartitionThenPowerCut under way still
        cuts the power at its time."""
        self._note("healed")
        self._world.network.heal()
        for node in self._world.nodes.values():
            node.disk.calm()
            node.start()
            if node.is_paused:
                node.resume()

    # Targets.

    def _ids(self, target: Target) -> tuple[int, ...]:
        """The ids of the target's nodes, each once; none if no node matches now."""
        match target.kind:
            case TargetKind.ACTIVE_CONTROLLER:
                leaders = [node for node in self._world.nodes.values() if node.is_leader]
                leader = max(leaders, key=lambda node: node.core.epoch, default=None)
                return () if leader is None else (leader.node_id,)
            case TargetKind.NODE:
                ids = [node_id for name in target.nodes for node_id in self._ids_named(name)]
                return tuple(dict.fromkeys(ids))
            case TargetKind.BROKERS:
                return self._world.broker_ids
            case TargetKind.ALL:
                return tuple(self._world.nodes)
            case _:
                raise InvariantViolated(f"the simulator knows no target {target.text()}")

    def _ids_named(self, name: str) -> tuple[int, ...]:
        """`node-3` is a node by its id; `broker-5` is a broker by its number, modulo the number of
        brokers."""
        kind, _, number = name.partition("-")
        if kind == "node":
            return (int(number),)
        ids = self._world.broker_ids
        return (ids[int(number) % len(ids)],) if ids else ()

    def _each(self, target: Target, act: Callable[[SimNode], bool]) -> bool:
        """Call `act` for each target node, except those that are down for good; True if it hit
        any."""
        nodes = [self._world.nodes.get(node_id) for node_id in self._ids(target)]
        hits = [act(node) for node in nodes if node is not None and not node.is_removed]
        return any(hits)

    def _note(self, text: str) -> None:
        self._world.timeline.note(f"fault: {text}")

    # Processes and disks.

    def _end_processes(self, fault: KillNode | CutPower) -> bool:
        nodes = [self._world.nodes.get(node_id) for node_id in self._ids(fault.target)]
        up = [node for node in nodes if node is not None and node.is_up]
        self._note(f"{fault.text()} at {[node.node_id for node in up]}")
        is_power_cut = isinstance(fault, CutPower)
        down_ms = lasts_ms(fault)
        for node in up:
            node.stop(is_power_cut=is_power_cut)
            node.start_later(down_ms)
            down_ms += fault.apart_ms if isinstance(fault, CutPower) else 0
        return bool(up)

    def _harm_disk(
        self,
        fault: FlipBits | CutPowerAtDiskCall | FailDiskCall | FillDisk | WipeDisk,
        node: SimNode,
    ) -> bool:
        self._note(f"node={node.node_id} {fault.text()}")
        match fault:
            case FlipBits():
                self._flip_bits(node, fault)
            case CutPowerAtDiskCall():
                node.disk.cut_power_after(fault.calls)
            case FailDiskCall():
                node.disk.fail(fault.operation, path_part=fault.path_part)
            case FillDisk():
                disk = node.disk
                disk.capacity_bytes = disk.used_bytes() + fault.room_bytes
                self._world.timeline.after(lasts_ms(fault), partial(_empty, disk))
            case WipeDisk():
                if not self._world.is_disk_expendable(node):
                    return False
                if node.is_up:
                    node.stop(is_power_cut=True)
                node.lose_disk()
                node.start_later(lasts_ms(fault))
            case _:
                assert_never(fault)
        return True

    def _flip_bits(self, node: SimNode, fault: FlipBits) -> None:
        """Damage a stopped node's disk and examine the result of recovery.

        Raft does not tolerate the loss of records that a voter acknowledged: the voter would vote
        with less than it acknowledged. So either the operator restores the original bytes, or the
        node is down for good. With dynamic voters the node comes back with an empty disk and
        another directory id; so does an observer, whose loss harms no one.
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
            if is_voter and not (fault.is_for_good and self._world.is_disk_expendable(node)):
                node.disk.restore(saved)
            elif is_voter and not node.config.is_dynamic:
                node.is_removed = True
                self.struck["removed for good"] += 1
            else:
                node.lose_disk()
        node.start_later(lasts_ms(fault))

    # Voters.

    def _add_voter(self, node: SimNode) -> bool:
        return self._operator.add(node.node_id)

    def _remove_voter(self, node: SimNode) -> bool:
        return self._operator.remove(node.node_id)

    def _hand_over(self, leader: SimNode) -> bool:
        if leader.is_paused:
            return False
        self._note(f"hand-over node={leader.node_id}")
        leader.deliver(Resign())
        return True

    # Time and links.

    def _disturb_node(
        self,
        fault: PauseNode | ChangeClock | ResetConnections | TakeSnapshot | MoveListener,
        node: SimNode,
    ) -> bool:
        if not node.is_up:
            return False
        self._note(f"node={node.node_id} {fault.text()}")
        match fault:
            case PauseNode():
                if node.is_paused:
                    return False
                node.pause()
                resume = partial(_resume, node, node.incarnation)
                self._world.timeline.after(lasts_ms(fault), resume)
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
                node.start_later(0)
            case _:
                assert_never(fault)
        return True

    def _cut_links(self, fault: NetworkPartition | CutLink) -> bool:
        links: list[Link]
        if isinstance(fault, NetworkPartition):
            side = self._ids(fault.target)
            others = [i for i in self._ids(fault.away_from) if i not in side]
            links = [link for i in side for j in others for link in ((i, j), (j, i))]
        else:
            sources, destinations = self._ids(fault.source), self._ids(fault.destination)
            links = [(i, j) for i in sources for j in destinations]
            if fault.both_ways:
                links += [(j, i) for i, j in links]
        self._note(fault.text())
        self._world.network.block(links)
        unblock = partial(self._world.network.unblock, links)
        self._world.timeline.after(lasts_ms(fault), unblock)
        return bool(links)

    def _partition_then_cut_power(self, fault: PartitionThenPowerCut) -> bool:
        if not self._ids(ACTIVE_CONTROLLER):
            return False
        self._cut_links(
            NetworkPartition(target=ACTIVE_CONTROLLER, away_from=ALL, duration_ms=fault.duration_ms)
        )
        end = CutPower(target=ALL, duration_ms=fault.down_ms)
        self._world.timeline.after(fault.duration_ms, partial(self.strike, end, CRASH_ALL))
        return True


def lasts_ms(fault: Fault) -> int:
    """The time after which a simulated fault ends by itself."""
    return required(duration_of(fault), "a simulated fault has a duration")


def _empty(disk: MemoryDisk) -> None:
    disk.capacity_bytes = None


def _resume(node: SimNode, incarnation: int) -> None:
    if node.is_paused and node.incarnation == incarnation:
        node.resume()
