"""Carries out faults with toxics on proxies and signals to processes, and undoes them exactly.

Each fault is written to the history when it is completely in force (`fault-begin`) and when it is
undone (`fault-end`), under one id. A fault of brokers names the partitions that it affects, so that
the history alone is enough to measure their fail-over.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from kvorum.chaos.fault_words import EVERY_CONNECTION, FaultOfLink
from kvorum.chaos.faults import (
    AddVoter,
    Bandwidth,
    ConditionFault,
    CutLink,
    ElectPreferredLeaders,
    FailDisk,
    Fault,
    FillDisk,
    HealLinks,
    KillNode,
    Latency,
    LimitData,
    LinkDown,
    LinkFault,
    NetworkPartition,
    OperatorFault,
    PacketLoss,
    PauseNode,
    Reassign,
    RemoveVoter,
    ResetPeer,
    RestartNode,
    ResumeNode,
    Roll,
    ShapingFault,
    Slice,
    SlowClose,
    SlowDisk,
    StepClock,
    StopNode,
    WipeDisk,
    duration_of,
    toxicity_of,
)
from kvorum.chaos.history import FAULT_BEGIN, FAULT_END, INFO, NEMESIS, HistoryWriter
from kvorum.chaos.live.faults.administration import request_of
from kvorum.chaos.live.faults.conditions import ConditionKeeper
from kvorum.chaos.live.faults.undoing import bound_to, take, take_and_raise
from kvorum.chaos.live.faults.wipe_rules import why_not_wipe
from kvorum.chaos.live.host.links import Link, ProxyStream
from kvorum.chaos.live.host.packet_filter import PacketFilter
from kvorum.chaos.live.host.toxiproxy import Toxic, Toxiproxy
from kvorum.chaos.live.systems.protocol import System
from kvorum.chaos.roles import roles_of
from kvorum.chaos.targets import (
    CLIENTS,
    TargetKind,
    TargetView,
    UnresolvableTarget,
    resolve,
)
from kvorum.runtime.errors import KvorumError, required
from kvorum.runtime.fault_board import Hits


@dataclass(slots=True, kw_only=True)
class Injected:
    """A fault in force. The history's `fault-end` event gets outcome, hits and lost_packets.

    undo: the steps that are left to reverse it, in order.
    streams: those with a toxic of the fault.
    is_over: returns True once a fault that can end by itself has ended.
    hits: by node, the disk calls that a fault of disks has hit.
    lost_packets: the packets that a PacketLoss has dropped.
    """

    fault_id: int
    name: str
    fault: Fault
    nodes: tuple[str, ...]
    undo: list[Callable[[], None]] = field(default_factory=list)
    streams: tuple[tuple[Link, ProxyStream], ...] = ()
    is_over: Callable[[], bool] | None = None
    outcome: dict[str, object] = field(default_factory=dict)
    hits: dict[str, Hits] = field(default_factory=dict)
    lost_packets: int | None = None

    @property
    def is_of_links(self) -> bool:
        return isinstance(self.fault, LinkFault)


class Injector:
    """Applies faults to one cluster. Not thread-safe."""

    def __init__(
        self,
        *,
        system: System,
        toxiproxy: Toxiproxy | None,
        history: HistoryWriter,
        view: Callable[[], TargetView],
        rng: random.Random,
        packets: PacketFilter | None = None,
    ) -> None:
        self._packets = packets
        self._system = system
        self._toxiproxy = toxiproxy
        self._history = history
        self._view = view
        self._rng = rng
        self._next_id = 0
        self._active: dict[int, Injected] = {}
        self._wiped: set[str] = set()
        self._conditions = ConditionKeeper(system, is_taken_down=self._is_taken_down)

    def active(self) -> list[Injected]:
        """The faults in force, oldest first."""
        return list(self._active.values())

    def inject(self, name: str, fault: Fault) -> Injected | None:
        """Carry out a fault. Returns what was done, or None for faults that only reverse others.

        Raises UnresolvableTarget if no node matches a target now. Raises ToxiproxyError or
        KvorumError if a step fails or only the simulator supports the fault; then no part of the
        fault stays in force.
        """
        match fault:
            case HealLinks():
                take_and_raise(self._ends_of(lambda injected: injected.is_of_links))
                return None
            case ElectPreferredLeaders() | AddVoter() | RemoveVoter() | Reassign() | Roll():
                return self._request(name, fault)
            case RestartNode() | ResumeNode():
                self._reverse(fault)
                return None
            case KillNode() | PauseNode() | StopNode() | WipeDisk():
                return self._strike_nodes(name, fault)
            case FillDisk() | SlowDisk() | FailDisk() | StepClock():
                return self._strike_conditions(name, fault)
            case NetworkPartition() | FaultOfLink():
                return self._strike_links(name, fault)
            case _:
                raise KvorumError(f"a live run cannot do {fault.func}: it is simulated only")

    def end(self, injected: Injected) -> None:
        """Undo one fault; undoing it twice has no effect.

        A step that fails keeps none of the others from being done: the first error is raised at the
        end, when the history has the fault's end.
        """
        if injected.fault_id not in self._active:
            return
        failure = take(injected.undo)
        del self._active[injected.fault_id]
        details: dict[str, object] = {
            "id": injected.fault_id,
            "fault": injected.fault.func,
            **injected.outcome,
        }
        if failure is not None:
            details["problem"] = str(failure)
        if injected.hits:
            details["hits"] = {n: dataclasses.asdict(hits) for n, hits in injected.hits.items()}
        if injected.lost_packets is not None:
            details["lost_packets"] = injected.lost_packets
        self._history.append(process=NEMESIS, type=INFO, f=FAULT_END, details=details)
        if failure is not None:
            raise failure

    def end_all(self) -> None:
        """Undo everything and reset every proxy; raises the first error when all was tried."""
        steps = self._ends_of(lambda _: True)
        if self._toxiproxy is not None:
            steps.append(self._toxiproxy.reset)
        take_and_raise(steps)

    def _ends_of(self, chosen: Callable[[Injected], bool]) -> list[Callable[[], None]]:
        # Requests last: the nodes that other faults took down must answer their cancellation.
        in_order = sorted(self.active(), key=lambda one: one.is_over is not None)
        return [bound_to(self.end, injected) for injected in in_order if chosen(injected)]

    def _reverse(self, fault: RestartNode | ResumeNode) -> None:
        is_for_all = fault.target.kind in (TargetKind.KILLED, TargetKind.PAUSED)
        if is_for_all and not self._system.killed | self._system.paused:
            return
        names = resolve(fault.target, self._view(), self._rng)
        kind = KillNode | StopNode | WipeDisk if isinstance(fault, RestartNode) else PauseNode
        take_and_raise(
            self._ends_of(
                lambda one: isinstance(one.fault, kind) and bool(set(one.nodes) & set(names))
            )
        )

    def _strike_nodes(
        self, name: str, fault: KillNode | PauseNode | StopNode | WipeDisk
    ) -> Injected:
        view = self._view()
        names = resolve(fault.target, view, self._rng)
        able = tuple(node for node in names if node not in view.killed | view.paused)
        if not able:
            raise UnresolvableTarget(f"{', '.join(names)} is already killed or paused")
        self._refuse_too_many(able)
        if isinstance(fault, WipeDisk):
            reason = why_not_wipe(able, view, wiped=self._wiped)
            if reason is not None:
                raise UnresolvableTarget(reason)
        injected = self._new(name, fault, able)
        begun_ms = self._history.now_ms()
        with self._taken_back_on_failure(injected):
            for node in able:
                self._strike(injected, node)
        self._begin(injected, view, begun_ms, links=())
        return injected

    def _strike(self, injected: Injected, node: str) -> None:
        if isinstance(injected.fault, PauseNode):
            self._system.pause(node)
            injected.undo.append(bound_to(self._system.resume, node))
            return
        is_stop = isinstance(injected.fault, StopNode)
        take_down = self._system.stop_node if is_stop else self._system.kill
        take_down(node)
        injected.undo.append(bound_to(self._system.restart, node))
        if isinstance(injected.fault, WipeDisk):
            # Before the wipe: one that fails half-way has lost the disk all the same.
            self._wiped.add(node)
            self._system.wipe(node)

    def _strike_conditions(self, name: str, fault: ConditionFault) -> Injected:
        view = self._view()
        names = resolve(fault.target, view, self._rng)
        able = tuple(node for node in names if node not in view.killed)
        if not able:
            raise UnresolvableTarget(f"{', '.join(names)} does not run; restart it first")
        injected = self._new(name, fault, able)
        begun_ms = self._history.now_ms()

        def end(node: str) -> None:
            hits = self._conditions.end(node, fault, injected.fault_id)
            if not isinstance(fault, StepClock):
                injected.hits[node] = hits
            self._conditions.revive(node, fault, hits)

        with self._taken_back_on_failure(injected):
            for node in able:
                self._conditions.begin(node, fault, injected.fault_id)
                injected.undo.append(bound_to(end, node))
        self._begin(injected, view, begun_ms, links=())
        return injected

    def _is_taken_down(self, node: str) -> bool:
        """True if a fault in force has killed or stopped the node, and will start it."""
        return any(
            isinstance(injected.fault, KillNode | StopNode | WipeDisk) and node in injected.nodes
            for injected in self.active()
        )

    def _request(self, name: str, fault: OperatorFault) -> Injected:
        view = self._view()
        request = request_of(fault, self._system, view, self._rng)
        injected = self._new(name, fault, request.nodes)
        injected.is_over, injected.outcome = request.is_over, request.outcome
        if request.finish is not None:
            injected.undo.append(request.finish)
        begun_ms = self._history.now_ms()
        with self._taken_back_on_failure(injected):
            request.send()
        self._begin(injected, view, begun_ms, links=())
        if request.is_over is None:
            self.end(injected)
        return injected

    def _strike_links(self, name: str, fault: LinkFault) -> Injected:
        view = self._view()
        pairs = self._pairs(fault, view)
        both_ways = isinstance(fault, NetworkPartition) or fault.both_ways
        streams: list[tuple[Link, ProxyStream]] = []
        for source, destination in pairs:
            for stream in self._system.plan.streams(source, destination, both_ways=both_ways):
                if stream not in streams:
                    streams.append(stream)
        if not streams:
            ends = ", ".join(f"{a} -> {b}" for a, b in pairs)
            raise UnresolvableTarget(f"no link carries {ends}: {fault.text()}")
        is_toxic = not isinstance(fault, LinkDown | PacketLoss)
        if is_toxic:
            self._refuse_behind_a_partial_cut(streams)
        struck = (
            tuple(sorted({source for source, _ in pairs}))
            if isinstance(fault, NetworkPartition)
            else tuple(sorted({node for pair in pairs for node in pair}))
        )
        injected = self._new(name, fault, struck)
        injected.streams = tuple(streams) if is_toxic else ()
        begun_ms = self._history.now_ms()
        with self._taken_back_on_failure(injected):
            self._apply(injected, fault, streams)
        self._begin(injected, view, begun_ms, links=[link.name for link, _ in streams])
        return injected

    def _refuse_too_many(self, nodes: Sequence[str]) -> None:
        limit = self._system.max_nodes_down
        down = self._system.killed | self._system.paused | set(nodes)
        if limit is not None and len(down) > limit:
            raise UnresolvableTarget(
                f"{', '.join(sorted(down))} would be down at once; max_nodes_down is {limit}"
            )

    def _refuse_behind_a_partial_cut(self, streams: Sequence[tuple[Link, ProxyStream]]) -> None:
        """Refuse a toxic on a stream where a cut spares some connections.

        When toxiproxy adds a toxic to a connection, it draws anew if the previous toxic of that
        connection applies. The cut could then spare a connection whose bytes it had swallowed: the
        stream would go on with a hole, which no TCP network makes.
        """
        for injected in self.active():
            if not isinstance(injected.fault, CutLink):
                continue
            if toxicity_of(injected.fault) == EVERY_CONNECTION:
                continue
            for link, stream in streams:
                if (link, stream) in injected.streams:
                    raise UnresolvableTarget(
                        f"{injected.name!r} cuts a share of the connections of {link.name}: no "
                        "other toxic can join it there; wait until it ends, or set its toxicity to "
                        f"{EVERY_CONNECTION}"
                    )

    @contextlib.contextmanager
    def _taken_back_on_failure(self, injected: Injected) -> Iterator[None]:
        """Undo the part of a fault that was done before it failed. Raises KvorumError with both
        reasons if a step of that fails too."""
        try:
            yield
        except BaseException as error:
            failure = take(injected.undo)
            del self._active[injected.fault_id]
            if failure is not None and isinstance(error, Exception):
                # No step may be tried again as if nothing had happened.
                raise KvorumError(f"{error}; a part of it may be in force: {failure}") from error
            raise

    def _pairs(self, fault: LinkFault, view: TargetView) -> list[tuple[str, str]]:
        if isinstance(fault, NetworkPartition):
            left = resolve(fault.target, view, self._rng)
            right = resolve(fault.away_from, view, self._rng)
        else:
            left = resolve(fault.source, view, self._rng)
            right = resolve(fault.destination, view, self._rng)
        # If the two sets overlap, the members of the first are not cut off from each other.
        if isinstance(fault, NetworkPartition):
            right = tuple(node for node in right if node not in left)
        return [(a, b) for a in left for b in right if a != b]

    def _apply(
        self, injected: Injected, fault: LinkFault, streams: Sequence[tuple[Link, ProxyStream]]
    ) -> None:
        if isinstance(fault, PacketLoss):
            self._lose_packets(injected, fault, streams)
            return
        toxiproxy = required(self._toxiproxy, "a cluster without a toxiproxy has no links")
        if isinstance(fault, LinkDown):
            for link in {link.name: link for link, _ in streams}.values():
                toxiproxy.set_enabled(link, enabled=False)
                injected.undo.append(
                    lambda link=link: toxiproxy.set_enabled(link, enabled=True)  # type: ignore[misc]
                )
            return
        kind, attributes = _toxic_of(fault)
        for link, stream in streams:
            toxic = Toxic(
                name=f"{kind}-{stream.value}-{injected.fault_id}",
                kind=kind,
                stream=stream,
                attributes=attributes,
                toxicity=toxicity_of(fault),
            )
            injected.undo.append(_remove(toxiproxy, link, toxic.name))
            toxiproxy.add_toxic(link, toxic)

    def _lose_packets(
        self, injected: Injected, fault: PacketLoss, streams: Sequence[tuple[Link, ProxyStream]]
    ) -> None:
        packets = required(self._packets, "a cluster without proxies of its own loses no packets")
        name = f"fault_{injected.fault_id}"

        def end() -> None:
            try:
                injected.lost_packets = packets.lost(name)
            finally:
                packets.stop(name)

        packets.lose(name, streams, loss_percent=fault.loss_percent)
        injected.undo.append(end)

    def _new(self, name: str, fault: Fault, nodes: tuple[str, ...]) -> Injected:
        injected = Injected(fault_id=self._next_id, name=name, fault=fault, nodes=nodes)
        self._next_id += 1
        self._active[injected.fault_id] = injected
        return injected

    def _begin(
        self, injected: Injected, view: TargetView, begun_ms: float, *, links: Sequence[str]
    ) -> None:
        # The fault begins when all its toxics are set: an acknowledgement that passed between the
        # first and the last of them says nothing about fail-over.
        led, held = _concerned(injected.nodes, view)
        self._history.append(
            process=NEMESIS,
            type=INFO,
            f=FAULT_BEGIN,
            details={
                "id": injected.fault_id,
                "name": injected.name,
                "fault": injected.fault.func,
                "description": injected.fault.text(),
                "target": _target_text(injected.fault),
                "nodes": list(injected.nodes),
                "roles": roles_of(injected.nodes, view),
                "links": sorted(set(links)),
                "led_partitions": led,
                "held_partitions": held,
                "is_active_controller": view.active_controller in injected.nodes,
                "duration_ms": duration_of(injected.fault),
                "injection_ms": round(self._history.now_ms() - begun_ms, 3),
            },
        )


def _concerned(nodes: Sequence[str], view: TargetView) -> tuple[list[int], list[int]]:
    """The numbers of the partitions that the nodes lead, and of those of which they have a replica.
    A fault of the clients' links concerns every partition."""
    led: list[int] = []
    held: list[int] = []
    for (_, number), partition in sorted(view.partitions.items()):
        if partition.leader in nodes:
            led.append(number)
        if set(partition.replicas) & set(nodes):
            held.append(number)
    if CLIENTS in nodes and not held:
        held = sorted(number for _, number in view.partitions)
    return led, held


