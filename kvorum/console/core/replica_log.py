"""The ends and epochs of a replica's log, found by one question that every replica answers a
reader: where does a leader epoch end?

The question is a consumer's Fetch with that last fetched epoch, and an offset above every log. The
answer has no records. It names the largest epoch of the log that is not above the one in question,
and the end of that epoch (KIP-595, KIP-392), beside log start, high watermark and last stable
offset. For an epoch above the log's latest one there is no answer. Pure.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

EPOCHS_MAX = 12
"""Leader epochs that are looked for, from the newest on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """The answer to a question. end_offset: of `epoch` in this log, exclusive."""

    epoch: int
    end_offset: int
    start_offset: int
    high_watermark: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLog:
    """A replica's log at one moment.

    high_watermark, last_stable_offset: as this replica knows them; the metadata log has no last
        stable offset (-1).
    epochs: (leader epoch, its first offset), oldest first; records below the first one are of
        epochs that were not looked for.
    """

    start_offset: int
    end_offset: int
    high_watermark: int
    last_stable_offset: int = -1
    epochs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A broker's answer about a replica.

    log: as it was seen last; None before the first answer.
    problem: the reason why there is no answer now; "" if there is one.
    """

    log: ReplicaLog | None
    problem: str = ""


Questions = Generator[int, EpochEnd | None, ReplicaLog | None]


def probe(leader_epoch: int, known: ReplicaLog | None = None) -> Questions:
    """Yields epochs to ask one replica for, takes the answers (None for an epoch above the log's
    latest one), and returns its log; None for a log without any record.

    leader_epoch: of the partition; no log has a later epoch.
    known: this log as it was seen before. An epoch has one leader, so it keeps its first offset.
    """
    epochs = known.epochs if known else ()
    top = yield from _latest(max(leader_epoch, 0), epochs[-1][0] if epochs else -1)
    if top is None:
        return None
    found = yield from _first_offsets(top, epochs)
    return ReplicaLog(
        start_offset=top.start_offset,
        end_offset=top.end_offset,
        high_watermark=top.high_watermark,
        last_stable_offset=top.last_stable_offset,
        epochs=found,
    )


def _latest(
    leader_epoch: int, latest_before: int
) -> Generator[int, EpochEnd | None, EpochEnd | None]:
    """The end of the log's latest epoch. It is most often that of the leader, or the one that was
    the latest before; else it lies between."""
    not_above, above = -1, leader_epoch + 1
    found = None
    guesses = [latest_before + 1, latest_before, leader_epoch]
    while above - not_above > 1:
        asked = guesses.pop() if guesses else (not_above + above) // 2
        if not not_above < asked < above:
            continue
        answer = yield asked
        if answer is None:
            above = asked
        else:
            not_above, found = asked, answer
    return found


def _first_offsets(
    top: EpochEnd, known: tuple[tuple[int, int], ...]
) -> Generator[int, EpochEnd | None, tuple[tuple[int, int], ...]]:
    """The first offset of each epoch from the newest down, as far as they are not known."""
    found: list[tuple[int, int]] = []
    epoch = top.epoch
    while len(found) < EPOCHS_MAX:
        kept = [each for each in known if each[0] <= epoch]
        if kept and kept[-1][0] == epoch:
            return (*kept, *reversed(found))[-EPOCHS_MAX:]
        if epoch == 0:
            found.append((0, top.start_offset))
            break
        below = yield epoch - 1
        if below is None or (found and below.end_offset >= found[-1][1]):
            break  # truncated meanwhile, or no epoch lies below
        found.append((epoch, below.end_offset))
        if below.end_offset <= top.start_offset:
            break
        epoch = below.epoch
    return tuple(reversed(found))
