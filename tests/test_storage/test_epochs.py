"""The epoch cache against a list that holds the epoch of every offset."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.runtime.errors import CorruptData, InvariantViolated
from kvorum.runtime.memory_disk import MemoryDisk
from kvorum.storage.files.leader_epochs import LeaderEpochCache, read_epochs


class ObviousCache:
    """One entry per record: its epoch. The log starts at `start`."""

    def __init__(self) -> None:
        self.start = 0
        self.by_offset: list[int] = []

    @property
    def end(self) -> int:
        return self.start + len(self.by_offset)

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        if epoch < 0 or not self.by_offset or epoch > self.by_offset[-1]:
            return (-1, -1)
        if epoch < self.by_offset[0]:
            return (epoch, self.start)
        known = max(e for e in self.by_offset if e <= epoch)
        count = sum(1 for e in self.by_offset if e <= epoch)
        return (known, self.start + count)


steps = st.lists(
    st.tuples(st.sampled_from(["append", "cut", "start"]), st.integers(0, 6)), max_size=40
)


@given(steps)
def test_every_answer_equals_the_obvious_cache(steps: list[tuple[str, int]]) -> None:
    cache, model, epoch = LeaderEpochCache(), ObviousCache(), 0
    for kind, amount in steps:
        if kind == "append":
            epoch += amount % 3
            cache.assign(epoch, model.end)
            model.by_offset += [epoch] * (1 + amount)
        elif kind == "cut":
            del model.by_offset[max(0, len(model.by_offset) - amount) :]
            cache.truncate_from_end(model.end)
        elif model.by_offset:
            amount = min(amount, len(model.by_offset) - 1)
            del model.by_offset[:amount]
            model.start += amount
            cache.truncate_from_start(model.start)
        for asked in range(-1, epoch + 2):
            assert cache.end_offset_for(asked, model.end) == model.end_offset_for(asked)
        for at, wanted in enumerate(model.by_offset):
            assert cache.epoch_of(model.start + at) == wanted


def test_an_epoch_without_batches_gives_way_to_the_next_at_the_same_offset() -> None:
    cache = LeaderEpochCache()
    cache.assign(1, 0)
    cache.assign(4, 10)
    cache.assign(5, 10)
    assert cache.entries == [(1, 0), (5, 10)]
    assert cache.end_offset_for(4, 20) == (1, 10)


def test_epochs_never_fall() -> None:
    cache = LeaderEpochCache([(4, 10)])
    with pytest.raises(InvariantViolated):
        cache.assign(3, 20)


def test_the_checkpoint_has_kafkas_text_and_comes_back() -> None:
    disk = MemoryDisk(random.Random(1))
    disk.write_atomic("c", LeaderEpochCache([(0, 0), (3, 1250)]).to_bytes())
    assert disk.read_bytes("c") == b"0\n2\n0 0\n3 1250\n"
    assert read_epochs(disk, "c").entries == [(0, 0), (3, 1250)]


@pytest.mark.parametrize(
    "text", [b"", b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\nx y\n", b"0\n2\n3 0\n2 5\n"]
)
def test_a_checkpoint_that_is_none_is_reported(text: bytes) -> None:
    disk = MemoryDisk(random.Random(1))
    disk.write_atomic("c", text)
    with pytest.raises(CorruptData):
        read_epochs(disk, "c")


@pytest.mark.parametrize(
    ("named", "ends", "entries"),
    [
        ([(1, 4), (2, 12), (3, 25), (5, 60)], {1: 0, 3: 20, 5: 40}, [(1, 4), (3, 25), (5, 50)]),
        ([(3, 10), (5, 10)], {1: 10, 3: 20, 5: 40}, [(1, 10), (3, 30), (5, 50)]),
        ([(2, 15), (4, 45)], {1: 10, 3: 20, 5: 40}, [(1, 10), (3, 30), (4, 45), (5, 50)]),
        ([(0, 0), (1, 5)], {1: 0, 3: 20, 5: 40}, [(0, 0), (1, 5), (3, 30), (5, 50)]),
        ([(0, 0)], {1: 7, 3: 20, 5: 40}, [(0, 7), (1, 10), (3, 30), (5, 50)]),
        ([(0, 2), (1, 7)], {1: 7, 3: 20, 5: 40}, [(1, 7), (3, 30), (5, 50)]),
        ([(0, 2)], {1: 10, 3: 20, 5: 40}, [(1, 10), (3, 30), (5, 50)]),
        ([], {1: 0}, [(1, 10), (3, 30), (5, 50)]),
    ],
    ids=[
        "lowered where there was room",
        "not below the batch before",
        "whole epochs, within their gaps",
        "those before the first batch",
        "one that began below the log's start begins there",
        "that one had no batch here",
        "a log that begins with its first batch had none before",
        "an empty checkpoint",
    ],
)
def test_a_checkpoint_restores_what_compaction_took(
    named: list[tuple[int, int]], ends: dict[int, int], entries: list[tuple[int, int]]
) -> None:
    cache = LeaderEpochCache([(1, 10), (3, 30), (5, 50)])
    cache.restore(named, ends)
    assert cache.entries == entries
