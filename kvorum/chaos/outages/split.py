"""How the time of a fault's worst partition splits: a bar of stages, from the fault to the last
acknowledgement that was missing. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvorum.chaos.outages.recovery import Recovery

#: Stage -> its words. The decisions in the cluster's order, then what the client sees.
STAGES = {
    "detect_ms": "detected",
    "fence_ms": "fenced",
    "elect_ms": "leader elected",
    "ack_ms": "end of the longest silence",
    "learn_ms": "client writes to the new leader",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One part of the bar.

    at_ms: from the fault to its end.
    share: of the whole bar, in percent.
    words: what happened at its end, several if they happened at one moment.
    """

    key: str
    words: str
    at_ms: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The bar of one partition, without stages if nothing happened to it."""

    subject: str
    stages: tuple[Stage, ...]


#: Moments closer together are one: the records of one decision have one timestamp.
_SAME_MS = 2.0


def split_of(recoveries: Sequence[Recovery]) -> Split | None:
    """The split of the partition that was unavailable longest; None for a fault without one.

    recoveries: of one fault, the worst first.
    """
    if not recoveries or not recoveries[0].unavailable_ms:
        return None
    worst = recoveries[0]
    at: dict[str, float | None] = {key: getattr(worst, key) for key in STAGES}
    moments = sorted(
        ((at_ms, key) for key, at_ms in at.items() if at_ms is not None),
        key=lambda moment: (moment[0], list(STAGES).index(moment[1])),
    )
    merged: list[tuple[float, list[str]]] = []
    for at_ms, key in moments:
        if merged and at_ms - merged[-1][0] <= _SAME_MS:
            merged[-1][1].append(key)
        else:
            merged.append((at_ms, [key]))
    whole_ms = max((at_ms for at_ms, _ in merged), default=0.0)
    stages = []
    before_ms = 0.0
    for at_ms, keys in merged:
        share = 100 * (at_ms - before_ms) / whole_ms if whole_ms > 0 else 0.0
        words = ", ".join(STAGES[key] for key in keys)
        stages.append(Stage(key=keys[-1][:-3], words=words, at_ms=at_ms, share=round(share, 2)))
        before_ms = at_ms
    return Split(subject=f"{worst.topic}/{worst.partition}", stages=tuple(stages))
