"""Which folders a replica may take, and which it leaves alone."""

from __future__ import annotations

import random

import pytest

from broker.replica_store import ReplicaStore
from chaos.sim.disk import MemoryDisk
from runtime.errors import CorruptData
from storage.log import LogConfig

TOPIC_ID = bytes(range(16))


def made(disk: MemoryDisk) -> ReplicaStore:
    store = ReplicaStore(disk=disk, data_directory="data", rng=random.Random(1))
    store.load(is_clean=False)
    return store


def test_a_new_replica_begins_empty_and_makes_no_folder() -> None:
    disk = MemoryDisk(random.Random(1))
    opened = made(disk).open("t", TOPIC_ID, 0, LogConfig(), now_ms=0)
    assert (opened.log.start_offset, opened.log.end_offset, opened.has_identity) == (0, 0, False)
    assert not disk.exists("data/t-0")


def test_a_folder_that_appeared_since_the_start_is_no_new_replicas() -> None:
    disk = MemoryDisk(random.Random(1))
    store = made(disk)
    disk.make_dirs("data/t-0")
    with pytest.raises(CorruptData, match="no topic claims") as refused:
        store.open("t", TOPIC_ID, 0, LogConfig(), now_ms=0)
    assert refused.value.path == "data/t-0"
