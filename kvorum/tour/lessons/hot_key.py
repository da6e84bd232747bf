"""Lesson 19."""

from __future__ import annotations

from kvorum.tour.lesson import Lesson
from kvorum.tour.picture import bars
from kvorum.tour.stage import Stage
from kvorum.tour.telling import rows_of

_RECORDS, _HOT = 6_000, 3_000


def show(stage: Stage) -> None:
    stage.run("kvorum topics create clicks --partitions 6")
    stage.say("Six thousand clicks, each with its own user as the key.")
    stage.run(f"seq -f 'user-%.0f:click' {_RECORDS} > even")
    even = _counts(stage.run("kvorum produce clicks --key-separator : --file even"))
    stage.fact(
        f"Keys are spread by their hash: the fullest partition has {max(even)} of {_RECORDS} "
        f"records, the emptiest {min(even)}.",
        len(even) == 6 and sum(even) == _RECORDS and max(even) < 2 * min(even),
    )
    stage.say("Now half of the clicks are one user's.")
    stage.run(f"yes 'star:click' | head -{_HOT} > hot; head -{_RECORDS - _HOT} even >> hot")
    hot = _counts(stage.run("kvorum produce clicks --key-separator : --file hot"))
    share = 100 * max(hot) // _RECORDS
    stage.fact(
        f"One partition of six gets {share} % of the records: all records of a key go to one "
        "partition, for their order.",
        max(hot) >= _HOT,
    )
    stage.run("kvorum partitions add clicks --partitions 12")
    more = _counts(stage.run("kvorum produce clicks --key-separator : --file hot"))
    stage.fact(
        f"Twice the partitions change nothing for it: {100 * max(more) // _RECORDS} % are in one. "
        "A key that says more, such as user and day, does.",
        max(more) >= _HOT,
    )
    before, after = hot.index(max(hot)), more.index(max(more))
    stage.fact(
        f"But star's records are in partition {before} up to now, and in {after} from now on: a "
        "key's order ends when partitions are added."
        if before != after
        else f"star stays in partition {before}; other keys moved when partitions were added.",
        len(more) == 2 * len(hot),
    )
    figures = {f"partition {i}": count for i, count in enumerate(more)}
    stage.draw(bars(f"{_RECORDS:,} records in 12 partitions, half of one key", figures))


def _counts(out: str) -> list[int]:
    return [int(row["RECORDS"]) for row in rows_of(out)]


LESSON = Lesson(
    number=19,
    name="hot-key",
    title="A hot key",
    claim=(
        "The key's hash decides the partition, so a frequent key fills one partition, however many "
        "there are."
    ),
    show=show,
    seen="skew that more partitions do not mend.",
    code="kvorum/cli/records/producer.py",
    page="docs/commands.md",
    try_next="kvorum produce clicks -k star-monday click",
)
