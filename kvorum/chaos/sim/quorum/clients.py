"""Clients of the replicated list: appends and reads, and the answers to each.

A reply waits as in the controller's purgatory (`metadata.controller.loop`): a decision of the
leader is answered once all earlier appends are committed in the leader's own epoch. There are two
kinds of read:

- A barrier read appends a record of its own, so its answer depends on a commit after its
  invocation. It is checked for linearizability, with all appends.
- A leader read appends nothing, like the controller's own reads. A deposed leader that does not
  know of its successor answers from its own state, so leader reads may be stale. They are checked
  within each epoch and against the committed order, and the stale ones are counted.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from kvorum.chaos.sim.quorum.checks.checked_node import CheckedNode
from kvorum.chaos.sim.quorum.model.linearizability import (
    ClientOperation,
    Kind,
    Outcome,
    check_linearizable,
    check_prefix,
    check_real_time,
    stale_reads,
)
from kvorum.chaos.sim.quorum.model.state import VALUE_PREFIX
from kvorum.chaos.sim.quorum.node import SimNode
from kvorum.chaos.sim.quorum.nodes import NodesWorld
from kvorum.chaos.sim.quorum.process import NodeListener

CLIENT_TIMEOUT_MS = 3_000
"""After this time without an answer a client takes the outcome as unknown."""

REQUESTS_TOGETHER_MAX = 3
"""Requests that reach the leader in one turn of its loop and share an append."""

PARKED_MAX = 20_000
"""Limit of parked replies at one node; further requests are refused, as by the controller."""


LEADER_READS, LEADER_READS_OF_SEVERAL = 0.2, 0.7
"""Share of requests that are leader reads; the second applies while several nodes act as leader."""

BARRIER_READS, ANY_NODE = 0.15, 0.05
"""Share of the other requests that are barrier reads; share of all requests that go to a random
node although there is a leader."""


@dataclass(slots=True, kw_only=True)
class _Request:
    """operation: the client's operation.
    record: the bytes that it appends, empty for a leader read.
    """

    operation: ClientOperation
    record: bytes
    epoch: int = -1
    is_settled: bool = False


@dataclass(slots=True, kw_only=True)
class _Parked:
    end_offset: int
    request: _Request
    result: tuple[int, bytes]


@dataclass(slots=True)
class _Waiting:
    """Replies that are parked at one process of one node."""

    incarnation: int = 0
    epoch: int = -1
    parked: deque[_Parked] = field(default_factory=deque)


class Workload(NodeListener, Protocol):
    """The clients of a world: they send requests to the nodes, and check the answers.

    is_busy: while True, requests are sent every interval_ms.
    """

    is_busy: bool
    interval_ms: int

    def ask(self) -> None:
        """Send requests now, and again every interval_ms while is_busy."""

    def check_history(self) -> None:
        """Raise CheckFailed if the answers contradict each other or the log."""

    def stale_count(self) -> int:
        """The number of stale reads."""

    def outcome_counts(self) -> dict[str, int]:
        """The number of operations by outcome."""


class Clients:
    """is_busy: while True, requests are sent every interval_ms."""

    def __init__(self, world: NodesWorld, rng: random.Random) -> None:
        self.is_busy = True
        self.interval_ms = world.scenario.propose_interval_ms
        self._world = world
        self._rng = rng
        self._requests: list[_Request] = []
        self._waiting: dict[int, _Waiting] = {}
        self._last_number = 0

    def ask(self) -> None:
        """Send a few requests, and again every interval_ms while is_busy."""
        if not self.is_busy:
            return
        timeline = self._world.timeline
        timeline.after(self.interval_ms, self.ask)
        leaders = sum(node.is_leader for node in self._world.nodes.values())
        share = LEADER_READS if leaders <= 1 else LEADER_READS_OF_SEVERAL
        if self._is_quiet() or self._rng.random() < share:
            operation = ClientOperation(kind=Kind.READ, invoked=timeline.events)
            requests = [_Request(operation=operation, record=b"")]
        else:
            count = self._rng.randint(1, REQUESTS_TOGETHER_MAX)
            requests = [self._request() for _ in range(count)]
        self._requests += requests
        target = self._target(is_leader_read=not requests[0].record)
        timeline.after(self._delay_ms(), partial(self._arrive, target, requests))
        timeline.after(CLIENT_TIMEOUT_MS, partial(self._give_up, requests))

    def on_committed(self, node: CheckedNode, high_watermark: int) -> None:
        """Answer the requests that are committed now."""
        waiting = self._waiting.get(node.node_id)
        if waiting is None or waiting.incarnation != node.incarnation or not node.is_leader:
            return
        while waiting.parked and waiting.parked[0].end_offset <= high_watermark:
            self._answer(waiting.parked.popleft())

    def on_leader_changed(self, node: CheckedNode) -> None:
        """End the requests that are parked at a node which is no longer the leader; their outcome
        is unknown."""
        waiting = self._waiting.pop(node.node_id, None)
        if waiting is None:
            return
        if waiting.incarnation == node.incarnation:
            if node.is_leader and waiting.epoch == node.core.epoch:
                self._waiting[node.node_id] = waiting
                return
            for parked in waiting.parked:
                self._reply(parked.request, Outcome.UNKNOWN)

    def check_history(self) -> None:
        """Raise CheckFailed if the answers contradict each other or the log."""
        values = self._world.checks.committed_values()
        strict = [r.operation for r in self._requests if r.record]
        check_linearizable(strict, values)
        position_of = {value: index for index, value in enumerate(values, 1)}
        by_epoch: dict[int, list[tuple[int, ClientOperation]]] = {}
        for request in self._requests:
            operation = request.operation
            if operation.outcome is not Outcome.OK:
                continue
            if operation.kind is Kind.READ:
                check_prefix(operation, values)
                placed = (operation.count, operation)
            else:
                placed = (position_of[operation.value], operation)
            by_epoch.setdefault(request.epoch, []).append(placed)
        for operations in by_epoch.values():
            check_real_time(operations)

    def stale_count(self) -> int:
        """The number of leader reads that missed a value which was acknowledged before they
        began."""
        operations = [request.operation for request in self._requests]
        return stale_reads(operations, self._world.checks.committed_values())

    def outcome_counts(self) -> dict[str, int]:
        """The number of operations by outcome."""
        counts = {outcome.value: 0 for outcome in Outcome}
        for request in self._requests:
            counts[request.operation.outcome.value] += 1
        return counts

    # The path of a request.

    def _target(self, *, is_leader_read: bool) -> SimNode:
        """Mostly the newest leader, sometimes a random node. A leader read goes to any node that
        acts as leader, since clients that use only the newest leader never see a deposed leader's
        answers."""
        nodes = list(self._world.nodes.values())
        leaders = [node for node in nodes if node.is_leader]
        if not leaders or self._rng.random() < ANY_NODE:
            return self._rng.choice(nodes)
        if is_leader_read:
            return self._rng.choice(leaders)
        return max(leaders, key=lambda node: node.core.epoch)

    def _is_quiet(self) -> bool:
        """True in times without appends: a deposed leader's reads would wait for its uncommitted
        appends."""
        quiet_ms = self._world.scenario.quiet_ms
        return self._world.network.is_rough and (
            quiet_ms > 0 and self._world.timeline.now_ms // quiet_ms % 2 == 1
        )

    def _request(self) -> _Request:
        self._last_number += 1
        moment = self._world.timeline.events
        if self._rng.random() < BARRIER_READS:
            operation = ClientOperation(kind=Kind.READ, invoked=moment)
            return _Request(operation=operation, record=b"barrier%d" % self._last_number)
        value = VALUE_PREFIX + b"%d" % self._last_number
        operation = ClientOperation(kind=Kind.APPEND, invoked=moment, value=value)
        return _Request(operation=operation, record=value)

    def _arrive(self, node: SimNode, requests: list[_Request]) -> None:
        if node.is_up:
            node.submit(partial(self._decide, node, requests))
        elif not node.is_dark:
            self._refuse(requests)

    def _decide(self, node: SimNode, requests: list[_Request]) -> None:
        waiting = self._waiting.get(node.node_id)
        if not node.is_leader or (waiting and len(waiting.parked) >= PARKED_MAX):
            self._refuse(requests)
            return
        epoch, incarnation = node.core.epoch, node.incarnation
        records = [request.record for request in requests if request.record]
        if waiting is None or waiting.incarnation != incarnation:
            waiting = self._waiting[node.node_id] = _Waiting(incarnation=incarnation, epoch=epoch)
        # Parked before the append: a quorum of one may commit the append before `propose` returns.
        end_offset = node.core.log.end_offset
        count, last = node.mirror.state()
        for request in requests:
            request.epoch = epoch
            end_offset += bool(request.record)
            if request.record and request.operation.kind is Kind.APPEND:
                count, last = count + 1, request.record
            waiting.parked.append(
                _Parked(end_offset=end_offset, request=request, result=(count, last))
            )
        if records:
            node.propose(records)
        if node.is_leader and node.incarnation == incarnation:
            self.on_committed(node, node.core.high_watermark)

    def _answer(self, parked: _Parked) -> None:
        request = parked.request
        if request.operation.kind is Kind.APPEND:
            self._world.checks.acknowledge(parked.end_offset - 1, request.record)
        self._reply(request, Outcome.OK, parked.result)

    def _refuse(self, requests: list[_Request]) -> None:
        for request in requests:
            self._reply(request, Outcome.FAILED)

    def _reply(
        self, request: _Request, outcome: Outcome, result: tuple[int, bytes] = (0, b"")
    ) -> None:
        def arrive() -> None:
            if request.is_settled:
                return
            request.is_settled = True
            operation = request.operation
            operation.outcome = outcome
            operation.returned = self._world.timeline.events
            operation.count, operation.last = result

        self._world.timeline.after(self._delay_ms(), arrive)

    def _give_up(self, requests: list[_Request]) -> None:
        for request in requests:
            request.is_settled = True

    def _delay_ms(self) -> int:
        return self._rng.randint(0, self._world.scenario.delay_ms_max)
