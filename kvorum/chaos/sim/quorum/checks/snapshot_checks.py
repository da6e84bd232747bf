"""The invariants of snapshots and trimmed logs, on every disk and between disks.

A snapshot is checked when it is written or received, when a node starts with it, and before it
replaces a log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kvorum.chaos.sim.kernel.checks import check
from kvorum.chaos.sim.quorum.checks.checked_node import CheckedNode
from kvorum.chaos.sim.quorum.model.mirror import Mirror
from kvorum.chaos.sim.quorum.model.recovery import DiskSettings, RecoveredNode, read_state
from kvorum.chaos.sim.quorum.model.state import ListState, VoterKeys
from kvorum.raft.model.effects import DropSnapshots, WriteSnapshotChunk
from kvorum.raft.model.values import OffsetAndEpoch
from kvorum.runtime.errors import CorruptData


class SnapshotChecks:
    """Invariants of snapshots and of their transfers.

    committed: the committed log that all nodes must agree with.
    held: node to the snapshots that its log depends on, all of them durable.
    sources: node to the snapshot that it fetches, and the leader it fetches from.
    tally: counts of events of transfers.
    """

    def __init__(self, committed: Mirror, settings: DiskSettings) -> None:
        self.committed = committed
        self.held: dict[int, Sequence[OffsetAndEpoch]] = {}
        self.sources: dict[int, tuple[OffsetAndEpoch, int]] = {}
        self.tally: Counter[str] = Counter()
        self._settings = settings
        self._bytes: dict[OffsetAndEpoch, bytes] = {}

    def forget(self, node: CheckedNode) -> None:
        """Drop the facts about a node that has another, empty disk."""
        self.held.pop(node.node_id, None)

    def after_event(self, node: CheckedNode) -> None:
        """Check SnapshotAtLogStart: a log is not trimmed above the end of its oldest snapshot.
        Check CoreKnowsLog: the core's end offset and last epoch are those of the log."""
        tail, log = node.core.log, node.replica_log.log
        self.held[node.node_id] = tuple(tail.snapshots)
        check(
            log.start_offset <= tail.start_offset,
            "SnapshotAtLogStart",
            f"log of node {node.node_id} begins at {log.start_offset}, its oldest snapshot ends "
            f"at {tail.start_offset}",
        )
        mirror = node.mirror
        last_epoch = mirror.epochs[-1][0] if mirror.epochs else 0
        check(
            log.end_offset == tail.end_offset == mirror.end_offset
            and tail.last_epoch == last_epoch,
            "CoreKnowsLog",
            f"log of node {node.node_id} ends at {log.end_offset}, its last record is of epoch "
            f"{last_epoch}; the core takes it for {tail.last_epoch}: {node.summary()}",
        )

    def on_snapshot(
        self, node: CheckedNode, snapshot: OffsetAndEpoch
    ) -> tuple[ListState, VoterKeys]:
        """Check SnapshotEqualsPrefix, and SnapshotsAgree: snapshots of one name are equal.

        Returns the snapshot's state and voters.
        """
        path = node.files.path(snapshot)
        return self._read_snapshot(node, snapshot, path)

    def on_opened(self, node: CheckedNode, opened: RecoveredNode) -> None:
        """Check the result of a start. SnapshotSurvives: the snapshots that the log depends on are
        there, and whole."""
        metadata = opened.metadata
        check(
            metadata.was_dynamic in (None, self._settings.is_dynamic),
            "SnapshotSurvives",
            f"disk of node {node.node_id} takes itself for one of another kind of voter set",
        )
        check(
            node.has_decayed or not metadata.damaged,
            "SnapshotSurvives",
            f"node {node.node_id} found a snapshot damaged that nothing damaged: "
            + "; ".join(map(str, metadata.damaged)),
        )
        start_offset = opened.mirror.start_offset
        for snapshot in metadata.replica_log.snapshots:
            self._read_snapshot(node, snapshot, metadata.files.path(snapshot))
            check(
                opened.mirror.digest_at(snapshot.offset)
                == self.committed.digest_at(snapshot.offset),
                "SnapshotAtLogStart",
                f"log of node {node.node_id} from {start_offset} to {opened.mirror.end_offset} "
                f"does not lead to {snapshot}",
            )
        if self.is_begun_anew(node, opened.mirror):
            self._given_up_rightly(node, metadata.replica_log.snapshots[-1])
            return
        lost = set(self.held.get(node.node_id, ())) - set(metadata.replica_log.snapshots)
        check(
            node.has_decayed or not lost,
            "SnapshotSurvives",
            f"node {node.node_id} had {lost} on disk and came back without",
        )

    def on_piece(self, node: CheckedNode, effect: WriteSnapshotChunk) -> None:
        """Count the events of a transfer."""
        tally, leader_id = self.tally, node.core.leader_id
        tally["snapshot pieces"] += 1
        known = self.sources.get(node.node_id)
        if effect.position == 0:
            tally["snapshot transfers"] += 1
        elif known is not None and known[0] == effect.snapshot and known[1] != leader_id:
            tally["snapshot transfers from two leaders"] += 1
        self.sources[node.node_id] = effect.snapshot, leader_id

    def on_replacing(
        self, node: CheckedNode, snapshot: OffsetAndEpoch
    ) -> tuple[ListState, VoterKeys]:
        """Check a snapshot that is about to replace the node's log. LeaderNeverLoads: the node
        is not the leader. DurableSurvives: the snapshot holds every committed record that is
        dropped."""
        check(not node.is_leader, "LeaderNeverLoads", f"{snapshot}: {node.summary()}")
        self._given_up_rightly(node, snapshot)
        self.held[node.node_id] = (snapshot,)
        return self.on_snapshot(node, snapshot)

    def on_folder_changed(self, node: CheckedNode, effect: DropSnapshots | None) -> None:
        """Check the folder after snapshots were removed, and the log trimmed if an effect asked for
        it."""
        tail, log = node.core.log, node.replica_log.log
        for snapshot in tail.snapshots:
            check(
                node.disk.exists(node.files.path(snapshot)),
                "SnapshotAtLogStart",
                f"node {node.node_id} has removed {snapshot}, which its log rests on",
            )
        if effect is not None and log.start_offset < effect.start_offset <= log.end_offset:
            check(
                False,
                "LogTrimmed",
                f"log of node {node.node_id} was trimmed to {effect.start_offset} and begins at "
                f"{log.start_offset}",
            )
        check(
            log.start_offset <= tail.start_offset,
            "SnapshotAtLogStart",
            f"log of node {node.node_id} was trimmed to {log.start_offset}, its oldest snapshot "
            f"ends at {tail.start_offset}",
        )

    def is_begun_anew(self, node: CheckedNode, found: Mirror) -> bool:
        """True if a start replaced the log by a snapshot: by a received one, or by one of the
        node's own that reaches beyond the fsynced end of the log."""
        start_offset = found.start_offset
        known = node.mirror.digest_at(start_offset)
        # A lower start does not count: a start may recover more of the log than was in use, if a
        # snapshot decayed before the segments below it were removed.
        return start_offset > node.durable_end_offset or known not in (
            None,
            found.digest_at(start_offset),
        )

    # Inside.

    def _read_snapshot(
        self, node: CheckedNode, snapshot: OffsetAndEpoch, path: str
    ) -> tuple[ListState, VoterKeys]:
        check(
            node.disk.exists(path), "SnapshotEqualsPrefix", f"{path} of {node.node_id} is missing"
        )
        data = node.disk.read_bytes(path)
        known = self._bytes.setdefault(snapshot, data)
        check(
            known == data,
            "SnapshotsAgree",
            f"node {node.node_id} and another have different bytes under {snapshot}",
        )
        try:
            state, voters = read_state(node.disk, path, self._settings)
        except CorruptData as error:
            check(False, "SnapshotEqualsPrefix", f"node {node.node_id} takes {error}")
            raise
        last = self.committed.entry(snapshot.offset - 1)
        check(
            last is not None
            and state.digest == self.committed.digest_at(snapshot.offset)
            and state.epoch == last[0] == snapshot.epoch,
            "SnapshotEqualsPrefix",
            f"{snapshot} of node {node.node_id} is not what was committed up to there",
        )
        expected = self.committed.voters_at(snapshot.offset)
        check(
            voters == expected,
            "SnapshotEqualsPrefix",
            f"{snapshot} of node {node.node_id} has the voters {sorted(voters)}, the log "
            f"{sorted(expected)}",
        )
        return state, voters

    def _given_up_rightly(self, node: CheckedNode, snapshot: OffsetAndEpoch) -> None:
        offset, mirror = snapshot.offset, node.mirror
        is_ahead = node.durable_end_offset > offset
        is_same = mirror.digest_at(offset) == self.committed.digest_at(offset)
        check(
            not (is_ahead and is_same),
            "DurableSurvives",
            f"node {node.node_id} had fsynced {node.durable_end_offset} records and gives them up "
            f"for a snapshot of {offset}",
        )
