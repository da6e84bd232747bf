"""The image at any offset, of what a node sent and of a snapshot."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.metadata.image.record_codec import UnreadableRecord
from kvorum.metadata.image.records import Topic
from kvorum.metadata.inspect.history import MetadataCopy, OffsetNotHeld, history_of, image_of
from kvorum.runtime.errors import CorruptData
from kvorum.storage.format.batch import build_batch
from tests.test_metadata.folders import batches_of, records_of_seed, replayed, snapshot_bytes


def copy_of(records, *, seed=0, base=0):
    """The log of a node that took a snapshot at `base` and has not trimmed its segments to it."""
    batches = batches_of(records, random.Random(seed))
    sent, at = [], 0
    for batch in batches:
        count = int.from_bytes(batch[57:61], "big")
        if at + count > base:
            sent.append(bytes(batch))
        at += count
    snapshot = snapshot_bytes(replayed(records, base)) if base else b""
    return MetadataCopy(snapshot=snapshot, records=b"".join(sent), high_watermark=len(records))


@given(st.integers(0, 20), st.data())
@settings(deadline=None, max_examples=25)
def test_image_at_every_offset_is_that_of_the_records_below_it(seed, data):
    records = records_of_seed(seed)
    base = data.draw(st.integers(0, len(records)))
    history = history_of(copy_of(records, seed=seed, base=base), name="it")
    first = base if history.log_start_offset else 0
    assert (history.first_offset, history.end_offset) == (first, len(records))
    for offset in range(first, len(records) + 1):
        assert history.image_at(offset) == replayed(records, offset)
    assert history.image_at() == image_of(copy_of(records, base=base))


@given(st.integers(0, 20), st.integers(1, 100), st.integers(1, 100))
@settings(deadline=None, max_examples=25)
def test_history_that_grew_is_the_history_read_whole(seed, cut, base):
    records = records_of_seed(seed)
    base = min(base, len(records) - 1)
    cut = max(base, min(cut, len(records)))
    rng = random.Random(seed)
    early, late = batches_of(records[:cut], rng), batches_of(records, rng, start=cut)
    whole = history_of(MetadataCopy(records=b"".join(early + late)), name="it")
    grown = history_of(MetadataCopy(records=b"".join(early)), name="it").extended(
        MetadataCopy(records=b"".join(late))
    )
    assert grown == whole
    image = history_of(MetadataCopy(records=b"".join(early)), name="it").image_at()
    assert grown.advance(image, grown.end_offset) == whole.image_at()
    trimmed = copy_of(records, base=base)
    assert grown.extended(trimmed).first_offset in (0, base)
    assert grown.extended(trimmed).image_at() == whole.image_at()


def test_offsets_beyond_are_refused_with_the_range():
    records = records_of_seed(1)
    history = history_of(copy_of(records, base=20), name="the thing")
    end = len(records)
    for offset in (19, end + 1):
        with pytest.raises(OffsetNotHeld, match=f"at offset {offset}: it reaches 20 to {end}"):
            history.image_at(offset)
    with pytest.raises(OffsetNotHeld, match=rf"to {end} \(exclusive\), not from 0 to 5"):
        history.check_log_range(0, 5)
    only = history_of(MetadataCopy(snapshot=snapshot_bytes(replayed(records, 9))), name="it")
    with pytest.raises(OffsetNotHeld, match=r"at offset 3: it reaches 9$"):
        only.image_at(3)


def test_nothing_at_all_is_the_empty_image():
    history = history_of(MetadataCopy(), name="it")
    assert history.image_at() == history.image_at(0) == EMPTY_IMAGE
    assert list(history.entries()) == [] and history.timestamp_at() == 0


def test_entries_name_every_record_with_its_place():
    records = records_of_seed(3)
    history = history_of(copy_of(records), name="it")
    entries = list(history.entries())
    assert [entry.offset for entry in entries] == list(range(len(records)))
    assert [entry.record for entry in entries] == records
    assert entries[0].type == "LeaderChange" and entries[0].fields["leaderId"] == 1
    assert {entry.type for entry in entries[1:]} == {type(r).__name__ for r in records[1:]}
    assert [e.offset for e in history.entries(5, 9)] == [5, 6, 7, 8]
    assert history.timestamp_at(1) == 1000
    assert history.timestamp_at() == entries[-1].timestamp_ms


def test_records_that_do_not_fit_are_damage_with_their_offset():
    records = [None, Topic("t", b"t" * 16), Topic("t", b"t" * 16)]
    history = history_of(copy_of(records), name="it")
    assert history.image_at(2).topic("t") is not None
    with pytest.raises(CorruptData, match="the record at offset 2: topic id used twice"):
        history.image_at()


def test_record_of_a_newer_build_is_refused_with_the_source():
    batch = bytes(build_batch([(None, b"\x92\xcc\xfa\x00")], timestamp_ms=1))
    history = history_of(MetadataCopy(records=batch), name="the thing")
    with pytest.raises(UnreadableRecord, match=r"^the thing: .* type 250 is unknown"):
        history.image_at()
