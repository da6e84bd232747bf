"""Every check of snapshots, trimmed logs and voter sets is fed a bad history and fires."""

from __future__ import annotations

import dataclasses
import random
from types import SimpleNamespace

import pytest

from kvorum.chaos.sim.kernel.async_disk import run_now
from kvorum.chaos.sim.quorum.model.mirror import Mirror
from kvorum.chaos.sim.quorum.model.recovery import DiskSettings, empty_disk, open_node
from kvorum.chaos.sim.quorum.model.state import ListState
from kvorum.raft.model.effects import DropSnapshots, WriteSnapshotChunk
from kvorum.raft.model.values import OffsetAndEpoch
from kvorum.raft.node.snapshot_files import header_voters
from kvorum.snapshots.format import SnapshotHeader
from tests.test_sim.fakes import A, B, C, FakeNode, fires, keys, voter_set, world

AT_TWO = OffsetAndEpoch(2, 1)


class NodeWithDisk(FakeNode):
    """A fake node whose disk and snapshot files are real."""

    def __init__(self, **fields):
        super().__init__(**fields)
        self.disk = empty_disk(random.Random(0))
        self.files = open_node(self.disk, DiskSettings(), now_ms=0).metadata.files

    def take(self, entries, *, epoch=1, voters=(1, 2), timestamp_ms=0):
        state = ListState().after(entries)
        header = SnapshotHeader(
            end_offset=len(entries),
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            kraft_version=1,
            voters=header_voters(voter_set(*voters)),
        )
        return run_now(self.files.take(header, state.payloads())).snapshot


@pytest.fixture
def checks():
    """Two nodes have committed A, B, C."""
    checks = world([A, B, C], [A, B, C])
    checks.on_committed(checks.nodes[0], 3)
    return checks.snapshots


def opened(node, *snapshots, damaged=(), log=(A, B, C), base=0):
    """The result of a start of the node."""
    metadata = SimpleNamespace(
        was_dynamic=True, damaged=damaged, files=node.files,
        replica_log=SimpleNamespace(snapshots=snapshots),
    )  # fmt: skip
    mirror = Mirror(log[base:], base=ListState().after(log[:base]))
    return SimpleNamespace(metadata=metadata, mirror=mirror)


# The contents of a snapshot.


def test_snapshot_of_what_was_committed_is_fine(checks):
    node = NodeWithDisk()
    state, voters = checks.on_snapshot(node, node.take([A, B]))
    assert (state.count, state.last, voters) == (2, b"vb", keys(1, 2))


@pytest.mark.parametrize(
    ("entries", "epoch", "match"),
    [
        ([A, A], 1, "is not what was committed"),
        ([A, B], 2, "is not what was committed"),
        ([A, B, C, C], 2, "is not what was committed"),
    ],
    ids=["other", "epoch", "beyond"],
)
def test_snapshot_of_something_else_fires(checks, entries, epoch, match):
    node = NodeWithDisk()
    with fires("SnapshotEqualsPrefix", match):
        checks.on_snapshot(node, node.take(entries, epoch=epoch))


def test_snapshot_with_other_voters_than_the_log_fires(checks):
    node = NodeWithDisk()
    with fires("SnapshotEqualsPrefix", "has the voters"):
        checks.on_snapshot(node, node.take([A, B], voters=(1, 2, 3)))


def test_snapshot_that_is_not_on_disk_or_not_whole_fires(checks):
    node = NodeWithDisk()
    with fires("SnapshotEqualsPrefix", "is missing"):
        checks.on_snapshot(node, AT_TWO)
    node.disk.flip_bits(node.files.path(node.take([A, B])), 40)
    with fires("SnapshotEqualsPrefix", "takes .* fails its checksum"):
        checks.on_snapshot(node, AT_TWO)


def test_two_contents_of_one_name_fire(checks):
    one, other = NodeWithDisk(node_id=1), NodeWithDisk(node_id=2)
    checks.on_snapshot(one, one.take([A, B], timestamp_ms=5))
    with fires("SnapshotsAgree", "node 2 and another have different bytes"):
        checks.on_snapshot(other, other.take([A, B], timestamp_ms=6))


# Where a log begins.


