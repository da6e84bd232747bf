"""Rules of snapshots and of the voter set, each with an edit that breaks it."""

from __future__ import annotations

from tests.mutants.model import Mutant

ELECTION = "kvorum/raft/core/election.py"
LEADER = "kvorum/raft/core/leader.py"
FOLLOWER = "kvorum/raft/core/follower.py"
SNAPSHOTS = "kvorum/raft/core/snapshots.py"
CHANGES = "kvorum/raft/core/voter_changes.py"
STATE = "kvorum/raft/core/state.py"
TAIL = "kvorum/raft/model/log_tail.py"
REPLICA = "kvorum/raft/node/replica_log.py"
OPEN = "kvorum/raft/node/metadata_log.py"

MUTANTS = (
    # Snapshots.
    Mutant(
        "snapshot-of-the-uncommitted",
        "a snapshot has committed records only",
        SNAPSHOTS,
        "        snapshot.offset <= state.high_watermark,\n",
        "        True,\n",
    ),
    Mutant(
        "log-behind-a-snapshot-kept",
        "the log starts again at the end of a received snapshot",
        SNAPSHOTS,
        "    state.emit(ReplaceLog(event.snapshot))\n",
        "",
    ),
    Mutant(
        "damaged-snapshot-loaded",
        "a snapshot that arrived damaged is fetched again",
        SNAPSHOTS,
        "    if not event.is_good:\n",
        "    if False:\n",
    ),
    Mutant(
        "snapshot-piece-out-of-order",
        "the chunks of a snapshot arrive in order",
        SNAPSHOTS,
        "    is_next = response.position == transfer.position and (\n",
        "    is_next = response.position >= 0 and (\n",
    ),
    Mutant(
        "trimmed-log-served",
        "a node that needs trimmed records gets a snapshot",
        TAIL,
        "        behind = fetch_offset < base.offset or last_fetched_epoch < base.epoch\n",
        "        behind = fetch_offset < base.offset - 1\n",
    ),
    Mutant(
        "log-trimmed-too-far",
        "the log begins at or below the end of the oldest snapshot",
        SNAPSHOTS,
        "        state.emit(DropSnapshots(gone, state.log.start_offset))\n",
        "        state.emit(DropSnapshots(gone, state.log.end_offset))\n",
    ),
    Mutant(
        "log-not-trimmed",
        "the log below the oldest snapshot is deleted",
        REPLICA,
        "        self.log.advance_start_offset(start_offset)\n",
        "",
    ),
    Mutant(
        "footer-not-checked",
        "a snapshot without a footer is refused",
        "kvorum/snapshots/format.py",
        "        if self.header is None or not self._is_finished or self._head is not None:\n",
        "        if self.header is None:\n",
    ),
    Mutant(
        "frame-checksum-not-checked",
        "every frame's checksum is checked",
        "kvorum/snapshots/format.py",
        "        if crc32c(payload, crc32c(head[: _FRAME.size])) != crc:\n",
        "        if False and crc:\n",
    ),
    Mutant(
        "snapshot-named-before-fsync",
        "a snapshot is fsynced before it is renamed to its final name",
        "kvorum/snapshots/store.py",
        "                await _write_frames(file, header, payloads)\n                await file.sync()\n",
        "                await _write_frames(file, header, payloads)\n",
    ),
    Mutant(
        "snapshot-folder-not-fsynced",
        "the name of a snapshot is durable before the log is trimmed",
        "kvorum/snapshots/store.py",
        "            await self.disk.sync_dir(self.directory)\n        except OSError:\n",
        "            pass\n        except OSError:\n",
    ),
    Mutant(
        "gap-behind-a-snapshot",
        "snapshots below the log's first record are not used",
        OPEN,
        "    good = [snapshot for snapshot in found.good if snapshot.offset >= first_offset]\n",
        "    good = list(found.good)\n",
    ),
    Mutant(
        "unfinished-replacement-forgotten",
        "a received snapshot ahead of the log replaces it after a crash",
        OPEN,
        "    if good and not _is_prefix(log, good[-1]):\n",
        "    if False:\n",
    ),
    # Voters.
    Mutant(
        "two-changes-at-once",
        "the leader makes one change of the voter set at a time",
        CHANGES,
        "    if state.log.voters.last_offset >= state.high_watermark:\n",
        "    if False:\n",
    ),
    Mutant(
        "change-before-own-commit",
        "a leader changes voters only after a commit in its own epoch",
        CHANGES,
        "    if state.high_watermark <= role.epoch_start_offset:\n",
        "    if False:\n",
    ),
    Mutant(
        "adds-a-laggard",
        "a voter is added once it has caught up",
        CHANGES,
        "    if caught_up_ms < 0 or now_ms - caught_up_ms > state.config.fetch_timeout_ms:\n",
        "    if False:\n",
    ),
    Mutant(
        "every-change-waits",
        "a change whose client does not wait for the commit is answered at once",
        CHANGES,
        "    if isinstance(request, AddVoterRequest) and request.is_answered_early:\n",
        "    if False:\n",
        has_simulator=False,
    ),
    Mutant(
        "change-stops-the-quorum",
        "a change is refused if no majority of the new set can be reached",
        CHANGES,
        "    if len(alive) >= majority(len(after)):\n        return None\n",
        "    if True:\n        return None\n",
    ),
    Mutant(
        "removed-leader-counts-itself",
        "a removed leader does not count itself",
        LEADER,
        "    if state.is_voter:\n        # The leader counts its own log only after",
        "    if True:\n        # The leader counts its own log only after",
    ),
    Mutant(
        "removed-leader-stays",
        "a removed leader hands over once its removal is committed",
        CHANGES,
        "    if is_settled and not state.is_voter:\n",
        "    if False:\n",
    ),
    Mutant(
        "removed-voter-stands",
        "a removed voter does not become a candidate",
        FOLLOWER,
        "    if state.is_electable:\n        election.stand(state, now_ms, reason)\n",
        "    if True:\n        election.stand(state, now_ms, reason)\n",
    ),
    Mutant(
        "removed-voter-trusted",
        "a candidate asks only the voters in force for votes",
        ELECTION,
        "    voters = state.voter_set.ids\n    if len(role.granted",
        "    voters = state.log.voters.entries[0][1].ids if state.config.is_dynamic else "
        "state.voter_set.ids\n    if len(role.granted",
    ),
    Mutant(
        "removed-leader-never-stands",
        "a voter whose removal is not yet committed may become a candidate",
        STATE,
        "        if self.is_voter:\n            return True\n        history = self.log.voters\n",
        "        if not self.is_voter:\n            return False\n"
        "        history = self.log.voters\n",
    ),
    Mutant(
        "votes-counted-by-number",
        "only votes of the voters in force count",
        ELECTION,
        "    if len(role.granted.intersection(voters)) >= majority(len(voters)):\n",
        "    if len(role.granted) >= majority(len(voters)):\n",
    ),
    Mutant(
        "records-that-do-not-fit",
        "records that do not continue the log are not appended",
        FOLLOWER,
        "        if not _continues(state, response):\n",
        "        if False:\n",
    ),
    Mutant(
        "truncated-voters-stay",
        "truncating a VotersRecord restores the previous voter set",
        TAIL,
        "        self.voters.truncate(end_offset)\n",
        "",
    ),
    Mutant(
        "committed-voters-only",
        "a voter set is in force from its append on",
        STATE,
        "        return self.log.voters.last if self.config.is_dynamic else self._static_voters\n",
        "        if not self.config.is_dynamic:\n            return self._static_voters\n"
        "        committed = self.log.voters.at(max(self.high_watermark, 0))\n"
        "        return committed if len(committed) else self.log.voters.last\n",
    ),
    Mutant(
        "voters-not-in-the-log",
        "the first leader writes the bootstrap voters into the log",
        LEADER,
        "        state.log.voters.last_offset < 0 or state.is_voter_entry_stale\n",
        "        False\n",
    ),
)
