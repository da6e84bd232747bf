"""The configurations of a run's nodes at their start, as `kvorum init` would write them."""

from __future__ import annotations

import random
from collections.abc import Mapping

from kvorum.chaos.sim.quorum.scenario import Scenario
from kvorum.raft.model.values import RaftConfig
from kvorum.raft.model.voters import Voter, VoterSet
from kvorum.runtime.errors import required
from kvorum.runtime.ids import new_uuid, uuid_text

CONTROLLER_PORT = 9_000


def configs_of(scenario: Scenario, rng: random.Random) -> dict[int, RaftConfig]:
    """A configuration for every node by its id; rng draws the ids of cluster and disks."""
    cluster_id = uuid_text(new_uuid(rng))
    bootstrap_ids = tuple(map(stand_in, scenario.controller_ids))
    return {
        node_id: RaftConfig(
            node_id=node_id,
            cluster_id=cluster_id,
            voters=() if scenario.is_dynamic else tuple(range(1, scenario.voters + 1)),
            directory_id=new_uuid(rng),
            # The quorum does not know a broker's listener.
            address=(f"host{node_id}", CONTROLLER_PORT)
            if node_id in scenario.controller_ids
            else None,
            bootstrap_ids=bootstrap_ids if scenario.is_dynamic else (),
            snapshot_chunk_bytes=scenario.snapshot_chunk_bytes,
        )
        for node_id in scenario.node_ids
    }


def stand_in(node_id: int) -> int:
    """The id (-2, -3, ...) that nodes use for this controller as a bootstrap server."""
    return -1 - node_id


def first_voters_of(scenario: Scenario, configs: Mapping[int, RaftConfig]) -> VoterSet:
    """The voters at the beginning."""
    ids = range(1, scenario.voters + 1)
    if not scenario.is_dynamic:
        return VoterSet.static(ids)
    return VoterSet.of(_voter(configs[node_id]) for node_id in ids)


def _voter(config: RaftConfig) -> Voter:
    host, port = required(config.address, "a voter is a controller")
    return Voter(config.node_id, config.directory_id, host, port)
