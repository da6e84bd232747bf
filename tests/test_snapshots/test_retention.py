import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.runtime.errors import InvariantViolated
from kvorum.snapshots.format import SnapshotId
from kvorum.snapshots.retention import SnapshotFile, is_due, to_remove

FILES = st.lists(
    st.builds(
        SnapshotFile,
        id=st.builds(SnapshotId, st.integers(1, 50), st.integers(1, 5)),
        size_bytes=st.integers(0, 100),
        timestamp_ms=st.integers(0, 100),
    ),
    max_size=8,
    unique_by=lambda file: file.id,
)
LIMITS = st.fixed_dictionaries(
    {
        "log_bytes": st.integers(0, 200),
        "now_ms": st.integers(0, 200),
        "retention_bytes": st.integers(0, 400),
        "retention_ms": st.integers(0, 100),
        "retained_min": st.integers(1, 4),
    }
)


def slow_to_remove(files, log_bytes, now_ms, retention_bytes, retention_ms, retained_min):
    """The retention rule, written as plainly as possible."""
    left = sorted(files, key=lambda file: file.id)
    removed = []
    while len(left) > retained_min:
        size = log_bytes + sum(file.size_bytes for file in left)
        if now_ms - left[0].timestamp_ms > retention_ms or size > retention_bytes:
            removed.append(left.pop(0).id)
        else:
            break
    return tuple(removed)


@given(FILES, LIMITS)
def test_the_rule_is_kept_word_by_word(files, limits):
    assert to_remove(files, **limits) == slow_to_remove(files, **limits)


@given(FILES, LIMITS)
def test_the_oldest_go_without_a_gap_and_the_newest_always_stay(files, limits):
    removed = to_remove(files, **limits)
    ids = sorted(file.id for file in files)
    assert list(removed) == ids[: len(removed)]
    assert len(files) - len(removed) >= min(len(files), limits["retained_min"])


@given(FILES, LIMITS)
def test_after_a_removal_nothing_more_is_to_remove(files, limits):
    removed = to_remove(files, **limits)
    assert to_remove([f for f in files if f.id not in removed], **limits) == ()


def test_two_stay_however_old_and_large():
    files = [SnapshotFile(SnapshotId(n, 1), 1 << 40, 0) for n in (3, 1, 2)]
    assert to_remove(files, log_bytes=1 << 40, now_ms=1 << 50) == (SnapshotId(1, 1),)


def test_young_and_small_ones_stay():
    files = [SnapshotFile(SnapshotId(n, 1), 1 << 20, 0) for n in range(1, 10)]
    assert to_remove(files, log_bytes=0, now_ms=7 * 24 * 3_600_000) == ()
    assert len(to_remove(files, log_bytes=0, now_ms=7 * 24 * 3_600_000 + 1)) == 7


def test_the_newest_is_never_up_for_removal():
    with pytest.raises(InvariantViolated):
        to_remove([], log_bytes=0, now_ms=0, retained_min=0)


COUNTS = st.integers(0, 1 << 40)


@given(COUNTS, COUNTS)
def test_never_due_without_a_new_record(bytes_since, ms_since):
    assert not is_due(bytes_since=bytes_since, ms_since=ms_since, records_since=0)


@given(COUNTS, COUNTS, st.integers(1, 1 << 30), st.integers(1, 1 << 30), st.integers(0, 1 << 30))
def test_due_by_bytes_or_by_age(bytes_since, ms_since, records, bytes_max, interval_ms):
    due = is_due(
        bytes_since=bytes_since, ms_since=ms_since, records_since=records,
        bytes_max=bytes_max, interval_ms=interval_ms,
    )  # fmt: skip
    by_age = interval_ms != 0 and ms_since >= interval_ms
    assert due == (bytes_since >= bytes_max or by_age)


def test_defaults_are_kafkas():
    due = [
        is_due(bytes_since=b, ms_since=ms, records_since=1)
        for b, ms in [(20 << 20, 0), ((20 << 20) - 1, 3_599_999), (0, 3_600_000)]
    ]
    assert due == [True, False, True]
