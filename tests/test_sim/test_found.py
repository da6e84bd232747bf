"""Bugs that seeds have found, each as the smallest run that shows it."""

from __future__ import annotations

import random
from collections.abc import Iterator

from kvorum.chaos.sim.kernel.async_disk import run_now
from kvorum.chaos.sim.quorum.model.recovery import DiskSettings, empty_disk, open_node
from kvorum.chaos.sim.quorum.model.state import ListState
from kvorum.raft.model.effects import ReplaceLog
from kvorum.raft.model.values import OffsetAndEpoch, VoteState
from kvorum.runtime.ids import UUID_ZERO
from kvorum.runtime.memory_disk import MemoryDisk, PowerCut
from kvorum.snapshots.format import SnapshotHeader
from kvorum.storage.format.batch import build_batch

SETTINGS = DiskSettings(static_voters=frozenset({(1, UUID_ZERO)}))
RECEIVED = OffsetAndEpoch(20, 5)


def replaced_but_for_a_power_cut() -> Iterator[MemoryDisk]:
    """Disks of a node that replaces its log, of epoch 1, by a snapshot of epoch 5. On each disk the
    power fails at another disk call of the replacement; on the last one it does not fail."""
    for calls in range(1_000):
        disk = empty_disk(random.Random(calls))
        metadata = open_node(disk, SETTINGS, now_ms=0).metadata
        metadata.replica_log.vote_store.save(VoteState(1))
        log = metadata.replica_log.log
        for number in range(3):
            batch = build_batch([(None, b"v%d" % number)], timestamp_ms=0)
            log.append_as_leader(batch, leader_epoch=1, now_ms=0)
        log.flush()
        header = SnapshotHeader(end_offset=20, epoch=5, timestamp_ms=0)
        run_now(metadata.files.take(header, ListState().payloads()))
        disk.cut_power_after(calls)
        try:
            metadata.replica_log.carry_out(ReplaceLog(RECEIVED), wall_ms=0)
        except PowerCut:
            disk.crash()
            yield disk
        else:
            disk.calm()
            disk.kill_process()
            yield disk
            return


def test_log_replaced_by_a_snapshot_ends_with_its_epoch_whenever_power_went():
    # Bad sequence of seed 1454: 1. The log of epoch 12 ends at 82. 2. ReplaceLog(119-14). 3. The
    # power fails at the fsync of leader-epoch-checkpoint.tmp. 4. The start finds an empty log at
    # 119 and the old checkpoint, (12, 71), which becomes (12, 119). 5. The node assumes that its
    # log ends with epoch 12. Its fetch (119, 12) is answered with a diverging epoch below its high
    # watermark, and the node stops; so it does after every start, until the leader has trimmed its
    # log into a later epoch. Its votes compare the wrong epoch too, but it has vouched for no
    # record that epoch 12 did not hold.
    for disk in replaced_but_for_a_power_cut():
        tail = open_node(disk, SETTINGS, now_ms=0).metadata.replica_log.tail()
        assert (tail.end_offset, tail.last_epoch) == (20, 5)
