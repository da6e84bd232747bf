"""The events of a node of the quorum."""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.raft.messages import Request, Response
from kvorum.raft.model import OffsetAndEpoch
from kvorum.raft.voters import VoterSet


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed: some deadline of the core may be due."""


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A peer asks. token: names the caller in the Reply effect."""

    request: Request
    token: int


@dataclass(frozen=True, slots=True)
class CallerGone:
    """The caller of a parked request hung up; no Reply will be heard."""

    token: int


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """The answer to the SendRequest effect with this correlation id."""

    sender_id: int
    correlation_id: int
    response: Response


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """The connection refused or broke, so no answer will come for this SendRequest effect.

    A fact about the peer, not yet a verdict on it. Silence is no failure: the core's own
    deadlines deal with that.
    """

    receiver_id: int
    correlation_id: int


@dataclass(frozen=True, slots=True)
class LogFlushed:
    """All of the log below end_offset survives a power cut, as of that FlushLog's generation."""

    end_offset: int
    generation: int


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """The state machine's own snapshot of a committed prefix is on disk, under its final name."""

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class SnapshotsExpired:
    """Retention lets the oldest `count` snapshots go, and the log up to the next one with them."""

    count: int


@dataclass(frozen=True, slots=True)
class SnapshotChunkWritten:
    """The answer to WriteSnapshotChunk: everything below end_position lies in the part file."""

    snapshot: OffsetAndEpoch
    end_position: int


@dataclass(frozen=True, slots=True)
class SnapshotReceived:
    """The answer to FinishSnapshot.

    is_good: it passed every check and is on disk under its final name; otherwise its bytes are
    gone. voters: the voter set it holds, if any.
    """

    snapshot: OffsetAndEpoch
    is_good: bool
    voters: VoterSet | None = None


@dataclass(frozen=True, slots=True)
class Propose:
    """The state machine has batches to append; record_counts: records in each batch."""

    batches: tuple[bytes | bytearray, ...]
    record_counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Resign:
    """Step down if leading: the process is going to stop, or the state machine failed."""


Event = (
    Tick
    | RequestReceived
    | CallerGone
    | ResponseReceived
    | RequestFailed
    | LogFlushed
    | SnapshotTaken
    | SnapshotsExpired
    | SnapshotChunkWritten
    | SnapshotReceived
    | Propose
    | Resign
)
