"""Formats the controllers of a new quorum whose voters can change (KIP-853).

Each first voter's directory gets an identity and the bootstrap checkpoint, which names all of them.
A directory that is to be copied to another host (kvorum init) gets its id there. Any other
controller's directory gets an identity alone: it joins as an observer until it is made a voter.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass

from kvorum.launch.cluster.plan import HOST, ClusterPlan
from kvorum.launch.cluster.secure_plan import first_credential
from kvorum.launch.directories.bootstrap_records import bootstrap_payloads
from kvorum.launch.directories.identity import claim_directory, prepare_directory
from kvorum.launch.directories.metadata_log import metadata_directory
from kvorum.metadata.image.records import Record
from kvorum.raft.model.voters import Voter, VoterSet
from kvorum.raft.node.snapshot_files import header_voters
from kvorum.raft.node.vote_store import FILE_NAME as VOTE_FILE
from kvorum.runtime.async_disk import OsAsyncDisk
from kvorum.runtime.disk import OsDisk
from kvorum.runtime.ids import UUID_ZERO, Uuid
from kvorum.snapshots.format import BOOTSTRAP_ID, SnapshotHeader
from kvorum.snapshots.store import SnapshotStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerPlace:
    """A controller to format: its id, its listener's address, and the directory of its log."""

    node_id: int
    host: str
    port: int
    directory: str


def format_voters(
    places: Sequence[ControllerPlace],
    *,
    cluster_id: str,
    rng: random.Random,
    records: Sequence[Record] = (),
) -> None:
    """Make these controllers the first voters. records: the cluster's first metadata, behind its
    feature levels. Raises ConfigError, OSError.

    A directory that has this node's identity already keeps it, so that a format that was
    interrupted can be done again.
    """
    ids = [claim(place, cluster_id=cluster_id, rng=rng) for place in places]
    _name_voters(places, ids, records)


def prepare_voters(
    places: Sequence[ControllerPlace], *, cluster_id: str, records: Sequence[Record] = ()
) -> None:
    """Prepare the directories of the first voters, to be copied to their hosts.

    The bootstrap checkpoint names the voters without directory ids. The first leader learns them
    from the voters' fetches (`raft.core.voter_changes.name_directories`).
    """
    for place in places:
        prepare(place, cluster_id=cluster_id)
    _name_voters(places, [UUID_ZERO] * len(places), records)


def _name_voters(
    places: Sequence[ControllerPlace], directory_ids: Sequence[Uuid], records: Sequence[Record]
) -> None:
    voters = VoterSet.of(
        Voter(place.node_id, directory_id, place.host, place.port)
        for place, directory_id in zip(places, directory_ids, strict=True)
    )
    asyncio.run(_write_checkpoints(places, voters, bootstrap_payloads(records)))


def claim(place: ControllerPlace, *, cluster_id: str, rng: random.Random) -> bytes:
    """Give a controller's directory an identity; returns its directory id. Raises ConfigError."""
    return claim_directory(
        OsDisk(), place.directory, node_id=place.node_id, cluster_id=cluster_id, rng=rng
    )


def prepare(place: ControllerPlace, *, cluster_id: str) -> None:
    """Prepare a controller's directory, to be copied to its host. Raises ConfigError, OSError."""
    prepare_directory(OsDisk(), place.directory, node_id=place.node_id, cluster_id=cluster_id)


def format_planned(plan: ClusterPlan, rng: random.Random) -> None:
    """Format the controllers of a plan with dynamic voters, unless one of them has ever run.

    Nothing is done for a plan with static voters. Raises ConfigError, OSError.
    """
    if not plan.voters or has_run(plan):
        return
    places = [
        ControllerPlace(node_id=node.node_id, host=HOST, port=node.port, directory=node.directory)
        for node in plan.nodes
        if node.role == "controller"
    ]
    records = (first_credential(plan.data_dir, rng),) if plan.is_secure else ()
    format_voters(places[: plan.voters], cluster_id=plan.cluster_id, rng=rng, records=records)
    for place in places[plan.voters :]:
        claim(place, cluster_id=plan.cluster_id, rng=rng)


def has_run(plan: ClusterPlan) -> bool:
    """True if a controller of the plan has ever run, and so may have the first metadata."""
    return any(
        os.path.exists(f"{metadata_directory(node.directory)}/{VOTE_FILE}")
        for node in plan.nodes
        if node.role == "controller"
    )


async def _write_checkpoints(
    places: Sequence[ControllerPlace], voters: VoterSet, payloads: Sequence[bytes]
) -> None:
    header = SnapshotHeader(
        end_offset=BOOTSTRAP_ID.end_offset,
        epoch=BOOTSTRAP_ID.epoch,
        timestamp_ms=0,
        kraft_version=1,
        voters=header_voters(voters),
    )
    for place in places:
        path = metadata_directory(place.directory)
        await SnapshotStore(OsAsyncDisk(), path).write(header, payloads)
