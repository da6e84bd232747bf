"""The disk half of a node: carries out the core's disk effects on a real log and vote store.

It holds no rule. The driver and the simulator share it, so that both write the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kvorum.raft.model.effects import (
    AppendFetched,
    AppendLeaderChange,
    AppendProposed,
    AppendVoters,
    PersistVoteState,
    ReplaceLog,
    ReplyWithRecords,
    TruncateLog,
)
from kvorum.raft.model.log_tail import LogTail
from kvorum.raft.model.messages import FetchResponse
from kvorum.raft.model.values import BatchSpan, OffsetAndEpoch
from kvorum.raft.model.voters import VoterSet
from kvorum.raft.node.control_records import (
    LeaderChange,
    leader_change_batch,
    parse_voters,
    voters_batch,
)
from kvorum.raft.node.vote_store import VoteStore
from kvorum.runtime.errors import CorruptData, WireError, invariant
from kvorum.storage.format.batch import (
    BatchError,
    BatchHeader,
    check_crc,
    iter_headers,
    iter_records,
)
from kvorum.storage.log.log import Log
from kvorum.storage.log.retention import apply_retention, remove_deleted

DiskEffect = (
    PersistVoteState
    | AppendProposed
    | AppendLeaderChange
    | AppendVoters
    | AppendFetched
    | TruncateLog
    | ReplaceLog
)

KEPT_BYTES_MAX = 64 << 10
"""Up to this size, the records read for one follower's fetch are kept for the next follower."""

_SCAN_BYTES = 1 << 20


def spans_of(records: bytes) -> tuple[BatchSpan, ...]:
    """The batches in `records`, which must be whole."""
    return tuple(_span(records, position, header) for position, header in iter_headers(records))


def fetched_spans(records: bytes) -> tuple[BatchSpan, ...]:
    """The batches that a peer sent, checked. Raises WireError if they are cut off or damaged.

    A leader whose disk returns damaged bytes must not stop its followers. They treat it as a peer
    that breaks the protocol, and as if it were gone.
    """
    spans = []
    end = 0
    try:
        for position, header in iter_headers(records):
            if not check_crc(records, position, header):
                raise WireError(f"a batch at byte {position} fails its checksum")
            spans.append(_span(records, position, header))
            end = position + header.size_bytes
    except (BatchError, struct.error) as error:
        raise WireError(f"records that are no batches: {error}") from error
    if end != len(records):
        raise WireError(f"{len(records) - end} bytes behind the last whole batch")
    return tuple(spans)


def _span(records: bytes, position: int, header: BatchHeader) -> BatchSpan:
    if header.is_control:
        for record in iter_records(records, position, header):
            voters = parse_voters(record.key or b"", record.value or b"")
            if voters is not None:
                return BatchSpan(
                    header.base_offset,
                    header.last_offset,
                    header.leader_epoch,
                    voters,
                    record.offset,
                )
    return BatchSpan(header.base_offset, header.last_offset, header.leader_epoch)


def voter_sets_in(log: Log) -> list[tuple[int, VoterSet]]:
    """Every voter set in a log, with the offset of its VotersRecord.

    Raises CorruptData for a record that this build cannot read.
    """
    found = []
    offset = log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, bytes_max=_SCAN_BYTES, end_offset=log.end_offset).read()
        try:
            spans = spans_of(data)
        except WireError as error:
            raise CorruptData(log.directory, 0, f"from offset {offset} on: {error}") from error
        for span in spans:
            if span.voters is not None and span.voters_offset >= log.start_offset:
                found.append((span.voters_offset, span.voters))
            offset = span.last_offset + 1
    return found


