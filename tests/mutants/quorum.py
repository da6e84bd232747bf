"""The rules of the quorum, each with an edit that breaks it."""

from __future__ import annotations

from tests.mutants.model import Mutant

ELECTION = "raft/roles/election.py"
LEADER = "raft/roles/leader.py"
FOLLOWER = "raft/roles/follower.py"
SNAPSHOTS = "raft/roles/snapshots.py"
CHANGES = "raft/roles/voter_changes.py"
CORE = "raft/core.py"
TRANSITIONS = "raft/transitions.py"
TAIL = "raft/log_tail.py"
QUORUM = "raft/quorum.py"
REPLICA = "raft/replica_log.py"
OPEN = "raft/metadata_log.py"

MUTANTS = (
    # Votes.
    Mutant(
        "vote-not-persisted",
        "a vote is on disk before the answer leaves",
        TRANSITIONS,
        "    core.emit(PersistVoteState(VoteState(epoch, leader_id, voted_id, voted_directory_id)))\n",
        "    if voted_id == NO_NODE:\n"
        "        core.emit(PersistVoteState(VoteState(epoch, leader_id, voted_id, voted_directory_id)))\n",
    ),
    Mutant(
        "votes-twice",
        "one vote an epoch",
        ELECTION,
        '    if core.voted_id != NO_NODE:\n        return f"voted for {core.voted_id}"\n',
        "",
    ),
    Mutant(
        "vote-for-a-stale-log",
        "a vote only for a log at least as long as the own one",
        ELECTION,
        "        refusal = _vote_refusal(core, request)\n",
        "        refusal = _vote_refusal(core, request)\n"
        '        refusal = "" if refusal.startswith("stale log") else refusal\n',
    ),
    Mutant(
        "vote-compares-offset-first",
        "logs compare by epoch before offset",
        ELECTION,
        "    own = (core.log.last_epoch, core.log.end_offset)\n"
        "    if (request.last_epoch, request.end_offset) >= own:\n",
        "    own = (core.log.end_offset, core.log.last_epoch)\n"
        "    if (request.end_offset, request.last_epoch) >= own:\n",
    ),
    Mutant(
        "vote-after-a-leader-is-known",
        "no vote in an epoch whose leader is known",
        ELECTION,
        "    if not isinstance(core.role, Unattached | Prospective):\n",
        "    if isinstance(core.role, Leader):\n",
    ),
    Mutant(
        "pre-vote-while-the-leader-lives",
        "no pre-vote while the leader is heard",
        ELECTION,
        "        case Follower() as role if role.has_fetched and not role.is_leader_lost:\n",
        "        case Follower() as role if False and role.is_leader_lost:\n",
    ),
    Mutant(
        "pre-vote-of-the-leader",
        "a leader grants no pre-vote",
        ELECTION,
        '        case Leader():\n            return "is the leader"\n',
        "",
    ),
    Mutant(
        "no-pre-vote",
        "a pre-vote comes before the epoch is raised",
        ELECTION,
        "    role = become_prospective(core, now_ms)\n    _ask_all(core, role, now_ms)\n",
        "    role = become_prospective(core, now_ms)\n"
        "    role.granted |= set(core.voter_set.ids)\n    _ask_all(core, role, now_ms)\n",
    ),
    Mutant(
        "stale-vote-request-answered",
        "a request of an older epoch is fenced",
        ELECTION,
        "    if request.epoch < core.epoch:\n        return ErrorCode.FENCED_LEADER_EPOCH\n",
        "",
    ),
    Mutant(
        "vote-for-another-disk",
        "a request names the disk it is meant for",
        CORE,
        "        return voter_id == own.node_id and voter_directory_id in (UUID_ZERO, own.directory_id)\n",
        "        return voter_id == own.node_id\n",
    ),
    Mutant(
        "directory-id-ignored",
        "a wiped disk under an old id is no voter",
        "raft/voters.py",
        "        return node_id == self.node_id and self.directory_id in (UUID_ZERO, directory_id)\n",
        "        return node_id == self.node_id\n",
    ),
    Mutant(
        "refusals-counted-as-votes",
        "only granted votes count",
        ELECTION,
        "        role.rejected.add(voter_id)\n",
        "        role.granted.add(voter_id)\n",
    ),
    Mutant(
        "votes-of-an-earlier-round",
        "an answer counts in the round that asked",
        ELECTION,
        "    voter_id = role.pending.pop(correlation_id, None)\n    if voter_id is None:\n"
        "        return  # an answer of an earlier round\n",
        "    voter_id = role.pending.pop(correlation_id, None)\n    if voter_id is None:\n"
        "        voter_id = next(iter(role.pending.values()), core.config.node_id)\n",
    ),
    Mutant(
        "minority-elects",
        "a majority elects",
        QUORUM,
        "    return voter_count // 2 + 1\n",
        "    return max(voter_count // 2, 1)\n",
    ),
    # Roles and epochs.
    Mutant(
        "restarts-as-leader-candidate",
        "who led an epoch does not lead it again after a restart",
        CORE,
        "        if self.persisted_leader_id == config.node_id:\n",
        "        if False:\n",
    ),
    Mutant(
        "epoch-may-fall",
        "an epoch never falls",
        CORE,
        "        elif request.epoch < self.epoch:\n"
        "            self._refuse(request, token, ErrorCode.FENCED_LEADER_EPOCH)\n"
        "        else:\n            self._learn_leader",
        "        else:\n            self._learn_leader",
    ),
    Mutant(
        "log-epoch-ignored-at-start",
        "the epoch is at least that of the log",
        CORE,
        "        if log.last_epoch > vote_state.epoch:\n",
        "        if False:\n",
    ),
    Mutant(
        "stale-answer-believed",
        "an answer of an older epoch says nothing",
        CORE,
        "        if response.epoch < self.epoch:\n",
        "        if False:\n",
    ),
    Mutant(
        "no-check-quorum",
        "a leader without a majority resigns",
        LEADER,
        "    if now_ms >= role.check_quorum_at_ms:\n        set_check_quorum(core, role, now_ms)\n",
        "    if False:\n        set_check_quorum(core, role, now_ms)\n",
    ),
    Mutant(
        "no-hand-over",
        "a leader that resigns tells the voters",
        LEADER,
        "    for voter_id in successors:\n",
        "    for voter_id in ():\n",
    ),
    Mutant(
        "worst-successor-first",
        "the voter that holds most takes over",
        LEADER,
        "    successors = sorted(voters, key=lambda v: (-voters[v].end_offset, v))\n",
        "    successors = sorted(voters, key=lambda v: (voters[v].end_offset, v))\n",
    ),
    Mutant(
        "broken-stream-ignored",
        "a broken stream starts a pre-vote after the grace",
        FOLLOWER,
        "    role.stand_at_ms = now_ms + grace_ms + core.rng.randrange(grace_ms + 1)\n",
        "",
    ),
    Mutant(
        "no-fetch-timeout",
        "a silent leader is given up",
        FOLLOWER,
        "    if now_ms >= role.fetch_deadline_ms:\n        role.is_leader_lost = True\n"
        '        _give_up(core, now_ms, "the fetch timeout passed")\n',
        "    if now_ms >= role.fetch_deadline_ms:\n"
        "        role.fetch_deadline_ms = core.random_fetch_deadline_ms(now_ms)\n",
    ),
    Mutant(
        "lost-leader-is-forgotten-by-nobody",
        "a pre-vote lost goes back to the leader that the others have",
        ELECTION,
        "    if role.leader_id not in (NO_NODE, core.config.node_id):\n",
        "    if False:\n",
    ),
    # Replication.
    Mutant(
        "counts-itself-before-fsync",
        "the leader counts itself only after its fsync",
        LEADER,
        "        ends.append(core.log.flushed_end_offset)\n",
        "        ends.append(core.log.end_offset)\n",
    ),
    Mutant(
        "commits-an-old-epoch",
        "only an entry of the own epoch commits",
        LEADER,
        "    if offset <= role.epoch_start_offset or not core.advance_high_watermark(offset):\n",
        "    if not core.advance_high_watermark(offset):\n",
    ),
    Mutant(
        "commits-the-greatest",
        "a majority holds what is committed",
        QUORUM,
        "    return sorted(end_offsets, reverse=True)[len(end_offsets) // 2]\n",
        "    return sorted(end_offsets, reverse=True)[(len(end_offsets) - 1) // 2]\n",
    ),
    Mutant(
        "high-watermark-may-fall",
        "the high watermark never goes back",
        CORE,
        "        if offset <= self.high_watermark:\n            return False\n",
        "        if offset == self.high_watermark:\n            return False\n",
    ),
    Mutant(
        "follower-commits-beyond-its-log",
        "a follower's high watermark lies within its log",
        FOLLOWER,
        "    core.advance_high_watermark(min(core.log.end_offset, response.high_watermark))\n",
        "    core.advance_high_watermark(response.high_watermark)\n",
    ),
    Mutant(
        "fetches-before-fsync",
        "a voter vouches only for what is on its disk",
        FOLLOWER,
        "    if vouches and core.log.flushed_end_offset < core.log.end_offset:\n",
        "    if False:\n",
    ),
    Mutant(
        "observer-controller-does-not-fsync",
        "a controller that may become a voter fsyncs before it fetches",
        FOLLOWER,
        "    vouches = core.is_voter or core.config.address is not None\n",
        "    vouches = core.is_voter\n",
    ),
    Mutant(
        "late-answer-appended",
        "an answer to a fetch that was given up is dropped",
        FOLLOWER,
        "    if correlation_id != role.correlation_id:\n"
        "        return  # it was given up; a second append of the same records would not fit\n",
        "",
    ),
    Mutant(
        "no-truncation",
        "a diverging follower truncates",
        FOLLOWER,
        "    core.log.truncate(end_offset)\n    core.emit(TruncateLog(end_offset))\n",
        "",
    ),
    Mutant(
        "truncates-to-the-leaders-end",
        "truncation goes to the end of the largest common epoch",
        TAIL,
        "            return min(own.offset, diverging.offset)\n        return own.offset\n",
        "            return min(own.offset, diverging.offset)\n"
        "        return min(self.end_offset, diverging.offset)\n",
    ),
    Mutant(
        "divergence-by-offset-only",
        "logs are compared by epoch, not by length",
        TAIL,
        "        if end.epoch != last_fetched_epoch or end.offset < fetch_offset:\n",
        "        if end.offset < fetch_offset:\n",
    ),
    Mutant(
        "divergence-off-by-one",
        "a log may not be longer than the leader's in their common epoch",
        TAIL,
        "        if end.epoch != last_fetched_epoch or end.offset < fetch_offset:\n",
        "        if end.epoch != last_fetched_epoch or end.offset + 1 < fetch_offset:\n",
    ),
    Mutant(
        "flush-outlives-truncation",
        "a flush says nothing of what was appended after a truncation",
        TAIL,
        "        if generation != self.generation or end_offset <= self.flushed_end_offset:\n",
        "        if end_offset <= self.flushed_end_offset:\n",
    ),
    Mutant(
        "truncation-keeps-the-flushed-end",
        "what was truncated is not on disk",
        TAIL,
        "        self.flushed_end_offset = min(self.flushed_end_offset, end_offset)\n",
        "",
    ),
    Mutant(
        "wrong-epoch-fetch-served",
        "a fetch of another epoch is fenced",
        LEADER,
        "    if request.epoch < core.epoch:\n        error = ErrorCode.FENCED_LEADER_EPOCH\n"
        "    elif request.epoch > core.epoch:\n        error = ErrorCode.UNKNOWN_LEADER_EPOCH\n"
        "    elif request.fetch_offset < 0",
        "    if request.fetch_offset < 0",
    ),
    Mutant(
        "observer-counts",
        "only voters count for the commit",
        LEADER,
        "    ends = [progress.end_offset for progress in role.voters.values()]\n",
        "    ends = [progress.end_offset for progress in role.voters.values()]\n"
        "    ends += [progress.end_offset for progress in role.observers.values()][:1]\n",
    ),
    Mutant(
        "observers-see-the-uncommitted",
        "an observer is sent only what is committed",
        LEADER,
        "    if core.voter_set.has(*replica):\n        return core.log.end_offset\n",
        "    if True:\n        return core.log.end_offset\n",
    ),
    Mutant(
        "other-cluster-served",
        "a request of another cluster is refused",
        CORE,
        "        if request.cluster_id != self.config.cluster_id:\n",
        "        if False:\n",
    ),
    # Snapshots.
    Mutant(
        "snapshot-of-the-uncommitted",
        "a snapshot holds only what is committed",
        SNAPSHOTS,
        "        snapshot.offset <= core.high_watermark,\n",
        "        True,\n",
    ),
    Mutant(
        "log-behind-a-snapshot-kept",
        "the log begins anew behind a received snapshot",
        SNAPSHOTS,
        "    core.emit(ReplaceLog(event.snapshot))\n",
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
        "pieces of a snapshot follow each other",
        SNAPSHOTS,
        "    is_next = response.position == fetching.position and (\n",
        "    is_next = response.position >= 0 and (\n",
    ),
    Mutant(
        "trimmed-log-served",
        "who needs what was trimmed is sent a snapshot",
        TAIL,
        "        behind = fetch_offset < base.offset or last_fetched_epoch < base.epoch\n",
        "        behind = fetch_offset < base.offset - 1\n",
    ),
    Mutant(
        "log-trimmed-too-far",
        "the log begins where the oldest snapshot ends",
        SNAPSHOTS,
        "        core.emit(DropSnapshots(gone, core.log.start_offset))\n",
        "        core.emit(DropSnapshots(gone, core.log.end_offset))\n",
    ),
    Mutant(
        "log-not-trimmed",
        "the log below the first snapshot goes",
        REPLICA,
        "        self.log.advance_start_offset(start_offset)\n",
        "",
    ),
    Mutant(
        "footer-not-checked",
        "a snapshot without a footer is refused",
        "snapshots/format.py",
        "        if self.header is None or not self._is_finished or self._head is not None:\n",
        "        if self.header is None:\n",
    ),
    Mutant(
        "frame-checksum-not-checked",
        "every frame's checksum is checked",
        "snapshots/format.py",
        "        if crc32c(payload, crc32c(head[: _FRAME.size])) != crc:\n",
        "        if False and crc:\n",
    ),
    Mutant(
        "snapshot-named-before-fsync",
        "a snapshot is fsynced before it gets its name",
        "snapshots/store.py",
        "                await _write_frames(file, header, payloads)\n                await file.sync()\n",
        "                await _write_frames(file, header, payloads)\n",
    ),
    Mutant(
        "snapshot-folder-not-fsynced",
        "the name of a snapshot is durable before anything rests on it",
        "snapshots/store.py",
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
        "one change of the voter set at a time",
        CHANGES,
        "    if core.log.voters.last_offset >= core.high_watermark:\n",
        "    if False:\n",
    ),
    Mutant(
        "change-before-own-commit",
        "a leader changes voters only after a commit in its own epoch",
        CHANGES,
        "    if core.high_watermark <= role.epoch_start_offset:\n",
        "    if False:\n",
    ),
    Mutant(
        "adds-a-laggard",
        "a voter is added once it has caught up",
        CHANGES,
        "    if caught_up_ms < 0 or now_ms - caught_up_ms > core.config.fetch_timeout_ms:\n",
        "    if False:\n",
    ),
    Mutant(
        "change-stops-the-quorum",
        "a change whose voters have no majority is refused",
        CHANGES,
        "    if len(alive) >= majority(len(after)):\n        return None\n",
        "    if True:\n        return None\n",
    ),
    Mutant(
        "removed-leader-counts-itself",
        "a leader that was removed does not count itself",
        LEADER,
        "    if core.is_voter:\n        # Only after its own fsync",
        "    if True:\n        # Only after its own fsync",
    ),
    Mutant(
        "removed-leader-stays",
        "a removed leader hands over once its removal is committed",
        CHANGES,
        "    if is_settled and not core.is_voter:\n",
        "    if False:\n",
    ),
    Mutant(
        "removed-voter-stands",
        "a removed voter does not stand for election",
        FOLLOWER,
        "    if core.is_electable:\n        election.stand(core, now_ms, reason)\n",
        "    if True:\n        election.stand(core, now_ms, reason)\n",
    ),
    Mutant(
        "removed-voter-trusted",
        "votes are asked of the voters in force only",
        ELECTION,
        "    voters = core.voter_set.ids\n    if len(role.granted",
        "    voters = core.log.voters.entries[0][1].ids if core.config.is_dynamic else "
        "core.voter_set.ids\n    if len(role.granted",
    ),
    Mutant(
        "removed-leader-never-stands",
        "who is out of its own latest set stands until that is committed",
        CORE,
        "        if self.is_voter:\n            return True\n        history = self.log.voters\n",
        "        if not self.is_voter:\n            return False\n"
        "        history = self.log.voters\n",
    ),
    Mutant(
        "votes-counted-by-number",
        "only votes of those in force count",
        ELECTION,
        "    if len(role.granted.intersection(voters)) >= majority(len(voters)):\n",
        "    if len(role.granted) >= majority(len(voters)):\n",
    ),
    Mutant(
        "records-that-do-not-fit",
        "records that do not continue the log are not appended",
        FOLLOWER,
        "        if not _continues(core, response):\n",
        "        if False:\n",
    ),
    Mutant(
        "truncated-voters-stay",
        "a truncated voter set is undone",
        TAIL,
        "        self.voters.truncate(end_offset)\n",
        "",
    ),
    Mutant(
        "committed-voters-only",
        "a voter set is in force from its append on",
        CORE,
        "        return self.log.voters.last if self.config.is_dynamic else self._static_voters\n",
        "        if not self.config.is_dynamic:\n            return self._static_voters\n"
        "        committed = self.log.voters.at(max(self.high_watermark, 0))\n"
        "        return committed if len(committed) else self.log.voters.last\n",
    ),
    Mutant(
        "voters-not-in-the-log",
        "the first leader writes the bootstrap voters into the log",
        LEADER,
        "        core.log.voters.last_offset < 0 or core.is_voter_entry_stale\n",
        "        False\n",
    ),
)
