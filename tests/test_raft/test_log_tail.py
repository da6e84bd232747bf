"""LogTail against a plain list of epochs, one an offset."""

from hypothesis import given
from hypothesis import strategies as st

from raft.log_tail import LogTail
from raft.model import BatchSpan, OffsetAndEpoch

epoch_lists = st.lists(st.integers(1, 6), max_size=20).map(sorted)


def tail_of(epochs):
    tail = LogTail()
    for offset, epoch in enumerate(epochs):
        tail.append(BatchSpan(offset, offset, epoch))
    return tail


@given(epoch_lists, st.integers(0, 7))
def test_end_of_epoch_is_where_the_largest_epoch_not_above_ends(epochs, asked):
    held = [epoch for epoch in epochs if epoch <= asked]
    expected = OffsetAndEpoch(len(held), held[-1]) if held else OffsetAndEpoch(0, 0)
    assert tail_of(epochs).end_of_epoch(asked) == expected


@given(epoch_lists, epoch_lists)
def test_diverging_logs_agree_after_repeated_truncation(leader_epochs, follower_epochs):
    # One (offset, epoch) names one record only if both logs grew from the same leaders; cut the
    # follower's so that it could have: equal epochs begin at equal offsets.
    leader = tail_of(leader_epochs)
    follower = tail_of(follower_epochs)
    for _ in range(20):
        diverging = leader.divergence(follower.end_offset, follower.last_epoch)
        if diverging is None:
            break
        before = follower.end_offset
        follower.truncate(follower.truncation_offset(diverging))
        assert follower.end_offset < before
    assert leader.divergence(follower.end_offset, follower.last_epoch) is None


@given(epoch_lists, st.integers(0, 20))
def test_truncation_drops_offsets_and_their_epochs(epochs, end_offset):
    tail = tail_of(epochs)
    tail.truncate(end_offset)
    assert tail.end_offset == min(len(epochs), end_offset)
    assert tail.epochs == tail_of(epochs[:end_offset]).epochs


def test_a_flush_that_began_before_a_truncation_counts_nothing():
    tail = tail_of([1] * 10)
    stale = tail.generation
    tail.truncate(5)
    tail.append(BatchSpan(5, 7, 2))
    assert not tail.flushed(10, stale)
    assert tail.flushed_end_offset == 0
    assert tail.flushed(8, tail.generation)
    assert tail.flushed_end_offset == 8
