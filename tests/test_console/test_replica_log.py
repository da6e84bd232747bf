"""The questions by which the console finds what a replica's log looks like."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvorum.console.core.replica_log import EPOCHS_MAX, EpochEnd, probe
from kvorum.storage.files.leader_epochs import UNKNOWN, LeaderEpochCache


class Replica:
    """A replica that answers as a broker does."""

    def __init__(self, epochs, *, end, start=0):
        self.epochs = LeaderEpochCache()
        for epoch, first in epochs:
            self.epochs.assign(epoch, first)
        self.end, self.start = end, start
        self.asked = []

    def answer(self, epoch):
        self.asked.append(epoch)
        found = self.epochs.end_offset_for(epoch, self.end)
        if found == UNKNOWN:
            return None
        return EpochEnd(
            epoch=found[0],
            end_offset=found[1],
            start_offset=self.start,
            high_watermark=self.end,
            last_stable_offset=self.end,
        )


def seen(replica, leader_epoch, known=None):
    questions = probe(leader_epoch, known)
    answer = None
    replica.asked.clear()
    try:
        while True:
            answer = replica.answer(questions.send(answer))
    except StopIteration as over:
        return over.value


def test_a_log_of_one_epoch_takes_one_question():
    replica = Replica([(0, 0)], end=40)
    log = seen(replica, 0)
    assert (log.end_offset, log.epochs) == (40, ((0, 0),))
    assert replica.asked == [0]


def test_epochs_are_found_from_the_newest_down():
    replica = Replica([(0, 0), (3, 10), (7, 25)], end=40)
    assert seen(replica, 7).epochs == ((0, 0), (3, 10), (7, 25))
    assert replica.asked == [7, 6, 2]


def test_a_log_that_is_known_takes_one_question_again():
    replica = Replica([(0, 0), (3, 10), (7, 25)], end=40)
    known = seen(replica, 7)
    replica.end = 41
    assert seen(replica, 7, known).end_offset == 41
    assert replica.asked == [7]


def test_a_log_without_records_of_the_newest_epochs_takes_three_questions():
    replica = Replica([(0, 0), (3, 10)], end=40)
    known = seen(replica, 3)
    assert seen(replica, 90, known) == known
    assert replica.asked == [90, 3, 4]


def test_an_empty_log_has_no_answer():
    assert seen(Replica([], end=0), 3) is None


def test_epochs_below_the_log_start_are_not_looked_for():
    replica = Replica([(0, 0), (3, 10), (7, 25)], end=40, start=12)
    assert seen(replica, 7).epochs == ((3, 10), (7, 25))


def test_a_truncated_log_loses_its_newest_epoch():
    known = seen(Replica([(0, 0), (3, 10), (7, 25)], end=40), 7)
    replica = Replica([(0, 0), (3, 10), (8, 20)], end=30)
    assert seen(replica, 8, known).epochs == ((0, 0), (3, 10), (8, 20))


def test_a_log_truncated_between_two_questions_is_shown_as_far_as_it_was_seen():
    questions = probe(7)
    assert questions.send(None) == 7
    end = EpochEnd(epoch=7, end_offset=40, start_offset=0, high_watermark=30, last_stable_offset=30)
    assert questions.send(end) == 6
    try:
        questions.send(None)
    except StopIteration as over:
        assert over.value.epochs == ()


histories = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 9)),
    min_size=1,
    max_size=14,
    unique_by=lambda e: e[0],
).map(sorted)


@given(histories, st.integers(0, 60), st.data())
def test_what_is_seen_is_what_the_replica_has(history, ahead, data):
    epochs, at = [], 0
    for epoch, records in history:
        epochs.append((epoch, at))
        at += records
    replica = Replica(epochs, end=at, start=data.draw(st.integers(0, at)))
    leader_epoch = epochs[-1][0] + ahead
    known = None
    for _ in range(2):
        known = log = seen(replica, leader_epoch, known)
        assert log.end_offset == at
        kept = [
            each
            for place, each in enumerate(epochs)
            if place == len(epochs) - 1 or epochs[place + 1][1] > replica.start
        ][-EPOCHS_MAX:]
        first, starts = log.epochs[0], dict(log.epochs)
        assert [epoch for epoch, _ in log.epochs] == [epoch for epoch, _ in kept]
        assert all(starts[epoch] == start for epoch, start in kept if (epoch, start) != kept[0])
        assert first[1] <= max(kept[0][1], replica.start)
