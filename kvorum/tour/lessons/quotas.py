"""Lesson 18."""

from __future__ import annotations

import re

from kvorum.tour.lesson import Lesson
from kvorum.tour.picture import bars
from kvorum.tour.stage import Stage

_SENT = re.compile(r"(\d+) records .* (\d+) a second")
_QUOTA, _BYTES = 100_000, 500_000


def show(stage: Stage) -> None:
    stage.run("kvorum topics create events --partitions 1")
    stage.run(f"yes 'an event, as long as such events are' | head -c {_BYTES} > events")
    free = _seconds(stage.run("kvorum produce events --acks 1 --file events"))
    stage.run(f"kvorum configs alter --entity user --default --set producer_byte_rate={_QUOTA}")
    slow = _seconds(stage.run("kvorum produce events --acks 1 --file events"))
    # The quota's two windows take a second's bytes each, and nothing waits for the last answer.
    least = _BYTES / _QUOTA - 3
    stage.fact(
        f"{_BYTES} bytes took {free:.2f} s, and {slow:.1f} s with a quota of {_QUOTA} bytes a "
        "second. Nothing was refused: the broker answers, and does not read on for a while.",
        slow >= least,
    )
    read = stage.run("kvorum consume events | wc -l")
    lines = sum(1 for _ in (stage.folder / "events").open(encoding="utf-8"))
    stage.fact(
        f"Every record of both runs is there: {2 * lines}.", read.split()[-1] == str(2 * lines)
    )
    figures = {"without a quota": free, f"{_QUOTA:,} bytes a second": slow}
    stage.draw(bars(f"Time that {_BYTES:,} bytes took", figures, "s"))


def _seconds(out: str) -> float:
    found = _SENT.search(out)
    return 0.0 if found is None else int(found[1]) / int(found[2])


LESSON = Lesson(
    number=18,
    name="quotas",
    title="Quotas delay, they do not refuse",
    claim=(
        "A client above its quota of bytes gets its answers at once, with a time for which the "
        "broker reads nothing more from it: the client slows down, no record is refused."
    ),
    show=show,
    seen="backpressure instead of errors.",
    code="kvorum/broker/quotas/client_quotas.py",
    page="docs/configs.md (Quotas)",
    try_next="kvorum configs alter --entity user --default --set consumer_byte_rate=100000",
    properties=("quota.window.num=2",),
)
