"""The disk half of a node: carries out the core's disk effects on a real log and vote store.

Holds no rule. The driver and the simulator share it, so that both move the same bytes.
"""

from __future__ import annotations

from raft.control_records import LeaderChange, leader_change_batch
from raft.effects import (
    AppendFetched,
    AppendLeaderChange,
    AppendProposed,
    PersistVoteState,
    ReplyWithRecords,
    TruncateLog,
)
from raft.log_tail import LogTail
from raft.messages import FetchResponse
from raft.model import BatchSpan
from raft.vote_store import VoteStore
from runtime.errors import invariant
from storage.batch import iter_headers
from storage.log import Log

DiskEffect = PersistVoteState | AppendProposed | AppendLeaderChange | AppendFetched | TruncateLog


def spans_of(records: bytes) -> tuple[BatchSpan, ...]:
    """The batches in `records`, which must be whole."""
    return tuple(
        BatchSpan(header.base_offset, header.last_offset, header.leader_epoch)
        for _, header in iter_headers(records)
    )


class ReplicaLog:
    """One node's metadata log and vote, and how effects act on them."""

    def __init__(self, log: Log, vote_store: VoteStore) -> None:
        self.log = log
        self.vote_store = vote_store

    def tail(self) -> LogTail:
        """The core's view of the log as it is now; all of it must be flushed already."""
        invariant(
            self.log.durable_end_offset == self.log.end_offset,
            "the log must be flushed before the core may vouch for it",
        )
        return LogTail(
            epochs=self.log.epochs.entries,
            start_offset=self.log.start_offset,
            end_offset=self.log.end_offset,
            flushed_end_offset=self.log.end_offset,
        )

    def carry_out(self, effect: DiskEffect, *, wall_ms: int) -> None:
        """Do it before returning. PersistVoteState is fsynced; appends are not (FlushLog)."""
        match effect:
            case PersistVoteState(state):
                self.vote_store.save(state)
            case AppendProposed(base_offset, epoch, batches):
                data = batches[0] if len(batches) == 1 else b"".join(batches)
                self._append_as_leader(bytearray(data), base_offset, epoch, wall_ms)
            case AppendLeaderChange(base_offset, epoch, leader_id, voters, granting):
                batch = leader_change_batch(
                    LeaderChange(leader_id, voters, granting),
                    base_offset=base_offset,
                    epoch=epoch,
                    timestamp_ms=wall_ms,
                )
                self._append_as_leader(batch, base_offset, epoch, wall_ms)
            case AppendFetched(base_offset, records):
                appended = self.log.append_as_follower(records, now_ms=wall_ms)
                invariant(appended.base_offset == base_offset, "the log and its mirror differ")
            case TruncateLog(end_offset):
                self.log.truncate_to(end_offset)

    def fetch_response(self, effect: ReplyWithRecords) -> FetchResponse:
        """The fetch answer with its bytes read from the log."""
        records = b""
        if effect.end_offset > effect.fetch_offset:
            records = self.log.read(
                effect.fetch_offset, bytes_max=effect.bytes_max, end_offset=effect.end_offset
            ).read()
        return FetchResponse(
            epoch=effect.epoch,
            leader_id=effect.leader_id,
            high_watermark=effect.high_watermark,
            records=records,
        )

    def _append_as_leader(
        self, data: bytearray, base_offset: int, epoch: int, wall_ms: int
    ) -> None:
        appended = self.log.append_as_leader(data, leader_epoch=epoch, now_ms=wall_ms)
        invariant(appended.base_offset == base_offset, "the log and its mirror differ")