class ReplicaLog:
    """The metadata log and the vote store of one node, and the effects that change them."""

    def __init__(
        self,
        log: Log,
        vote_store: VoteStore,
        *,
        snapshots: Sequence[OffsetAndEpoch] = (),
        base_voters: VoterSet | None = None,
    ) -> None:
        """snapshots: the undamaged snapshots on disk, ascending; the log must begin at the end of
        the first.

        base_voters: the voter set before the log's first record, from the oldest snapshot or the
            bootstrap checkpoint; None for static voters.
        """
        self.log = log
        self.vote_store = vote_store
        self.snapshots = tuple(snapshots)
        self.base_voters = base_voters
        #: Bytes appended since the node started; they decide when a snapshot is due.
        self.appended_bytes = log.size_bytes
        # The records of the last fetch response, for the other followers that ask for the same;
        # dropped when the log changes.
        self._last_read: tuple[tuple[int, int, int], bytes] | None = None

    def tail(self) -> LogTail:
        """The core's model of the log as it is now; the whole log must be flushed already."""
        log = self.log
        invariant(
            log.durable_end_offset == log.end_offset,
            "the log must be flushed before the core may vouch for it",
        )
        base = self.snapshots[0].offset if self.snapshots else 0
        invariant(
            log.start_offset == base, f"the log begins at {log.start_offset}, its base is {base}"
        )
        voter_sets: list[tuple[int, VoterSet]] = []
        if self.base_voters is not None:
            voter_sets = [(base - 1, self.base_voters), *voter_sets_in(log)]
        return LogTail(
            epochs=log.epochs.entries,
            end_offset=log.end_offset,
            flushed_end_offset=log.end_offset,
            snapshots=self.snapshots,
            voter_sets=voter_sets,
        )

    def carry_out(self, effect: DiskEffect, *, wall_ms: int) -> None:
        """Carry out the effect before returning. PersistVoteState is fsynced; appends wait for
        FlushLog."""
        self._last_read = None
        match effect:
            case PersistVoteState(state):
                self.vote_store.save(state)
            case AppendProposed(base_offset, epoch, batches):
                data = batches[0] if len(batches) == 1 else b"".join(batches)
                self._append_as_leader(bytearray(data), base_offset, epoch, wall_ms)
            case AppendLeaderChange(base_offset, epoch):
                batch = leader_change_batch(
                    LeaderChange(effect.leader_id, effect.voters, effect.granting_voters),
                    base_offset=base_offset,
                    epoch=epoch,
                    timestamp_ms=wall_ms,
                    has_voter_set=effect.has_voter_set,
                )
                self._append_as_leader(batch, base_offset, epoch, wall_ms)
            case AppendVoters(base_offset, epoch, voters):
                batch = voters_batch(
                    voters, base_offset=base_offset, epoch=epoch, timestamp_ms=wall_ms
                )
                self._append_as_leader(batch, base_offset, epoch, wall_ms)
            case AppendFetched(base_offset, records):
                appended = self.log.append_as_follower(records, now_ms=wall_ms)
                self.appended_bytes += len(records)
                invariant(appended.base_offset == base_offset, "the log and its mirror differ")
            case TruncateLog(end_offset):
                self.log.truncate_to(end_offset)
            case ReplaceLog(snapshot):
                # The snapshot is on disk under its final name, fsynced, so the old log may be
                # removed.
                self.log.truncate_fully_and_start_at(snapshot.offset, now_ms=wall_ms)

    def fetch_response(self, effect: ReplyWithRecords) -> FetchResponse:
        """The response to a fetch, with its records read from the log."""
        records = b""
        if effect.end_offset > effect.fetch_offset:
            key = (effect.fetch_offset, effect.end_offset, effect.bytes_max)
            if self._last_read is not None and self._last_read[0] == key:
                records = self._last_read[1]
            else:
                records = self.log.read(
                    effect.fetch_offset, bytes_max=effect.bytes_max, end_offset=effect.end_offset
                ).read()
                self._last_read = (key, records) if len(records) <= KEPT_BYTES_MAX else None
        return FetchResponse(
            epoch=effect.epoch,
            leader_id=effect.leader_id,
            high_watermark=effect.high_watermark,
            records=records,
        )

    def trim(self, start_offset: int, *, wall_ms: int) -> None:
        """Drop the segments that lie wholly below start_offset; a snapshot on disk covers them."""
        self._last_read = None
        if start_offset > self.log.end_offset:
            return  # the log ends below start_offset, so there is nothing to trim
        self.log.advance_start_offset(start_offset)
        apply_retention(self.log, now_ms=wall_ms, high_watermark=start_offset)
        remove_deleted(self.log, wall_ms)

    def timestamp_before(self, end_offset: int) -> int:
        """Timestamp of the last record below end_offset, which the log must hold."""
        data = self.log.read(end_offset - 1, bytes_max=1, end_offset=end_offset).read()
        return max(header.max_timestamp_ms for _, header in iter_headers(data))

    def _append_as_leader(
        self, data: bytearray, base_offset: int, epoch: int, wall_ms: int
    ) -> None:
        self.appended_bytes += len(data)
        appended = self.log.append_as_leader(data, leader_epoch=epoch, now_ms=wall_ms)
        invariant(appended.base_offset == base_offset, "the log and its mirror differ")
