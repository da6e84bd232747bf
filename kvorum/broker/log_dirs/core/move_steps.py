"""What a move between two directories of one broker does next (KIP-113, KIP-858). Pure.

A move fills a future replica, in another directory, from the current replica's log, and then puts
it in the current replica's place. The current replica goes on meanwhile: it is appended to,
truncated, and its log start moves. Before the swap:

- The future log has every record of the current one, and at least as many of them are fsynced.
- The metadata names the destination. Otherwise a failure of the destination, just after the swap,
  would leave the replica's leadership with a broker that cannot read it.
- The destination's checkpoint on disk has the log start. Otherwise deleted records would come back.

The driver is `kvorum/broker/manager/directory_moves`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.storage.files.leader_epochs import LeaderEpochCache

LAST_BYTES_MAX = 256 << 10
"""What the event loop copies itself, in the moment of the swap: about a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveFacts:
    """The state of a move.

    start_offset, end_offset, durable_end_offset: of the current replica's log.
    future_start_offset, future_end_offset, future_durable_end_offset: of the future replica's log.
    cut_offset: least offset that the current log was truncated to since the last step, None if it
        was not.
    lag_bytes: size of the records that the future log lacks.
    has_producers: the future log has all producers that the current log knows.
    is_identity_durable: partition.metadata of the future replica is fsynced.
    saved_start_offset: the log start in the destination's checkpoint on disk.
    is_told: the metadata names the destination.
    is_busy: the current log is being flushed, cleaned or loaded from.
    """

    start_offset: int
    end_offset: int
    durable_end_offset: int
    future_start_offset: int
    future_end_offset: int
    future_durable_end_offset: int
    lag_bytes: int
    has_producers: bool
    is_identity_durable: bool
    saved_start_offset: int
    is_told: bool
    is_busy: bool
    cut_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """Drop what the future log has at `offset` and above."""

    offset: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Drop all of the future log's records and begin at `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class AdvanceStart:
    """Raise the future log's start to `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy the next records, in a thread."""


@dataclass(frozen=True, slots=True)
class TakeProducers:
    """Copy the last records and take over the producers whose records are gone, on the loop."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Fsync the future log."""


@dataclass(frozen=True, slots=True)
class SaveStart:
    """Write the log start to the destination's checkpoint."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Tell the controller of the destination, and wait for the metadata to name it."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until the current log is idle."""


@dataclass(frozen=True, slots=True)
class Swap:
    """Copy the last records, and put the future replica in the current one's place."""


Step = (
    Truncate | Restart | AdvanceStart | Copy | TakeProducers | Flush | SaveStart | Assign
    | Wait | Swap
)  # fmt: skip


def next_step(facts: MoveFacts) -> Step:
    """The next step of a move. A swap needs that nothing else happens between the facts and it."""
    end_offset = facts.end_offset
    if facts.cut_offset is not None:
        end_offset = min(end_offset, facts.cut_offset)
    start_offset = facts.start_offset
    is_below = facts.future_end_offset < start_offset
    if is_below or facts.future_start_offset > start_offset or end_offset < start_offset:
        return Restart(start_offset)
    if facts.future_end_offset > end_offset:
        return Truncate(end_offset)
    if facts.future_start_offset < start_offset:
        return AdvanceStart(start_offset)
    # Fsynced records are copied before the flush, or it could be of too few for ever.
    if facts.lag_bytes > LAST_BYTES_MAX or facts.future_end_offset < facts.durable_end_offset:
        return Copy()
    if not facts.has_producers:
        return TakeProducers()
    is_flushed = facts.future_durable_end_offset >= facts.durable_end_offset
    if not is_flushed or not facts.is_identity_durable:
        return Flush()
    if facts.saved_start_offset != start_offset:
        return SaveStart()
    if not facts.is_told:
        return Copy() if facts.lag_bytes else Assign()
    return Wait() if facts.is_busy else Swap()


def common_end(
    future: LeaderEpochCache, future_end: int, current: LeaderEpochCache, current_end: int
) -> int:
    """End of the records that a future log, found at the start, has in common with the current log.

    The current log may have been truncated, and appended to, after the last step of the move that a
    crash ended. Two logs that have the same leader epoch at an offset are equal up to it.
    """
    end_offset = min(future_end, current_end)
    while end_offset > 0:
        ours, theirs = future.epoch_of(end_offset - 1), current.epoch_of(end_offset - 1)
        if ours == theirs:
            break
        # In the younger of the two epochs no record is common; go on below it.
        end_offset = max(_start_of(future, end_offset - 1), _start_of(current, end_offset - 1))
    return end_offset


def _start_of(epochs: LeaderEpochCache, offset: int) -> int:
    """Start of the epoch that wrote `offset`, 0 if it is below the first known epoch."""
    epoch = epochs.epoch_of(offset)
    return 0 if epoch < 0 else epochs.start_offsets[epochs.epochs.index(epoch)]
