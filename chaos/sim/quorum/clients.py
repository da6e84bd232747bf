"""Clients of the replicated list: appends and reads, and what each of them was told.

A reply waits as in the controller's purgatory (`metadata.controller.loop`): what is decided at the
leader is answered once everything appended up to then is committed in the leader's own epoch. Two
kinds of read:

- A read by barrier appends a record of its own, so it rests on a commit after its invocation. It is
  checked for linearizability, with all appends.
- A leader read appends nothing, like the controller's own reads. A leader that was deposed and does
  not know it yet answers from what it has, so such reads may be stale; they are checked within each
  epoch and against the committed order, and the stale ones are counted.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kvorum.chaos.sim.quorum.checks.checked_node import CheckedNode
from kvorum.chaos.sim.quorum.checks.linearizability import (
    Kind,
    Operation,
    Outcome,
    check_linearizable,
    check_prefix,
    check_real_time,
    stale_reads,
)
from kvorum.chaos.sim.quorum.process import NodeListener
from kvorum.chaos.sim.quorum.state import VALUE_PREFIX

if TYPE_CHECKING:
    from kvorum.chaos.sim.kernel.network import Network
    from kvorum.chaos.sim.kernel.timeline import Timeline
    from kvorum.chaos.sim.quorum.checks.quorum_checks import QuorumChecks
    from kvorum.chaos.sim.quorum.node import SimNode
    from kvorum.chaos.sim.quorum.scenario import Scenario

CLIENT_TIMEOUT_MS = 3_000
"""A client that has heard nothing for so long takes the outcome for unknown."""

REQUESTS_TOGETHER_MAX = 3
"""Requests that reach the leader in one turn of its loop and share an append."""

PARKED_MAX = 20_000
"""Replies waiting at one node; more requests are refused, as the controller does."""


LEADER_READS, LEADER_READS_OF_SEVERAL = 0.2, 0.7
"""Share of turns that are a leader read; the second while several nodes take themselves for it."""

BARRIER_READS, ANY_NODE = 0.15, 0.05
"""Share of other requests that read by barrier, and of all that go to any node although there is a
leader."""


@dataclass(slots=True, kw_only=True)
class _Request:
    """operation: what its client asks. record: what it appends, empty for a leader read."""

    operation: Operation
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
    """Replies that wait at one process of one node."""

    incarnation: int = 0
    epoch: int = -1
    parked: deque[_Parked] = field(default_factory=deque)


class Workload(NodeListener, Protocol):
    """Whoever asks the nodes for things, and judges what they were told.

    is_busy: go on asking, every interval_ms.
    """

    is_busy: bool
    interval_ms: int

    def ask(self) -> None:
        """Ask for something, and again after a while as long as is_busy."""

    def check_history(self) -> None:
        """Raise CheckFailed if what was told cannot be."""

    def stale_count(self) -> int:
        """Reads answered from the past."""

    def outcome_counts(self) -> dict[str, int]:
        """Operations by what those who asked were told."""


class ClientWorld(Protocol):
    """The part of a world that clients see."""

    @property
    def scenario(self) -> Scenario: ...

    @property
    def timeline(self) -> Timeline: ...

    @property
    def network(self) -> Network: ...

    @property
    def nodes(self) -> Mapping[int, SimNode]: ...

    @property
    def checks(self) -> QuorumChecks: ...


class Clients:
    """is_busy: go on asking, every interval_ms."""

    def __init__(self, world: ClientWorld, rng: random.Random) -> None:
        self.is_busy = True
        self.interval_ms = world.scenario.propose_interval_ms
        self._world = world
        self._rng = rng
        self._requests: list[_Request] = []
        self._waiting: dict[int, _Waiting] = {}
        self._last_number = 0

    def ask(self) -> None:
        """Send a few requests, and again after a while as long as is_busy."""
        if not self.is_busy:
            return
        timeline = self._world.timeline
        timeline.after(self.interval_ms, self.ask)
        leaders = sum(node.is_leader for node in self._world.nodes.values())
        share = LEADER_READS if leaders <= 1 else LEADER_READS_OF_SEVERAL
        if self._is_quiet() or self._rng.random() < share:
            operation = Operation(kind=Kind.READ, invoked=timeline.events)
            requests = [_Request(operation=operation, record=b"")]
        else:
            count = self._rng.randint(1, REQUESTS_TOGETHER_MAX)
            requests = [self._request() for _ in range(count)]
        self._requests += requests
        target = self._target(is_leader_read=not requests[0].record)
        timeline.after(self._delay_ms(), partial(self._arrive, target, requests))
        timeline.after(CLIENT_TIMEOUT_MS, partial(self._give_up, requests))

    def on_committed(self, node: CheckedNode, high_watermark: int) -> None:
        """Answer what is committed now."""
        waiting = self._waiting.get(node.node_id)
        if waiting is None or waiting.incarnation != node.incarnation or not node.is_leader:
            return
        while waiting.parked and waiting.parked[0].end_offset <= high_watermark:
            self._answer(waiting.parked.popleft())

    def on_leader_changed(self, node: CheckedNode) -> None:
        """Replies that wait at a node which leads no more get no certain answer."""
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
        """Raise CheckFailed if what the clients saw cannot be."""
        values = self._world.checks.committed_values()
        strict = [r.operation for r in self._requests if r.record]
        check_linearizable(strict, values)
        position_of = {value: index for index, value in enumerate(values, 1)}
        by_epoch: dict[int, list[tuple[int, Operation]]] = {}
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
        """Leader reads that missed something acknowledged before they began."""
        operations = [request.operation for request in self._requests]
        return stale_reads(operations, self._world.checks.committed_values())

    def outcome_counts(self) -> dict[str, int]:
        """Operations by what their clients were told."""
        counts = {outcome.value: 0 for outcome in Outcome}
        for request in self._requests:
            counts[request.operation.outcome.value] += 1
        return counts

    # A request's way.

    def _target(self, *, is_leader_read: bool) -> SimNode:
        """Mostly the newest leader, sometimes any node. A leader read goes to whoever takes itself
        for the leader: clients that know the newest one never see what a deposed one answers."""
        nodes = list(self._world.nodes.values())
        leaders = [node for node in nodes if node.is_leader]
        if not leaders or self._rng.random() < ANY_NODE:
            return self._rng.choice(nodes)
        if is_leader_read:
            return self._rng.choice(leaders)
        return max(leaders, key=lambda node: node.core.epoch)

    def _is_quiet(self) -> bool:
        """Nothing but leader reads: those of a deposed leader wait behind appends, if any came."""
        quiet_ms = self._world.scenario.quiet_ms
        return self._world.network.is_rough and (
            quiet_ms > 0 and self._world.timeline.now_ms // quiet_ms % 2 == 1
        )

    def _request(self) -> _Request:
        self._last_number += 1
        moment = self._world.timeline.events
        if self._rng.random() < BARRIER_READS:
            operation = Operation(kind=Kind.READ, invoked=moment)
            return _Request(operation=operation, record=b"barrier%d" % self._last_number)
        value = VALUE_PREFIX + b"%d" % self._last_number
        operation = Operation(kind=Kind.APPEND, invoked=moment, value=value)
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
        # Parked first: on a quorum of one the append may be committed before `propose` returns.
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
