"""One node's folder on a disk in memory, and ways to crash in the middle of something."""

import random

from kvorum.chaos.sim.kernel.async_disk import SimAsyncDisk, run_now
from kvorum.raft.model.effects import AppendProposed
from kvorum.raft.node.metadata_log import recover_log
from kvorum.raft.node.snapshot_files import SnapshotFiles, header_voters
from kvorum.runtime.memory_disk import MemoryDisk, PowerCut
from kvorum.snapshots.format import SnapshotHeader, file_name
from kvorum.snapshots.store import SnapshotStore
from kvorum.storage.format.batch import build_batch, iter_headers, iter_records

FOLDER = "/data/__cluster_metadata-0"
SEGMENT_BYTES = 300
"""Three or four batches, so that trimming removes whole segments."""


class Place:
    """One node's folder. `kept`: the records that it acknowledged, by offset, which must survive
    any crash."""

    def __init__(self, seed=0, *, is_dynamic=False):
        self.disk = MemoryDisk(random.Random(seed))
        self.disk.make_dirs(FOLDER)
        for folder in ("/", "/data"):
            self.disk.sync_dir(folder)
        self.is_dynamic = is_dynamic
        self.kept = {}
        self.open()

    def open(self):
        """Recover, as a start does."""
        self.files = SnapshotFiles(SnapshotStore(SimAsyncDisk(self.disk), FOLDER))
        self.found = run_now(self.files.open())
        self.replica_log, self.newest = recover_log(
            self.disk,
            FOLDER,
            self.found,
            is_dynamic=self.is_dynamic,
            now_ms=0,
            segment_bytes=SEGMENT_BYTES,
        )
        self.log = self.replica_log.log
        return self.replica_log.tail()

    def do(self, effect):
        self.replica_log.carry_out(effect, wall_ms=0)

    def append(self, *values, epoch=1):
        for value in values:
            offset = self.log.end_offset
            batch = build_batch([(None, value.encode())], timestamp_ms=5)
            self.do(AppendProposed(offset, epoch, (batch,)))

    def flush(self):
        self.log.flush()
        for offset, value in self.values().items():
            self.kept[offset] = value

    def values(self):
        """Value by offset, of what the log holds."""
        found = {}
        offset = self.log.start_offset
        while offset < self.log.end_offset:
            data = self.log.read(offset, bytes_max=1 << 20, end_offset=self.log.end_offset).read()
            for position, header in iter_headers(data):
                for record in iter_records(data, position, header):
                    if record.offset >= self.log.start_offset:
                        found[record.offset] = record.value
                offset = header.end_offset
        return found

    def take(self, offset, epoch=1, voters=None):
        header = SnapshotHeader(
            end_offset=offset,
            epoch=epoch,
            timestamp_ms=5,
            kraft_version=int(self.is_dynamic),
            voters=() if voters is None else header_voters(voters),
        )
        return run_now(self.files.take(header, [b"state"])).snapshot

    def path(self, snapshot):
        return f"{FOLDER}/{file_name(snapshot.offset, snapshot.epoch)}"

    def trim(self, start_offset):
        """Trim the log, and make that durable."""
        self.replica_log.trim(start_offset, wall_ms=0)
        self.disk.sync_dir(FOLDER)

    def restart(self):
        self.disk.crash()
        return self.open()

    def check(self):
        """Assert that snapshots and log form one history, and that no acknowledged record is
        lost."""
        tail = self.replica_log.tail()
        assert tail.start_offset == (tail.snapshots[0].offset if tail.snapshots else 0)
        for snapshot in tail.snapshots:
            assert snapshot.offset == tail.start_offset or tail.is_prefix(snapshot)
        assert self.newest == (tail.snapshots[-1] if tail.snapshots else None)
        values = self.values()
        assert sorted(values) == list(range(tail.start_offset, tail.end_offset))
        for offset, value in self.kept.items():
            assert offset < tail.start_offset or values[offset] == value
        return tail


def with_ten_records(seed=0, **options):
    place = Place(seed, **options)
    place.append("a", "b", "c", "d", "e")
    place.append("f", "g", "h", "i", "j", epoch=2)
    place.flush()
    return place


def crash_everywhere(prepare, act):
    """Run `act` once for each of its disk operations, and cut the power there; with several seeds,
    which decide what survives of unsynced bytes."""
    for seed in range(8):
        for operations in range(1000):
            place = prepare(seed)
            place.disk.cut_power_after(operations)
            try:
                act(place)
            except PowerCut:
                yield place
            else:
                break
        else:
            raise AssertionError("act has no end")
