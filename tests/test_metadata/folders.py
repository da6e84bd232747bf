"""Metadata logs and snapshots on a disk, and histories of them, for tests."""

from __future__ import annotations

import random

from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.metadata.image.record_codec import encode_record
from kvorum.metadata.image.snapshot_job import header_of, payloads_of
from kvorum.raft.model.voters import Voter, VoterSet
from kvorum.raft.node.control_records import LeaderChange, leader_change_batch
from kvorum.runtime.memory_disk import MemoryDisk
from kvorum.snapshots.format import (
    DATA,
    encode_footer,
    encode_frame,
    encode_header,
    file_name,
    preamble,
)
from kvorum.storage.format.batch import build_batch
from kvorum.storage.log.log import Log, LogConfig
from tests.test_metadata.worlds import busy_world

FOLDER = "/node/__cluster_metadata-0"
SEGMENT_BYTES = 2_000


class ReadOnly:
    """A disk that can only be read: it lacks the methods of all other calls."""

    def __init__(self, disk):
        self._disk = disk

    def list_dir(self, path):
        return self._disk.list_dir(path)

    def read_bytes(self, path):
        return self._disk.read_bytes(path)


def records_of_seed(seed):
    """A valid sequence of records, one an offset; offset 0 is the LeaderChange record (None)."""
    return [None, *busy_world(seed).records]


def replayed(records, end_offset, *, epoch=1):
    """The image made the slow way: replay every record below end_offset from the empty image."""
    delta = Delta(EMPTY_IMAGE)
    delta.replay_all(record for record in records[:end_offset] if record is not None)
    return delta.apply(end_offset=end_offset, epoch=epoch if end_offset else 0)


def batches_of(records, rng, *, start=0, epoch=1):
    """The records as batches of one to four, timestamps 1000 + offset of the batch."""
    made = []
    at = start
    while at < len(records):
        if records[at] is None:
            change = LeaderChange(1, VoterSet.of([Voter(1)]), (1,))
            made.append(
                leader_change_batch(change, base_offset=at, epoch=epoch, timestamp_ms=1000 + at)
            )
            at += 1
            continue
        size = rng.randint(1, 4)
        run = records[at : at + size]
        values = [(None, encode_record(record)) for record in run]
        made.append(build_batch(values, timestamp_ms=1000 + at, base_offset=at, leader_epoch=epoch))
        at += len(run)
    return made


def open_log(disk, folder=FOLDER):
    config = LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=-1, retention_bytes=-1,
                       max_message_bytes=1 << 20, file_delete_delay_ms=0)  # fmt: skip
    disk.make_dirs(folder)
    return Log.open(disk, folder, config, now_ms=0)


def write_log(disk, records, *, seed=0, folder=FOLDER):
    """A node's folder with all the records in segments of SEGMENT_BYTES."""
    log = open_log(disk, folder)
    for batch in batches_of(records, random.Random(seed)):
        log.append_as_follower(bytes(batch), now_ms=0)
    log.flush()
    disk.write_atomic(f"{folder}/quorum-state", b"{}")
    return log


def snapshot_bytes(image, timestamp_ms=7):
    payloads = list(payloads_of(image))
    return b"".join(
        [
            preamble(),
            encode_header(header_of(image, timestamp_ms=timestamp_ms)),
            *(encode_frame(DATA, payload) for payload in payloads),
            encode_footer(frames=len(payloads), data_bytes=sum(map(len, payloads))),
        ]
    )


def write_snapshot(disk, image, folder=FOLDER):
    path = f"{folder}/{file_name(image.end_offset, image.epoch)}"
    disk.make_dirs(folder)
    disk.write_atomic(path, snapshot_bytes(image))
    return path


def memory_disk():
    return MemoryDisk(random.Random(0))


def damage(disk, path, position):
    """Flip one bit of a file."""
    data = bytearray(disk.read_bytes(path))
    data[position] ^= 1
    disk.write_atomic(path, bytes(data))


def segments_in(disk, folder=FOLDER):
    return [f"{folder}/{name}" for name in disk.list_dir(folder) if name.endswith(".log")]
