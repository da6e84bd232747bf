"""The promises that an experiment states, and whether the run kept them. Pure.

A promise is a limit with a name, in the experiment's `configuration.promises`. A broken one fails
the run; one whose figure could not be measured leaves it undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kvorum.chaos.outages.outages import longest_silence_ms
from kvorum.chaos.outages.timeline import Timeline, isr_shrinks
from kvorum.runtime.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Promised:
    """A promise after the run. measured: None if there was nothing to measure; is_kept then
    too. is_kept is None with a figure if an early end of the run explains what was measured."""

    promise: str
    meaning: str
    limit: float
    measured: float | None
    is_kept: bool | None

    def text(self) -> str:
        """One sentence for the verdict."""
        if self.measured is None:
            return f"promise {self.promise}: {self.meaning} could not be measured"
        if self.is_kept is None:
            return (
                f"promise {self.promise}: {self.meaning} was {self.measured:,g} when the run ended "
                f"early, and {self.bound()} is promised"
            )
        return f"promise {self.promise}: {self.meaning} was {self.measured:,g}, not {self.bound()}"

    def bound(self) -> str:
        """The limit in words."""
        word = "at least" if self.promise.endswith(_LEAST) else "at most"
        return f"{word} {self.limit:,g}"


_LEAST = "_at_least"
#: Promises that are broken whenever all connections go down, as when toxiproxy fails.
_OF_WAITS = frozenset(
    {"longest_silence_ms", "longest_partition_silence_ms", "latency_p99_ms", "unavailable_ms"}
)

Measure = Callable[[Timeline], float | None]


def _elections(timeline: Timeline) -> list[float]:
    found = [
        item.elect_ms
        for fault in timeline.faults
        for item in fault.recoveries
        if item.elect_ms is not None and item.is_led
    ]
    for fault in timeline.faults:
        if fault.is_active_controller and fault.controller_elect_ms is not None:
            found.append(fault.controller_elect_ms)
    return found


def _largest(values: Iterable[float]) -> float | None:
    return max(values, default=None)


def _unavailable(timeline: Timeline) -> float | None:
    if not timeline.faults:
        return None
    return max(
        (item.unavailable_ms for fault in timeline.faults for item in fault.recoveries),
        default=0.0,
    )


def _if_loaded(timeline: Timeline, value: float) -> float | None:
    return value if timeline.invoked else None


#: Promise -> its meaning, and its figure.
PROMISES: Mapping[str, tuple[str, Measure]] = {
    "longest_silence_ms": (
        "the longest time without an acknowledgement of any partition, in ms",
        lambda timeline: _if_loaded(timeline, longest_silence_ms(timeline.cluster, timeline)),
    ),
    "longest_partition_silence_ms": (
        "the longest time without an acknowledgement of one partition, in ms",
        lambda timeline: _largest(
            longest_silence_ms(waits, timeline) for waits in timeline.partitions.values()
        ),
    ),
    "latency_p99_ms": (
        "the 99th percentile of the latency, in ms",
        lambda timeline: timeline.latencies.percentile(0.99),
    ),
    "time_to_elect_ms": (
        "the longest time from a fault to a new leader, in ms",
        lambda timeline: _largest(_elections(timeline)),
    ),
    "isr_shrinks_at_least": ("the number of ISR shrinks", isr_shrinks),
    "isr_shrinks_at_most": ("the number of ISR shrinks", isr_shrinks),
    "acknowledged_at_least": (
        "the number of acknowledged records",
        lambda timeline: timeline.acknowledged,
    ),
    "failed_topic_changes_at_most": (
        "the number of creations and deletions of topics that failed",
        lambda timeline: (
            timeline.administration.failed if timeline.administration.invoked else None
        ),
    ),
    "unavailable_ms": (
        "the longest unavailable time of a partition by one fault, in ms",
        _unavailable,
    ),
}


def judge_promises(
    promises: Mapping[str, float | None],
    timeline: Timeline,
    *,
    is_cut_short: bool = False,
    is_lab_failure: bool = False,
) -> list[Promised]:
    """Every promise with its figure, in the order stated; None is no promise.

    is_cut_short: the run ended early, so a lower limit that it did not reach is neither kept nor
        broken.
    is_lab_failure: toxiproxy failed, and so may have caused a wait that is too long.
    Raises ConfigError for a promise that is not known.
    """
    judged = []
    for name, limit in promises.items():
        if limit is None:
            continue
        known = PROMISES.get(name)
        if known is None:
            raise ConfigError(f"unknown promise {name!r}; known: {', '.join(PROMISES)}")
        meaning, measure = known
        measured = measure(timeline)
        is_kept = None
        if measured is not None:
            is_least = name.endswith(_LEAST)
            is_kept = measured >= limit if is_least else measured <= limit
            is_explained = is_cut_short if is_least else is_lab_failure and name in _OF_WAITS
            if is_explained and not is_kept:
                is_kept = None
        judged.append(
            Promised(promise=name, meaning=meaning, limit=limit, measured=measured, is_kept=is_kept)
        )
    return judged
