"""Cycles of dependencies between transactions, by Adya's names: G0 and G1c.

T1 -ww-> T2: both wrote to a partition, T1's record first. T1 -wr-> T2: T2 polled a record of T1.
Kafka does not isolate writes, so a cycle of ww edges (G0), or one with a ww edge in it, happens
there and is counted as a figure. A cycle of wr edges alone (G1c) breaks read-committed: each
transaction would have read what the next one had not committed. Jepsen's Kafka tests judge both in
the same way.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from kvorum.chaos.checks import catalogue
from kvorum.chaos.checks.columns import Bools, Ints
from kvorum.chaos.checks.evidence import PartitionEvidence, is_in
from kvorum.chaos.checks.gather import COMMITTED
from kvorum.chaos.checks.results import Board

Edges = tuple[Ints, Ints]
"""Sources and targets, as event indexes."""


class Cycles:
    """Collects the edges of all partitions, then looks for cycles."""

    def __init__(self) -> None:
        self._ww: list[Edges] = []
        self._wr: list[Edges] = []

    def examine(self, partition: PartitionEvidence, _: Board) -> None:
        """Take in the edges of one partition: of transactions that certainly committed, or one of
        whose records was read."""
        written = partition.written
        if not len(written):
            return
        seen = (written[:, 3] == COMMITTED) | is_in(written[:, 0], partition.present)
        written = written[seen]
        placed = written[written[:, 1] >= 0]
        placed = placed[np.argsort(placed[:, 1], kind="stable")]
        self._ww.append(_proper(placed[:-1, 2], placed[1:, 2]))
        events, values, _offsets = partition.reads_of_transactions()
        writers = written[np.argsort(written[:, 0], kind="stable")]
        if len(writers) and len(values):
            at = np.minimum(np.searchsorted(writers[:, 0], values), len(writers) - 1)
            hit = writers[at, 0] == values
            self._wr.append(_proper(writers[at[hit], 2], events[hit]))

    def finish(self, board: Board) -> None:
        """Enter the cycles."""
        ww, wr = _joined(self._ww), _joined(self._wr)
        _enter(board, catalogue.G0, ww, "wrote before")
        _enter(board, catalogue.G1C, wr, "was read by")
        mixed = components((np.append(ww[0], wr[0]), np.append(ww[1], wr[1])))
        board[catalogue.G1C].figures["cycles_with_writes"] = float(len(mixed))


def _proper(sources: Ints, targets: Ints) -> Edges:
    """The edges that lead to another transaction."""
    chosen = sources != targets
    return sources[chosen], targets[chosen]


def _joined(parts: list[Edges]) -> Edges:
    if not parts:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    return (
        np.concatenate([sources for sources, _ in parts]),
        np.concatenate([targets for _, targets in parts]),
    )


def _enter(board: Board, check: str, edges: Edges, verb: str) -> None:
    found = board[check]
    found.examined += len(edges[0])
    for component in components(edges):
        cycle = shortest_cycle(edges, component)
        names = " ".join(f"{event} {verb}" for event in cycle)
        found.add(f"transaction {names} {cycle[0]} (events of the history)")


def components(edges: Edges) -> list[list[int]]:
    """The strongly connected components with more than one node, by Tarjan's algorithm without
    recursion."""
    sources, targets = _backward_spans(edges)
    if not len(sources):
        return []
    nodes = np.unique(np.append(sources, targets))
    sources, targets = np.searchsorted(nodes, sources), np.searchsorted(nodes, targets)
    order = np.argsort(sources, kind="stable")
    begins = np.searchsorted(sources[order], np.arange(len(nodes) + 1)).tolist()
    found = _tarjan(len(nodes), begins, targets[order].tolist())
    return [sorted(nodes[component].tolist()) for component in found]


def _backward_spans(edges: Edges) -> Edges:
    """The edges that can be in a cycle.

    Events are numbered in the order of their times, so nearly all edges go to a higher number. A
    cycle descends from its highest number to its lowest over edges that go back, and every number
    between lies in the span of one of them. So only edges within such spans are kept.
    """
    sources, targets = edges
    back = targets < sources
    if not back.any():
        return sources[:0], targets[:0]
    lows, highs = targets[back], sources[back]
    order = np.argsort(lows)
    lows, highs = lows[order], np.maximum.accumulate(highs[order])
    return _covered(sources, targets, lows, highs)


def _covered(sources: Ints, targets: Ints, lows: Ints, highs: Ints) -> Edges:
    def inside(numbers: Ints) -> Bools:
        at = np.searchsorted(lows, numbers, side="right") - 1
        return (at >= 0) & (numbers <= highs[np.maximum(at, 0)])

    chosen = inside(sources) & inside(targets)
    return sources[chosen], targets[chosen]


def _tarjan(count: int, begins: list[int], targets: list[int]) -> list[list[int]]:
    """The components with more than one of the nodes 0 to count - 1; the edges of node n lead to
    targets[begins[n]:begins[n + 1]]."""
    numbers, lows = [-1] * count, [0] * count
    on_stack = bytearray(count)
    stack: list[int] = []
    found: list[list[int]] = []
    next_edge = begins[:count]
    numbered = 0
    for root in range(count):
        if numbers[root] >= 0:
            continue
        path = [root]
        while path:
            node = path[-1]
            if numbers[node] < 0:
                numbers[node] = lows[node] = numbered
                numbered += 1
                stack.append(node)
                on_stack[node] = 1
            if next_edge[node] < begins[node + 1]:
                target = targets[next_edge[node]]
                next_edge[node] += 1
                if numbers[target] < 0:
                    path.append(target)
                elif on_stack[target]:
                    lows[node] = min(lows[node], numbers[target])
                continue
            path.pop()
            if path:
                lows[path[-1]] = min(lows[path[-1]], lows[node])
            if lows[node] == numbers[node]:
                component: list[int] = []
                while not component or component[-1] != node:
                    component.append(stack.pop())
                    on_stack[component[-1]] = 0
                if len(component) > 1:
                    found.append(component)
    return found


def shortest_cycle(edges: Edges, component: list[int]) -> list[int]:
    """A shortest cycle through the first node of a component."""
    inside = np.isin(edges[0], component) & np.isin(edges[1], component)
    following: dict[int, list[int]] = {}
    for source, target in zip(edges[0][inside].tolist(), edges[1][inside].tolist(), strict=True):
        following.setdefault(source, []).append(target)
    first = component[0]
    reached_from: dict[int, int] = {}
    waiting = deque([first])
    while first not in reached_from:
        node = waiting.popleft()
        for target in following[node]:
            if target not in reached_from:
                reached_from[target] = node
                waiting.append(target)
    cycle = [reached_from[first]]
    while cycle[-1] != first:
        cycle.append(reached_from[cycle[-1]])
    return cycle[::-1]