def _target_text(fault: Fault) -> str:
    for key in ("target", "source"):
        if key in {item.name for item in dataclasses.fields(fault)}:
            return str(getattr(fault, key).text())
    return ""


def _toxic_of(fault: CutLink | NetworkPartition | ShapingFault) -> tuple[str, dict[str, int]]:
    """Toxiproxy's name and attributes for a fault of a stream."""
    match fault:
        case CutLink() | NetworkPartition():
            # A timeout of 0 swallows bytes and keeps the connection open.
            return "timeout", {"timeout": 0}
        case Latency():
            return "latency", {"latency": fault.latency_ms, "jitter": fault.jitter_ms}
        case Bandwidth():
            return "bandwidth", {"rate": fault.kilobytes_per_second}
        case Slice():
            return "slicer", {
                "average_size": fault.slice_bytes,
                "size_variation": fault.variation_bytes,
                "delay": fault.delay_us,
            }
        case LimitData():
            return "limit_data", {"bytes": fault.limit_bytes}
        case ResetPeer():
            return "reset_peer", {"timeout": fault.delay_ms}
        case SlowClose():
            return "slow_close", {"delay": fault.delay_ms}


def _remove(toxiproxy: Toxiproxy, link: Link, name: str) -> Callable[[], None]:
    return lambda: toxiproxy.remove_toxic(link, name)
