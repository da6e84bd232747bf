"""The checks of live runs over simulated histories: they see bugs that only a client's history
shows, and each run gives them something to look at."""

from __future__ import annotations

import pytest

from kvorum.chaos.history import OK, POLL, SEND
from kvorum.chaos.sim.kernel.checks import SeedFailed
from kvorum.chaos.sim.partitions import recorder
from kvorum.chaos.sim.partitions.recorder import Recorder, Written, text_of, value_of
from kvorum.chaos.sim.worlds import run_seed

SEED = 1
"""Partitions without an allowed loss, read by a consumer, without DeleteRecords."""

original_add = Recorder._add
original_poll = recorder._poll_of


def run_with_bug(monkeypatch, owner, name, bug) -> str:
    monkeypatch.setattr(owner, name, bug)
    with pytest.raises(SeedFailed) as failed:
        run_seed(SEED, "partitions")
    return failed.value.name


def forget_polls(self, place, process, type, f, ops, **fields):
    """Leave out every fifth poll of a consumer."""
    if f == POLL and process.startswith("consumer") and self._count % 5 == 0:
        self._count += 1
        return
    original_add(self, place, process, type, f, ops, **fields)


def repeat_polls(self, place, process, type, f, ops, **fields):
    """Write every poll of a consumer twice."""
    for _ in range(1 + (f == POLL and process.startswith("consumer"))):
        original_add(self, place, process, type, f, ops, **fields)


def acknowledge_more(self, place, process, type, f, ops, **fields):
    """After every acknowledged batch acknowledge one that was never sent."""
    original_add(self, place, process, type, f, ops, **fields)
    if f == SEND and type == OK:
        more = Written((value_of(text_of(99, self._count, 0)),), ("k0",))
        original_add(self, place, process, type, f, more.sends(place, ops[0].offset), **fields)


def read_others(place, data, from_offset):
    """Return values that no producer wrote."""
    poll = original_poll(place, data, from_offset)
    return type(poll)(
        poll.topic, poll.partition, poll.offsets, tuple(value + (1 << 60) for value in poll.values)
    )


@pytest.mark.parametrize(
    ("owner", "name", "bug", "check"),
    [
        (Recorder, "_add", forget_polls, {"poll-skip", "unseen"}),
        (Recorder, "_add", repeat_polls, {"nonmonotonic-poll"}),
        (Recorder, "_add", acknowledge_more, {"lost-write", "inconsistent-offsets"}),
        (recorder, "_poll_of", read_others, {"phantom", "lost-write"}),
    ],
    ids=["forgotten polls", "repeated polls", "false acknowledgements", "other values"],
)
def test_a_false_history_fails_the_seed_by_the_check_of_its_name(
    monkeypatch, owner, name, bug, check
):
    assert run_with_bug(monkeypatch, owner, name, bug) in check


def test_a_run_is_judged_by_what_clients_sent_and_read(monkeypatch):
    seen: list[object] = []
    original = recorder.run_checks_of

    def run_checks_of(events, rules):
        results = original(events, rules)
        seen.extend(result.check for result in results if result.examined)
        return results

    monkeypatch.setattr(recorder, "run_checks_of", run_checks_of)
    run_seed(SEED, "partitions")
    assert {
        "lost-write", "inconsistent-offsets", "duplicate", "reordered", "phantom", "unseen",
        "unread", "poll-skip", "nonmonotonic-poll", "nonmonotonic-send", "realtime-lag",
    } <= set(seen)  # fmt: skip


def test_a_records_value_survives_padding_and_rises():
    values = [value_of(text_of(2, batch, record) + b"...") for batch in (0, 1) for record in (0, 7)]
    assert values == sorted(set(values))
    assert value_of(b"something else") == -1
