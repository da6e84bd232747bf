"""Rules of elections and replication, each with an edit that breaks it."""

from __future__ import annotations

from tests.mutants.model import Mutant

ELECTION = "kvorum/raft/core/election.py"
LEADER = "kvorum/raft/core/leader.py"
LEADERSHIP = "kvorum/raft/core/leadership.py"
FOLLOWER = "kvorum/raft/core/follower.py"
FETCHING = "kvorum/raft/core/fetching.py"
CORE = "kvorum/raft/core/raft_core.py"
STATE = "kvorum/raft/core/state.py"
TRANSITIONS = "kvorum/raft/core/transitions.py"
TAIL = "kvorum/raft/model/log_tail.py"
QUORUM = "kvorum/raft/model/quorum.py"
REPLICA = "kvorum/raft/node/replica_log.py"

MUTANTS = (
    Mutant(
        "observers-all-at-once",
        "observers' fetches are answered a few at a time",
        LEADERSHIP,
        "    answered = list(itertools.islice(role.due.values(), role.turn_left))\n",
        "    answered = list(role.due.values())\n",
        has_simulator=False,
    ),
    Mutant(
        "leader-of-the-same-id-followed",
        "a node whose id another process has is refused with a sentence",
        FOLLOWER,
        "response.error is ErrorCode.NONE and leader_id == state.config.node_id:",
        "response.error is ErrorCode.NONE and leader_id == NO_NODE:",
    ),
    # Votes.
    Mutant(
        "vote-not-persisted",
        "a vote is on disk before its answer is sent",
        TRANSITIONS,
        "    state.emit(PersistVoteState(VoteState(epoch, leader_id, voted_id, voted_directory_id)))\n",
        "    if voted_id == NO_NODE:\n"
        "        state.emit(PersistVoteState(VoteState(epoch, leader_id, voted_id, voted_directory_id)))\n",
    ),
    Mutant(
        "votes-twice",
        "a voter gives one vote in each epoch",
        ELECTION,
        '    if state.voted_id != NO_NODE:\n        return f"voted for {state.voted_id}"\n',
        "",
    ),
    Mutant(
        "vote-for-a-stale-log",
        "a voter votes only for a log at least as up to date as its own",
        ELECTION,
        "        refusal = _vote_refusal(state, request)\n",
        "        refusal = _vote_refusal(state, request)\n"
        '        refusal = "" if refusal.startswith("stale log") else refusal\n',
    ),
    Mutant(
        "vote-compares-offset-first",
        "logs compare by epoch before offset",
        ELECTION,
        "    own = (state.log.last_epoch, state.log.end_offset)\n"
        "    if (request.last_epoch, request.end_offset) >= own:\n",
        "    own = (state.log.end_offset, state.log.last_epoch)\n"
        "    if (request.end_offset, request.last_epoch) >= own:\n",
    ),
    Mutant(
        "vote-after-a-leader-is-known",
        "a voter gives no vote in an epoch whose leader it knows",
        ELECTION,
        "    if not isinstance(state.role, Unattached | Prospective):\n"
        '        return f"is {type(state.role).__name__.lower()} in this epoch"\n'
        "    if state.role.leader_id != NO_NODE:\n"
        '        return f"leader of this epoch is {state.role.leader_id}"\n',
        "",
    ),
    Mutant(
        "pre-vote-while-the-leader-lives",
        "a voter grants no pre-vote while it hears from the leader",
        ELECTION,
        "        case Follower() as role if not role.is_leader_lost:\n",
        "        case Follower() as role if False and role.is_leader_lost:\n",
    ),
    Mutant(
        "leaders-word-is-one-refusal",
        "an answer of the leader itself ends a pre-vote",
        ELECTION,
        "    if response.leader_id == voter_id and isinstance(role, Prospective):\n",
        "    if False and isinstance(role, Prospective):\n",
    ),
    Mutant(
        "resigned-calls-itself-leader",
        "a resigned leader names no leader",
        ELECTION,
        "leader_id=NO_NODE if isinstance(state.role, Resigned) else state.role.leader_id,\n",
        "leader_id=state.role.leader_id,\n",
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
        "    role = become_prospective(state, now_ms)\n    _ask_all(state, role, now_ms)\n",
        "    role = become_prospective(state, now_ms)\n"
        "    role.granted |= set(state.voter_set.ids)\n    _ask_all(state, role, now_ms)\n",
    ),
    Mutant(
        "stale-vote-request-answered",
        "a request of an older epoch is fenced",
        ELECTION,
        "    if request.epoch < state.epoch:\n        return ErrorCode.FENCED_LEADER_EPOCH\n",
        "",
    ),
    Mutant(
        "vote-for-another-disk",
        "a vote request names the directory id of the voter",
        STATE,
        "        return voter_id == own.node_id and voter_directory_id in (UUID_ZERO, own.directory_id)\n",
        "        return voter_id == own.node_id\n",
    ),
    Mutant(
        "directory-id-ignored",
        "a wiped disk under an old id is not a voter",
        "kvorum/raft/model/voters.py",
        "        return node_id == self.node_id and self.directory_id in (UUID_ZERO, directory_id)\n",
        "        return node_id == self.node_id\n",
    ),
    Mutant(
        "refusals-counted-as-votes",
        "only granted votes count",
        ELECTION,
        "        role.rejected.update({voter_id} - role.granted)\n",
        "        role.granted.add(voter_id)\n",
    ),
    Mutant(
        "a-late-refusal-takes-a-grant-back",
        "a voter that is asked twice and granted once counts as granted",
        ELECTION,
        "        role.rejected.update({voter_id} - role.granted)\n",
        "        role.rejected.add(voter_id)\n        role.granted.discard(voter_id)\n",
    ),
    Mutant(
        "who-refused-is-not-asked-again",
        "a voter that asks with a shorter log has lost the leader too, and is asked again",
        ELECTION,
        "        role.rejected.discard(voter_id)\n        _ask(state, role, voter_id)\n",
        "        pass\n",
    ),
    Mutant(
        "a-lost-round-waits-for-the-fetch-timeout",
        "a node that lost its pre-vote asks again as soon as another voter has lost the leader",
        ELECTION,
        "        role.stand_at_ms = now_ms + state.rng.randrange("
        "state.config.leader_loss_grace_ms + 1)\n",
        "",
    ),
    Mutant(
        "votes-of-an-earlier-round",
        "an answer counts only in the round that asked for it",
        ELECTION,
        "    voter_id = role.pending.pop(correlation_id, None)\n    if voter_id is None:\n"
        "        return  # an answer of an earlier round\n",
        "    voter_id = role.pending.pop(correlation_id, None)\n    if voter_id is None:\n"
        "        voter_id = next(iter(role.pending.values()), state.config.node_id)\n",
    ),
    Mutant(
        "minority-elects",
        "a leader needs the votes of a majority",
        QUORUM,
        "    return voter_count // 2 + 1\n",
        "    return max(voter_count // 2, 1)\n",
    ),
    # Roles and epochs.
    Mutant(
        "restarts-as-leader-candidate",
        "a node that led an epoch does not lead it again after a restart",
        STATE,
        "        if self.persisted_leader_id == config.node_id:\n",
        "        if False:\n",
    ),
    Mutant(
        "epoch-may-fall",
        "an epoch never falls",
        CORE,
        "        elif request.epoch < self.epoch:\n"
        "            self._answer(request, token, ErrorCode.FENCED_LEADER_EPOCH)\n"
        "        elif not self._learn_leader",
        "        elif not self._learn_leader",
    ),
    Mutant(
        "votes-without-a-log",
        "a voter that may have lost its log votes for nobody who has one and does not know its disk",
        ELECTION,
        "    if is_unnamed and state.log.end_offset == 0 < request.end_offset:\n",
        "    if False:\n",
    ),
    Mutant(
        "lost-log-goes-on",
        "a voter that has lost its log is turned away",
        LEADER,
        "    if is_dynamic_voter and progress.end_offset > 0 == request.fetch_offset:\n",
        "    if False:\n",
    ),
    Mutant(
        "observer-truncates",
        "an observer holds committed records alone",
        STATE,
        "        if self.config.address is None and not self.is_voter:\n",
        "        if False:\n",
    ),
    Mutant(
        "committed-before-the-start-truncated",
        "records that were committed before a restart stay committed",
        STATE,
        "        return max(self.high_watermark, self.config.committed_offset)\n",
        "        return self.high_watermark\n",
    ),
    Mutant(
        "committed-records-truncated",
        "a leader that lacks committed records is refused",
        FOLLOWER,
        "    if end_offset < committed:\n",
        "    if False:\n",
    ),
    Mutant(
        "older-leader-waited-for",
        "a leader that goes on in an older epoch is refused",
        STATE,
        "        if now_ms - self._older_leader_since_ms >= silence_ms:\n",
        "        if False:\n",
    ),
    Mutant(
        "second-leader-believed",
        "a peer that names another leader of the epoch is not believed",
        CORE,
        "        if known not in (NO_NODE, leader_id):\n",
        "        if False:\n",
    ),
    Mutant(
        "log-epoch-ignored-at-start",
        "at a start the epoch is at least the log's last epoch",
        STATE,
        "        if log.last_epoch > vote_state.epoch:\n",
        "        if False:\n",
    ),
    Mutant(
        "stale-answer-believed",
        "an answer with an older epoch is ignored",
        CORE,
        "        if response.epoch < self.epoch:\n",
        "        if False:\n",
    ),
    Mutant(
        "no-check-quorum",
        "a leader without a majority resigns",
        LEADER,
        "    if now_ms >= role.check_quorum_at_ms:\n        leadership.set_check_quorum(state, role, now_ms)\n",
        "    if False:\n        leadership.set_check_quorum(state, role, now_ms)\n",
    ),
    Mutant(
        "no-hand-over",
        "a leader that resigns tells the voters",
        LEADERSHIP,
        "    for voter_id in successors:\n",
        "    for voter_id in ():\n",
    ),
    Mutant(
        "worst-successor-first",
        "a resigning leader prefers the voter with the highest end offset",
        LEADERSHIP,
        "    successors = sorted(voters, key=lambda v: (-voters[v].end_offset, v))\n",
        "    successors = sorted(voters, key=lambda v: (voters[v].end_offset, v))\n",
    ),
    Mutant(
        "broken-stream-ignored",
        "a broken stream starts a pre-vote after the grace",
        FOLLOWER,
        "    role.stand_at_ms = now_ms + grace_ms + state.rng.randrange(grace_ms + 1)\n",
        "",
    ),
    Mutant(
        "no-fetch-timeout",
        "a follower gives up a silent leader after its fetch timeout",
        FOLLOWER,
        "    if now_ms >= role.fetch_deadline_ms:\n        role.is_leader_lost = True\n"
        '        _give_up(state, now_ms, "the fetch timeout passed")\n',
        "    if now_ms >= role.fetch_deadline_ms:\n"
        "        role.fetch_deadline_ms = state.random_fetch_deadline_ms(now_ms)\n",
    ),
    Mutant(
        "lost-leader-is-forgotten-by-nobody",
        "a node that lost its pre-vote follows the leader that the others still have",
        ELECTION,
        "    if role.leader_id not in (NO_NODE, state.config.node_id):\n",
        "    if False:\n",
    ),
    # Replication.
    Mutant(
        "counts-itself-before-fsync",
        "the leader counts itself only after its fsync",
        LEADER,
        "        ends.append(state.log.flushed_end_offset)\n",
        "        ends.append(state.log.end_offset)\n",
    ),
    Mutant(
        "commits-an-old-epoch",
        "a leader commits only with a record of its own epoch",
        LEADER,
        "    if offset <= role.epoch_start_offset or not state.advance_high_watermark(offset):\n",
        "    if not state.advance_high_watermark(offset):\n",
    ),
    Mutant(
        "commits-the-greatest",
        "a committed record is on a majority",
        QUORUM,
        "    return sorted(end_offsets, reverse=True)[len(end_offsets) // 2]\n",
        "    return sorted(end_offsets, reverse=True)[(len(end_offsets) - 1) // 2]\n",
    ),
    Mutant(
        "high-watermark-may-fall",
        "the high watermark never goes back",
        STATE,
        "        if offset <= self.high_watermark:\n            return False\n",
        "        if offset == self.high_watermark:\n            return False\n",
    ),
    Mutant(
        "follower-commits-beyond-its-log",
        "a follower's high watermark lies within its log",
        FOLLOWER,
        "    state.advance_high_watermark(min(state.log.end_offset, response.high_watermark))\n",
        "    state.advance_high_watermark(response.high_watermark)\n",
    ),
    Mutant(
        "fetches-before-fsync",
        "a voter acknowledges only fsynced records",
        FETCHING,
        "    if vouches and state.log.flushed_end_offset < state.log.end_offset:\n",
        "    if False:\n",
    ),
    Mutant(
        "observer-controller-does-not-fsync",
        "a controller that may become a voter fsyncs before it fetches",
        FETCHING,
        "    vouches = state.is_voter or state.config.address is not None\n",
        "    vouches = state.is_voter\n",
    ),
    Mutant(
        "late-answer-appended",
        "an answer to a fetch that timed out is dropped",
        FOLLOWER,
        "    if correlation_id != role.correlation_id:\n"
        "        return  # the fetch was given up; its records may be in the log already\n",
        "",
    ),
    Mutant(
        "no-truncation",
        "a diverging follower truncates",
        FOLLOWER,
        "    state.log.truncate(end_offset)\n    state.emit(TruncateLog(end_offset))\n",
        "",
    ),
    Mutant(
        "truncates-to-the-leaders-end",
        "a follower truncates to the end of the largest common epoch",
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
        "a follower's log may not be longer than the leader's in their common epoch",
        TAIL,
        "        if end.epoch != last_fetched_epoch or end.offset < fetch_offset:\n",
        "        if end.epoch != last_fetched_epoch or end.offset + 1 < fetch_offset:\n",
    ),
    Mutant(
        "flush-outlives-truncation",
        "a flush does not cover records that were appended after a truncation",
        TAIL,
        "        if generation != self.generation or end_offset <= self.flushed_end_offset:\n",
        "        if end_offset <= self.flushed_end_offset:\n",
    ),
    Mutant(
        "truncation-keeps-the-flushed-end",
        "truncated records no longer count as flushed",
        TAIL,
        "        self.flushed_end_offset = min(self.flushed_end_offset, end_offset)\n",
        "",
    ),
    Mutant(
        "wrong-epoch-fetch-served",
        "a fetch with another epoch is fenced",
        LEADER,
        "    if request.epoch < state.epoch:\n        error = ErrorCode.FENCED_LEADER_EPOCH\n"
        "    elif request.epoch > state.epoch:\n        error = ErrorCode.UNKNOWN_LEADER_EPOCH\n"
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
        "the leader sends an observer committed records only",
        LEADERSHIP,
        "    if state.voter_set.has(*replica):\n        return state.log.end_offset\n",
        "    if True:\n        return state.log.end_offset\n",
    ),
    Mutant(
        "other-cluster-served",
        "a request of another cluster is refused",
        CORE,
        "        if request.cluster_id != self.config.cluster_id:\n",
        "        if False:\n",
    ),
    Mutant(
        "an-answer-of-records-that-were-cut-off",
        "records that were read for one follower are read again once the log has changed",
        REPLICA,
        "        self._last_read = None\n        match effect:\n",
        "        match effect:\n",
    ),
    Mutant(
        "an-answer-to-another-question",
        "records that were read for one follower do not answer a fetch from another offset",
        REPLICA,
        "self._last_read[0] == key:\n",
        "self._last_read[0][0] == key[0]:\n",
    ),
)
