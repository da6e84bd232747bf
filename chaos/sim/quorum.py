"""A quorum in virtual time: network, faults, clients and checks, all from one seed.

Phase one lets faults happen and checks safety after every event; phase two heals and demands a
leader and convergence within bounded virtual time. Nothing here waits, and nothing but the seed
decides.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass

from chaos.sim.node import SimNode
from chaos.sim.quorum_checks import QuorumChecks
from raft.events import RequestFailed, RequestReceived, ResponseReceived
from raft.messages import FetchRequest, FetchResponse, Request, Response
from raft.model import RaftConfig
from raft.replica_log import spans_of
from runtime.errors import InvariantViolated, invariant

HEAL_BOUND_MS = 120_000
"""Virtual time in which a healed quorum must have a leader and equal logs."""

TRACE_LINES_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumScenario:
    """How rough the world is; probabilities are per message or per fault tick.

    All of it is drawn from the seed by `scenario_of`, so that seeds differ in kind (swarm).
    """

    voters: int = 3
    observers: int = 1
    duration_ms: int = 20_000
    delay_ms_max: int = 5
    loss: float = 0.0
    duplication: float = 0.0
    fsync_ms_max: int = 5
    fault_interval_ms: int = 1_000
    crash: float = 0.2
    partition: float = 0.2
    pause: float = 0.1
    propose_interval_ms: int = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumOutcome:
    """What a run showed; digest is equal for equal seeds, whatever the process."""

    seed: int
    events: int
    epochs: int
    committed: int
    acknowledged: int
    digest: int


def scenario_of(seed: int) -> QuorumScenario:
    """The kind of world this seed stands for."""
    rng = random.Random(f"scenario-{seed}")
    return QuorumScenario(
        voters=rng.choice((1, 3, 3, 3, 5)),
        observers=rng.choice((0, 1)),
        delay_ms_max=rng.choice((1, 5, 30, 100)),
        loss=rng.choice((0.0, 0.0, 0.02, 0.1)),
        duplication=rng.choice((0.0, 0.05)),
        fsync_ms_max=rng.choice((0, 2, 20, 200)),
        fault_interval_ms=rng.choice((300, 1_000, 3_000)),
        crash=rng.choice((0.0, 0.2, 0.5)),
        partition=rng.choice((0.0, 0.2, 0.5)),
        pause=rng.choice((0.0, 0.2)),
        propose_interval_ms=rng.choice((5, 40, 200)),
    )


def run_seed(seed: int, scenario: QuorumScenario | None = None) -> QuorumOutcome:
    """Run one seed to its end. Raises InvariantViolated with the trace's end if a check fires."""
    world = QuorumWorld(seed, scenario or scenario_of(seed))
    try:
        return world.run()
    except InvariantViolated as error:
        trace = "\n".join(world.trace[-40:])
        raise InvariantViolated(
            f"{error}\nseed {seed} at {world.now_ms} ms; rerun: kvorum chaos sim --seed {seed}\n"
            f"{trace}"
        ) from error


