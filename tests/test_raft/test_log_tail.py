"""LogTail against a plain list of epochs, one an offset."""

from hypothesis import given
from hypothesis import strategies as st

from kvorum.raft.model.log_tail import LogTail
from kvorum.raft.model.values import BatchSpan, OffsetAndEpoch

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
    # One (offset, epoch) names one record only if both logs came from the same leaders. Truncate
    # the follower's log so that it could have: equal epochs begin at equal offsets.
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


# With snapshots, against a slow model: every entry since the beginning of time, and a start.


class Model:
    """epochs: of all entries, trimmed ones included; snapshots: offsets, ascending."""

    def __init__(self, epochs=(), snapshots=()):
        self.epochs = list(epochs)
        self.snapshots = list(snapshots)

    @property
    def start_offset(self):
        return self.snapshots[0] if self.snapshots else 0

    def epoch_before(self, offset):
        return self.epochs[offset - 1] if offset else 0

    def id_of(self, offset):
        return OffsetAndEpoch(offset, self.epoch_before(offset))

    def can_compare(self, offset, epoch):
        """True if the log still holds the entries with which a log that ends there is compared."""
        return offset >= self.start_offset and epoch >= self.epoch_before(self.start_offset)

    def holds(self, epoch):
        return (
            epoch in self.epochs[self.start_offset :]
            or epoch == self.id_of(self.start_offset).epoch
        )

    def check(self, tail):
        assert tail.end_offset == len(self.epochs)
        assert tail.start_offset == self.start_offset
        assert tail.snapshots == [self.id_of(offset) for offset in self.snapshots]
        assert tail.last_epoch == self.epoch_before(len(self.epochs))
        assert tail.flushed_end_offset <= tail.end_offset
        held = self.epochs[self.start_offset :]
        starts = {}
        for offset, epoch in enumerate(held, self.start_offset):
            starts.setdefault(epoch, offset)
        assert tail.epochs == list(starts.items())


commands = st.lists(
    st.tuples(
        st.sampled_from(["append", "truncate", "snapshot", "drop", "replace"]), st.integers(0, 30)
    ),
    max_size=25,
)


def act(tail, model, name, number):
    """Make one valid change to tail and model. Records in a snapshot are committed, so they are not
    truncated."""
    committed = model.snapshots[-1] if model.snapshots else 0
    end_offset = len(model.epochs)
    if name == "append":
        epoch = model.epoch_before(end_offset) + (number % 3 == 0)
        epoch = max(epoch, 1)
        count = number % 4 + 1
        tail.append(BatchSpan(end_offset, end_offset + count - 1, epoch))
        model.epochs += [epoch] * count
    elif name == "truncate":
        end_offset = max(number, committed)
        tail.truncate(end_offset)
        del model.epochs[end_offset:]
    elif name == "snapshot" and end_offset > committed:
        offset = committed + 1 + number % (end_offset - committed)
        tail.add_snapshot(model.id_of(offset))
        model.snapshots.append(offset)
    elif name == "drop" and len(model.snapshots) > 1:
        count = 1 + number % (len(model.snapshots) - 1)
        tail.drop_snapshots(count)
        del model.snapshots[:count]
    elif name == "replace":
        # The snapshot is of a leader that shares the committed entries and has appended others.
        epoch = max(model.epoch_before(committed) + number % 2, 1)
        model.epochs[committed:] = [epoch] * (number % 5 + 1)
        model.snapshots = [len(model.epochs)]
        tail.replace(model.id_of(len(model.epochs)), None)


@given(commands)
def test_snapshots_trims_and_replacements_leave_the_epochs_of_what_is_held(story):
    tail, model = LogTail(), Model()
    for name, number in story:
        act(tail, model, name, number)
        model.check(tail)


@given(commands, st.integers(0, 40), st.integers(0, 12))
def test_questions_are_answered_as_by_looking_at_every_entry(story, offset, epoch):
    tail, model = LogTail(), Model()
    for name, number in story:
        act(tail, model, name, number)
    is_held = model.start_offset < offset <= len(model.epochs)
    expected = is_held and model.epoch_before(offset) == epoch
    assert tail.is_prefix(OffsetAndEpoch(offset, epoch)) == expected
    behind = tail.snapshot_for(offset, epoch)
    if model.snapshots and not model.can_compare(offset, epoch):
        assert behind == model.id_of(model.snapshots[-1])
        return
    assert behind is None
    below = [held for held in model.epochs if held <= epoch]
    end = tail.end_of_epoch(epoch)
    assert end == OffsetAndEpoch(len(below), below[-1] if below else 0)
    fits = model.holds(epoch) and offset <= end.offset
    assert (tail.divergence(offset, epoch) is None) == fits


@st.composite
def two_logs(draw):
    """The logs that two nodes of one quorum may hold, and how much of them may be committed.

    Each epoch is led by one of the two, on top of its own log; the other then has a prefix of
    that, or keeps its own. Committed entries are on both.
    """
    logs = [[], []]
    for epoch in range(1, draw(st.integers(1, 8)) + 1):
        leader = draw(st.integers(0, 1))
        logs[leader] += [epoch] * draw(st.integers(1, 4))
        if draw(st.booleans()):
            logs[1 - leader] = logs[leader][: draw(st.integers(0, len(logs[leader])))]
    leader, follower = logs
    committed = 0
    while committed < min(len(leader), len(follower)) and leader[committed] == follower[committed]:
        committed += 1
    return leader, follower, draw(st.integers(0, committed))


@given(two_logs(), st.data())
def test_divergence_and_snapshots_always_bring_a_follower_into_line(logs, data):
    leader_epochs, follower_epochs, committed = logs
    leader, follower = tail_of(leader_epochs), tail_of(follower_epochs)
    cut = data.draw(
        st.lists(st.integers(1, max(committed, 1)), max_size=3, unique=True).map(sorted)
    )
    for offset in cut if committed else ():
        leader.add_snapshot(OffsetAndEpoch(offset, leader_epochs[offset - 1]))
    if committed and data.draw(st.booleans()):
        offset = data.draw(st.integers(1, committed))
        follower.add_snapshot(OffsetAndEpoch(offset, follower_epochs[offset - 1]))
    for _ in range(40):
        position = (follower.end_offset, follower.last_epoch)
        snapshot = leader.snapshot_for(*position)
        diverging = leader.divergence(*position)
        if snapshot is not None:
            assert snapshot.offset > follower.start_offset
            follower.replace(snapshot, None)
        elif diverging is not None:
            end_offset = follower.truncation_offset(diverging)
            assert committed <= end_offset < follower.end_offset
            follower.truncate(end_offset)
        elif follower.end_offset < leader.end_offset:
            offset = follower.end_offset
            follower.append(BatchSpan(offset, offset, leader_epochs[offset]))
        else:
            break
    assert follower.end_offset == leader.end_offset == len(leader_epochs)
    start_offset = max(follower.start_offset, leader.start_offset)
    for offset in range(start_offset + 1, len(leader_epochs) + 1):
        assert follower.is_prefix(OffsetAndEpoch(offset, leader_epochs[offset - 1]))


def test_a_replacement_vouches_for_the_snapshot_and_forgets_older_flushes():
    tail = tail_of([1] * 5)
    stale = tail.generation
    tail.replace(OffsetAndEpoch(9, 2), None)
    assert (tail.end_offset, tail.flushed_end_offset, tail.last_epoch) == (9, 9, 2)
    tail.append(BatchSpan(9, 11, 2))
    assert not tail.flushed(12, stale)
    assert tail.flushed_end_offset == 9
