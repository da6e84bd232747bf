"""The events that a node of the quorum steps through."""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.raft.model.messages import Request, Response
from kvorum.raft.model.values import OffsetAndEpoch
from kvorum.raft.model.voters import VoterSet


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: a deadline of the core may be due."""


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A request of a peer or a client. token: names the caller in the Reply effect."""

    request: Request
    token: int


@dataclass(frozen=True, slots=True)
class CallerGone:
    """The caller of a parked request has hung up; a Reply would reach nobody."""

    token: int


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """The answer to the SendRequest effect with this correlation id."""

    sender_id: int
    correlation_id: int
    response: Response


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """The connection was refused or broke, so this SendRequest effect will have no response.

    This says that the connection failed, not that the peer is down. A missing response alone is not
    reported as a failure: the core's own deadlines cover it.
    """

    receiver_id: int
    correlation_id: int


@dataclass(frozen=True, slots=True)
class LogFlushed:
    """The log below end_offset survives a power loss. generation: of the FlushLog that asked for
    it."""

    end_offset: int
    generation: int


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """The state machine's own snapshot of a committed prefix is on disk, under its final name."""

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class SnapshotsExpired:
    """Retention releases the oldest `count` snapshots, and the log up to the next snapshot with
    them."""

    count: int


@dataclass(frozen=True, slots=True)
class SnapshotChunkWritten:
    """The answer to WriteSnapshotChunk: the part file holds every byte below end_position."""

    snapshot: OffsetAndEpoch
    end_position: int


@dataclass(frozen=True, slots=True)
class SnapshotReceived:
    """The answer to FinishSnapshot.

    is_good: True if the snapshot passed every check and is on disk under its final name; False if
        its bytes have been removed.
    voters: the voter set in the snapshot, None if it has none.
    """

    snapshot: OffsetAndEpoch
    is_good: bool
    voters: VoterSet | None = None


@dataclass(frozen=True, slots=True)
class Propose:
    """The state machine has batches to append. record_counts: the number of records in each
    batch."""

    batches: tuple[bytes | bytearray, ...]
    record_counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Resign:
    """Step down if this node leads: the process is about to stop, or the state machine failed."""


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