def test_log_that_begins_behind_its_oldest_snapshot_fires(checks):
    node = FakeNode(mirror=Mirror([A, B, C]), snapshots=(AT_TWO,))
    checks.after_event(node)
    node.log_start = 3
    with fires("SnapshotAtLogStart", "begins at 3, its oldest snapshot ends at 2"):
        checks.after_event(node)
    with fires("SnapshotAtLogStart", "trimmed to 3"):
        node.disk = SimpleNamespace(exists=lambda _: True)
        node.files = SimpleNamespace(path=str)
        checks.on_folder_changed(node, None)


def test_core_that_is_wrong_about_its_log_fires(checks):
    mirror = Mirror([A, B, C])
    checks.after_event(FakeNode(mirror=mirror, core_end=3, last_epoch=2))
    for wrong in ({"core_end": 2}, {"last_epoch": 1}):
        with fires("CoreKnowsLog", "ends at 3, its last record is of epoch 2"):
            checks.after_event(FakeNode(mirror=mirror, **wrong))


def test_removed_snapshot_that_the_log_rests_on_fires(checks):
    node = NodeWithDisk(mirror=Mirror([A, B, C]), snapshots=(AT_TWO,))
    node.take([A, B])
    checks.on_folder_changed(node, None)
    run_now(node.files.remove([AT_TWO]))
    with fires("SnapshotAtLogStart", "has removed"):
        checks.on_folder_changed(node, None)


def test_log_that_was_not_trimmed_fires(checks):
    node = NodeWithDisk(mirror=Mirror([A, B, C]), snapshots=(AT_TWO,), log_start=0)
    node.take([A, B])
    checks.on_folder_changed(node, DropSnapshots((), 0))
    with fires("LogTrimmed", "was trimmed to 2 and begins at 0"):
        checks.on_folder_changed(node, DropSnapshots((), 2))


# Starts.


def test_snapshot_that_a_stop_damaged_or_lost_fires(checks):
    node = NodeWithDisk(mirror=Mirror([A, B, C]), durable_end_offset=3, snapshots=(AT_TWO,))
    checks.on_opened(node, opened(node, node.take([A, B])))
    checks.after_event(node)
    with fires("SnapshotSurvives", "damaged that nothing damaged: torn"):
        checks.on_opened(node, opened(node, AT_TWO, damaged=("torn",)))
    with fires("SnapshotSurvives", "had .* on disk and came back without"):
        checks.on_opened(node, opened(node))
    node.has_decayed = True
    checks.on_opened(node, opened(node, damaged=("flipped",)))
    checks.forget(node)
    node.has_decayed = False
    checks.on_opened(node, opened(node))


def test_disk_that_forgot_its_kind_of_voters_fires(checks):
    found = opened(NodeWithDisk())
    found.metadata.was_dynamic = False
    with fires("SnapshotSurvives", "another kind"):
        checks.on_opened(NodeWithDisk(), found)


@pytest.mark.parametrize("log", [[A], [A, A, A]], ids=["short", "other"])
def test_log_that_does_not_lead_to_its_newest_snapshot_fires(checks, log):
    node = NodeWithDisk()
    with fires("SnapshotAtLogStart", "does not lead to"):
        checks.on_opened(node, opened(node, node.take([A, B]), log=log))


def test_start_that_gives_up_fsynced_records_for_a_snapshot_fires(checks):
    node = NodeWithDisk(mirror=Mirror([A, B, C]), durable_end_offset=3)
    snapshot = node.take([A, B])
    found = opened(node, snapshot, log=(A, B), base=2)
    node.mirror = Mirror([A, A])  # it never had what was committed
    checks.on_opened(node, found)
    node.mirror, node.durable_end_offset = Mirror([A]), 1
    checks.on_opened(node, found)
    with fires("DurableSurvives", "gives them up for a snapshot of 2"):
        node.mirror, node.durable_end_offset = Mirror([A, B, C]), 3
        checks.on_replacing(node, snapshot)


def test_leader_that_loads_a_snapshot_fires(checks):
    node = NodeWithDisk(is_leader=True)
    with fires("LeaderNeverLoads"):
        checks.on_replacing(node, node.take([A, B]))


def test_pieces_from_two_leaders_are_counted(checks):
    node = FakeNode()
    for leader_id, position in ((2, 0), (2, 16), (3, 32), (3, 48)):
        fake = dataclasses.replace(node)
        fake.leader_id = leader_id
        checks.on_piece(fake, WriteSnapshotChunk(AT_TWO, position, b""))
    assert checks.tally == {
        "snapshot pieces": 4, "snapshot transfers": 1, "snapshot transfers from two leaders": 1
    }  # fmt: skip
