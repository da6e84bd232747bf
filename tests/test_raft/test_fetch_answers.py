"""Answers to fetches, read from the log once for all followers that ask for the same."""

import pytest

from kvorum.raft.model.effects import PersistVoteState, ReplaceLog, ReplyWithRecords, TruncateLog
from kvorum.raft.model.values import OffsetAndEpoch, VoteState
from kvorum.raft.node import replica_log
from kvorum.storage.format.batch import iter_headers, iter_records
from tests.test_raft.places import Place


def answer(place, start, end, *, bytes_max=1 << 20, high_watermark=0):
    effect = ReplyWithRecords(
        token=1, epoch=1, leader_id=1, high_watermark=high_watermark,
        fetch_offset=start, end_offset=end, bytes_max=bytes_max,
    )  # fmt: skip
    return place.replica_log.fetch_response(effect)


def values_in(response):
    data = response.records
    return [
        record.value.decode()
        for position, header in iter_headers(data)
        for record in iter_records(data, position, header)
    ]


@pytest.fixture
def place():
    made = Place()
    made.append("a", "b", "c")
    return made


def test_followers_that_ask_for_the_same_get_the_same_bytes_and_each_its_high_watermark(place):
    first = answer(place, 1, 3, high_watermark=1)
    second = answer(place, 1, 3, high_watermark=2)
    assert second.records is first.records
    assert values_in(first) == ["b", "c"]
    assert (first.high_watermark, second.high_watermark) == (1, 2)


@pytest.mark.parametrize(
    ("start", "end", "bytes_max", "expected"),
    [(0, 3, 1 << 20, "abc"), (1, 2, 1 << 20, "b"), (1, 3, 1, "b"), (3, 3, 1 << 20, "")],
)
def test_who_asks_for_something_else_gets_something_else(place, start, end, bytes_max, expected):
    assert values_in(answer(place, 1, 3)) == ["b", "c"]
    assert values_in(answer(place, start, end, bytes_max=bytes_max)) == list(expected)


def test_what_took_the_place_of_records_that_were_cut_off_is_read_anew(place):
    assert values_in(answer(place, 1, 3)) == ["b", "c"]
    place.do(TruncateLog(1))
    place.append("x", "y", epoch=2)
    assert values_in(answer(place, 1, 3)) == ["x", "y"]


def test_a_log_that_begins_anew_has_nothing_of_the_old_one(place):
    assert values_in(answer(place, 1, 3)) == ["b", "c"]
    snapshot = place.take(2)
    place.do(ReplaceLog(OffsetAndEpoch(snapshot.offset, snapshot.epoch)))
    place.append("z")
    assert values_in(answer(place, 2, 3)) == ["z"]


def test_a_vote_in_between_changes_no_answer(place):
    first = answer(place, 1, 3)
    place.do(PersistVoteState(VoteState(5, -1, 2)))
    assert answer(place, 1, 3).records == first.records


def test_large_answers_are_not_kept(place, monkeypatch):
    size = len(answer(place, 1, 3).records)
    for kept_bytes_max, is_kept in ((size, True), (size - 1, False)):
        place.append("d")
        place.do(TruncateLog(3))
        monkeypatch.setattr(replica_log, "KEPT_BYTES_MAX", kept_bytes_max)
        first, second = answer(place, 1, 3).records, answer(place, 1, 3).records
        assert first == second
        assert (first is second) == is_kept