class QuorumWorld:
    """Virtual time and everything in it."""

    def __init__(self, seed: int, scenario: QuorumScenario) -> None:
        self.seed = seed
        self.scenario = scenario
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.trace: list[str] = []
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._events = 0
        self._tokens: dict[int, tuple[int, int, int]] = {}  # token: sender, incarnation, id
        self._fetches: dict[int, int] = {}  # token of an unanswered fetch: receiver
        self._blocked: set[tuple[int, int]] = set()
        self._is_faulty = True
        self._digest = 0
        self._waiting: list[tuple[SimNode, int, int, int, bytes]] = []
        voters = tuple(range(1, scenario.voters + 1))
        self.checks = QuorumChecks(len(voters))
        self.nodes = {
            node_id: SimNode(
                self,
                RaftConfig(node_id=node_id, cluster_id="simulated", voters=voters),
                random.Random(f"{seed}-{node_id}"),
            )
            for node_id in range(1, scenario.voters + scenario.observers + 1)
        }
        self.checks.nodes = list(self.nodes.values())

    # The two phases.

    def run(self) -> QuorumOutcome:
        for node in self.nodes.values():
            node.start()
        self.after(self.scenario.fault_interval_ms, self._fault)
        self.after(self.scenario.propose_interval_ms, self._propose)
        self._run_until(self.scenario.duration_ms)
        self._heal()
        deadline_ms = self.now_ms + HEAL_BOUND_MS
        while not self._is_converged():
            invariant(
                self.now_ms < deadline_ms,
                "no convergence after healing: "
                + "; ".join(node.summary() for node in self.nodes.values()),
            )
            self._run_until(self.now_ms + 100)
        self.checks.log_matching()
        self.checks.converged()
        return QuorumOutcome(
            seed=self.seed,
            events=self._events,
            epochs=len(self.checks.leaders),
            committed=len(self.checks.committed),
            acknowledged=len(self.checks.acknowledged),
            digest=self._digest,
        )

    def _run_until(self, end_ms: int) -> None:
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, call = heapq.heappop(self._queue)
            self._events += 1
            call()
            self._acknowledge()
            if self._events % 500 == 0:
                self.checks.log_matching()
        self.now_ms = end_ms

    def _heal(self) -> None:
        self._is_faulty = False
        self._blocked.clear()
        for node in self.nodes.values():
            if not node.is_up:
                node.start()
            elif node.is_paused:
                node.resume()

    def _is_converged(self) -> bool:
        leaders = [node for node in self.nodes.values() if node.is_leader]
        if len(leaders) != 1:
            return False
        end_offset = leaders[0].core.high_watermark
        return end_offset == leaders[0].core.log.end_offset and all(
            node.core.log.end_offset == end_offset for node in self.nodes.values()
        )

    # What nodes use.

    def after(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Let something happen later."""
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._sequence, call))

    def fsync_ms(self, node: SimNode) -> int:
        return self.rng.randint(0, self.scenario.fsync_ms_max)

    def note(self, node: SimNode, text: str) -> None:
        self.trace.append(f"{self.now_ms:>6} node={node.node_id} {text}")
        if len(self.trace) > 2 * TRACE_LINES_MAX:
            del self.trace[:TRACE_LINES_MAX]
        # The order and content of all decisions, folded into one number.
        self._digest = (self._digest * 31 + sum(text.encode()) + self.now_ms) % (1 << 61)

    def send(self, sender: SimNode, receiver_id: int, correlation_id: int, req: Request) -> None:
        """A request enters the network."""
        receiver = self.nodes[receiver_id]
        if not receiver.is_up and not self._is_blocked(sender.node_id, receiver_id):
            # Nobody listens there: the connection is refused, which is a fact.
            failed = RequestFailed(receiver_id, correlation_id)
            self._deliver_later(sender.node_id, sender.incarnation, failed)
            return
        for _ in range(self._copies(sender.node_id, receiver_id)):
            self._sequence += 1
            token = self._sequence
            self._tokens[token] = (sender.node_id, sender.incarnation, correlation_id)
            if isinstance(req, FetchRequest):
                self._fetches[token] = receiver_id
            self._deliver_later(receiver_id, receiver.incarnation, RequestReceived(req, token))

    def reply(self, sender: SimNode, token: int, response: Response) -> None:
        """An answer enters the network."""
        origin = self._tokens.pop(token, None)
        self._fetches.pop(token, None)
        if origin is None:
            return
        if isinstance(response, FetchResponse) and response.records:
            response = _with_spans(response)
        receiver_id, incarnation, correlation_id = origin
        for _ in range(self._copies(sender.node_id, receiver_id)):
            event = ResponseReceived(sender.node_id, correlation_id, response)
            self._deliver_later(receiver_id, incarnation, event)

    # Network.

    def _copies(self, sender_id: int, receiver_id: int) -> int:
        if self._is_blocked(sender_id, receiver_id):
            return 0
        if self._is_faulty and self.rng.random() < self.scenario.loss:
            return 0
        if self._is_faulty and self.rng.random() < self.scenario.duplication:
            return 2
        return 1

    def _is_blocked(self, sender_id: int, receiver_id: int) -> bool:
        return (sender_id, receiver_id) in self._blocked

    def _deliver_later(
        self,
        receiver_id: int,
        incarnation: int,
        event: RequestReceived | ResponseReceived | RequestFailed,
    ) -> None:
        receiver = self.nodes[receiver_id]

        def arrive() -> None:
            if receiver.incarnation == incarnation:
                receiver.deliver(event)

        self.after(self.rng.randint(0, self.scenario.delay_ms_max), arrive)

    # Faults and clients.

    def _fault(self) -> None:
        if not self._is_faulty:
            return
        self.after(self.rng.randint(1, 2 * self.scenario.fault_interval_ms), self._fault)
        draw = self.rng.random()
        scenario = self.scenario
        if draw < scenario.crash:
            self._crash_or_start()
        elif draw < scenario.crash + scenario.partition:
            self._partition()
        elif draw < scenario.crash + scenario.partition + scenario.pause:
            self._pause_or_resume()
        else:
            self._blocked.clear()

    def _crash_or_start(self) -> None:
        node = self.nodes[self.rng.choice(sorted(self.nodes))]
        if not node.is_up:
            self.trace.append(f"{self.now_ms:>6} start node={node.node_id}")
            node.start()
            return
        self.trace.append(f"{self.now_ms:>6} crash node={node.node_id}")
        node.crash()
        for token, receiver_id in list(self._fetches.items()):
            if receiver_id == node.node_id:
                # The stream breaks under a fetch that waits for its answer.
                del self._fetches[token]
                origin = self._tokens.pop(token, None)
                if origin is not None and not self._is_blocked(receiver_id, origin[0]):
                    failed = RequestFailed(receiver_id, origin[2])
                    self._deliver_later(origin[0], origin[1], failed)

    def _partition(self) -> None:
        self._blocked.clear()
        ids = sorted(self.nodes)
        if self.rng.random() < 0.3:
            pair = self.rng.sample(ids, 2) if len(ids) > 1 else None
            if pair:
                self._blocked.add((pair[0], pair[1]))
        else:
            side = set(self.rng.sample(ids, self.rng.randint(1, len(ids))))
            self._blocked |= {(a, b) for a in ids for b in ids if (a in side) != (b in side)}
        self.trace.append(f"{self.now_ms:>6} blocked={sorted(self._blocked)}")

    def _pause_or_resume(self) -> None:
        node = self.nodes[self.rng.choice(sorted(self.nodes))]
        if not node.is_up:
            return
        if node.is_paused:
            node.resume()
        else:
            node.pause()
        self.trace.append(f"{self.now_ms:>6} paused={node.is_paused} node={node.node_id}")

    def _propose(self) -> None:
        if not self._is_faulty:
            return
        self.after(self.scenario.propose_interval_ms, self._propose)
        for node in self.nodes.values():
            if node.is_leader and not node.is_paused:
                self._sequence += 1
                value = b"%d" % self._sequence
                epoch = node.core.epoch
                offset = node.propose(value)
                self._waiting.append((node, node.incarnation, epoch, offset, value))

    def _acknowledge(self) -> None:
        """Tell clients what is committed, as the controller's purgatory would."""
        still = []
        for waiting in self._waiting:
            node, incarnation, epoch, offset, value = waiting
            if node.incarnation != incarnation or not node.is_leader or node.core.epoch != epoch:
                continue
            if node.core.high_watermark > offset:
                self.checks.acknowledge(offset, value)
            else:
                still.append(waiting)
        self._waiting = still


def _with_spans(response: FetchResponse) -> FetchResponse:
    return FetchResponse(
        epoch=response.epoch,
        leader_id=response.leader_id,
        error=response.error,
        high_watermark=response.high_watermark,
        diverging=response.diverging,
        spans=spans_of(response.records),
        records=response.records,
    )
