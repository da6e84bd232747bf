"""The promises that an experiment states: bounds that a run must keep to pass.

`chaos.outages.promises` judges them.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.chaos.experiment_file.document import Section
from kvorum.chaos.experiment_file.keys import PROMISE_KEYS


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """Upper and lower bounds of a run's figures; None where the experiment promises nothing.

    `chaos.experiment_file.keys.PROMISE_KEYS` has the meaning of each.
    """

    longest_silence_ms: int | None = None
    longest_partition_silence_ms: int | None = None
    unavailable_ms: int | None = None
    latency_p99_ms: int | None = None
    time_to_elect_ms: int | None = None
    isr_shrinks_at_least: int | None = None
    isr_shrinks_at_most: int | None = None
    acknowledged_at_least: int | None = None
    failed_topic_changes_at_most: int | None = None


def read_promises(configuration: Section) -> Promises:
    """The promises of a configuration; problems are noted in its document."""
    section = configuration.section("promises", [key.name for key in PROMISE_KEYS])
    given = section.integers([key for key in PROMISE_KEYS if section.has(key.name)])
    promises = Promises(**given)
    least, most = promises.isr_shrinks_at_least, promises.isr_shrinks_at_most
    if least is not None and most is not None and least > most:
        section.problem(
            "isr_shrinks_at_least", f"{least} is more than isr_shrinks_at_most ({most})"
        )
    silence, of_one = promises.longest_silence_ms, promises.longest_partition_silence_ms
    if silence is not None and of_one is not None and of_one < silence:
        section.problem(
            "longest_partition_silence_ms",
            f"{of_one} is less than longest_silence_ms ({silence}), which it contains",
        )
    return promises
