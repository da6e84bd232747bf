"""An operator who changes the voter set, and the answers to the requests (as for the CLI's `quorum
add-voter`).

Raft cannot survive a voter set without a majority of existing disks, so the operator drops a
request for such a set. This check and the change are one step, at the moment when the request
reaches the leader.
"""

from __future__ import annotations

import random
from functools import partial

from kvorum.chaos.sim.quorum.model.linearizability import Outcome
from kvorum.chaos.sim.quorum.model.state import Change, ChangeKind, VoterKeys
from kvorum.chaos.sim.quorum.node import SimNode
from kvorum.chaos.sim.quorum.nodes import NodesWorld
from kvorum.raft.model.events import RequestReceived
from kvorum.raft.model.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    Response,
    VoterChangeRequest,
    VoterChangeResponse,
)
from kvorum.raft.model.voters import Voter
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.ids import UUID_ZERO

CHANGE_TIMEOUT_MS = 4_000
"""After this time without an answer the operator takes the outcome as unknown."""

ANY_NODE = 0.1
"""Share of requests that go to a random node although there is a leader."""

BROKER_ADDRESS = ("broker", 1)
"""The address given for a broker as voter; the leader must refuse such a request."""


class Operator:
    """changes: all changes that were requested."""

    def __init__(self, world: NodesWorld, rng: random.Random) -> None:
        self.changes: list[Change] = []
        self._world = world
        self._rng = rng

    def add(self, node_id: int) -> bool:
        """Request that this node, with its present disk, becomes a voter."""
        node = self._world.nodes[node_id]
        host, port = node.config.address or BROKER_ADDRESS
        directory_id = node.config.directory_id
        change = Change(kind=ChangeKind.ADD, node_id=node_id, directory_id=directory_id)
        voter = Voter(node_id, directory_id, host, port)
        request = AddVoterRequest(cluster_id=node.config.cluster_id, voter=voter)
        return self._ask(change, request)

    def remove(self, node_id: int) -> bool:
        """Request that this node is removed from the voters."""
        directory_id = UUID_ZERO
        if self._rng.random() < 0.5:
            committed = self._world.checks.committed.voters
            directory_id = dict(committed).get(node_id, UUID_ZERO)
        change = Change(kind=ChangeKind.REMOVE, node_id=node_id, directory_id=directory_id)
        cluster_id = self._world.nodes[node_id].config.cluster_id
        request = RemoveVoterRequest(
            cluster_id=cluster_id, node_id=node_id, directory_id=directory_id
        )
        return self._ask(change, request)

    def repair(self) -> bool:
        """One step towards a full voter set, after the faults have ended: voters whose disks are
        lost are removed, then controllers are added until there are as many voters as at first.
        True when done."""
        if any(not change.is_over for change in self.changes):
            return False
        world = self._world
        voters = world.checks.committed.voters
        gone = [node_id for node_id, _ in sorted(voters - world.living_disks())]
        if gone:
            self.remove(gone[0])
            return False
        ids = {node_id for node_id, _ in voters}
        spare = [i for i in world.scenario.controller_ids if i not in ids]
        if spare and len(ids) < world.scenario.voters:
            self.add(self._rng.choice(spare))
            return False
        return True

    def outcome_counts(self) -> dict[str, int]:
        """The number of changes by outcome."""
        counts = {f"voter changes {outcome.value}": 0 for outcome in Outcome}
        for change in self.changes:
            counts[f"voter changes {change.outcome.value}"] += 1
        return counts

    # The path of a request.

    def _ask(self, change: Change, request: VoterChangeRequest) -> bool:
        nodes = list(self._world.nodes.values())
        leaders = [node for node in nodes if node.is_leader]
        if not leaders:
            return False
        target = max(leaders, key=lambda node: node.core.epoch)
        if self._rng.random() < ANY_NODE:
            target = self._rng.choice(nodes)
        self.changes.append(change)
        timeline = self._world.timeline
        timeline.note(f"operator: {change} at node {target.node_id}")
        timeline.after(self._delay_ms(), partial(self._arrive, target, change, request))
        timeline.after(CHANGE_TIMEOUT_MS, partial(self._settle, change, Outcome.UNKNOWN))
        return True

    def _arrive(self, node: SimNode, change: Change, request: VoterChangeRequest) -> None:
        if node.is_up:
            node.submit(partial(self._hand_over, node, change, request))
        elif not node.is_dark:
            self._settle(change, Outcome.FAILED)

    def _hand_over(self, node: SimNode, change: Change, request: VoterChangeRequest) -> None:
        if node.is_leader and not self._world.has_disk_majority(_after(node.mirror.voters, change)):
            self._settle(change, Outcome.FAILED)
            return
        token = self._world.transport.token_for(partial(self._on_answer, change))
        node.deliver(RequestReceived(request, token))

    def _on_answer(self, change: Change, response: Response) -> None:
        if not isinstance(response, VoterChangeResponse):
            return
        outcome = Outcome.FAILED
        if response.error is ErrorCode.NONE:
            outcome = Outcome.OK
            self._world.voter_checks.on_change_done(change, response.voters)
        elif response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            # A leader that steps down during the change gives this answer too.
            outcome = Outcome.UNKNOWN
        self._world.timeline.after(self._delay_ms(), partial(self._settle, change, outcome))

    def _settle(self, change: Change, outcome: Outcome) -> None:
        if not change.is_over:
            change.is_over, change.outcome = True, outcome

    def _delay_ms(self) -> int:
        return self._rng.randint(0, self._world.scenario.delay_ms_max)


def _after(voters: VoterKeys, change: Change) -> VoterKeys:
    """The set that the change makes of these voters."""
    if change.kind is ChangeKind.ADD:
        return voters | {(change.node_id, change.directory_id)}
    return frozenset(key for key in voters if key[0] != change.node_id)
