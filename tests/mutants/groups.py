"""Rules of groups, each with an edit that breaks it; their own tests must notice."""

from __future__ import annotations

from tests.mutants.model import mutants_of

REBALANCE = "kvorum/broker/groups/classic/rebalance.py"
JOINING = "kvorum/broker/groups/classic/joining.py"
SYNCING = "kvorum/broker/groups/classic/syncing.py"
MEMBERSHIP = "kvorum/broker/groups/classic/membership.py"
GROUP = "kvorum/broker/groups/classic/group.py"
SHARD = "kvorum/broker/groups/shard.py"
STORE = "kvorum/broker/groups/offset_store.py"
BOOK = "kvorum/broker/groups/offsets.py"
COMMITTING = "kvorum/broker/groups/committing.py"
EXPIRY = "kvorum/broker/groups/expiry.py"
TURN = "kvorum/broker/groups/steps/step_effects.py"
RECORDS = "kvorum/broker/groups/steps/records.py"

_RULES: tuple[tuple[str, str, str, str, str], ...] = (
    # Rebalances.
    ("group-initial-delay-cut-short", "an empty group waits for more members", REBALANCE,
     "is_preparing and group.initial_delay_ms is None and group.has_all_joined",
     "is_preparing and group.has_all_joined"),
    ("group-initial-delay-once", "the initial delay is extended while members join", REBALANCE,
     "if delay_ms is not None and group.has_new_member and group.initial_remaining_ms > 0:",
     "if False:"),
    ("group-initial-delay-for-ever", "the initial delay ends at the rebalance time-out", REBALANCE,
     "max(group.initial_remaining_ms - next_ms, 0)", "group.initial_remaining_ms"),
    ("group-keeps-the-absent", "a member that does not join again is removed", REBALANCE,
     "    for member in absent:\n        drop(group, member, step)\n", ""),
    ("group-drops-absent-statics", "a static member may be away until its session ends", REBALANCE,
     "if not m.is_awaiting_join and not m.is_static]", "if not m.is_awaiting_join]"),
    ("group-sync-timer-outlives", "the sync timer ends with its generation", REBALANCE,
     "        step.cancel_timer(SyncTimer(group.group_id))\n        group.pending_sync.clear()\n",
     "        group.pending_sync.clear()\n"),
    ("group-never-syncs", "a member that never syncs is removed (KAFKA-12890)", REBALANCE,
     "    step.set_timer(SyncTimer(group.group_id), group.rebalance_timeout_ms)\n", ""),
    ("group-empties-in-memory-only", "an empty group is written to the log", REBALANCE,
     "        group.leader_id = None\n        step.append(group.record())\n",
     "        group.leader_id = None\n"),
    ("group-late-timer-kept", "a shorter session sets its timer earlier", REBALANCE,
     "if member.session_timer_ms is None or deadline_ms < member.session_timer_ms:",
     "if member.session_timer_ms is None:"),
    ("group-followers-see-all", "only the group's leader gets the member list", REBALANCE,
     "members=_members_for_leader(group) if is_leader else (),",
     "members=_members_for_leader(group),"),
    ("group-same-number-twice", "a new generation gets a new number", GROUP,
     "        self.generation_id += 1\n", ""),
    ("group-protocol-of-the-leader", "the protocol with the most votes wins", GROUP,
     "return votes.most_common(1)[0][0]", "return next(iter(votes))"),
    ("group-forgets-handed-out-ids", "a rebalance waits for ids that were handed out", GROUP,
     "return not self.pending_members and all(", "return all("),
    # Joining.
    ("group-takes-too-many", "group.max.size is enforced", JOINING,
     "return member_id in group.members or len(group.members) < size_max", "return True"),
    ("group-no-id-needed", "a new member first gets a member id (KIP-394)", JOINING,
     "    elif not request.requires_known_member_id:\n", "    elif True:\n"),
    ("group-static-twin-unfenced", "a client with the old id of a static member is fenced", GROUP,
     "return ErrorCode.NONE if holder == member_id else ErrorCode.FENCED_INSTANCE_ID",
     "return ErrorCode.NONE"),
    ("group-static-in-memory-only", "a static member's new id is written to the log", JOINING,
     "    step.append(record)\n", ""),
    ("group-static-other-topics", "a changed subscription starts a rebalance", JOINING,
     "        or _topics_of(group, member) != topics_before\n", ""),
    ("group-leader-told-to-lead", "an old client that stays leader is not told to assign again", JOINING,
     "            leader=old_leader or NO_MEMBER,\n", "            leader=group.leader_id or '',\n"),
    ("group-first-request-left-parked", "a replaced parked request is answered", JOINING,
     "    end_requests(member, step, ErrorCode.REBALANCE_IN_PROGRESS)\n    member.update",
     "    member.update"),
    # Assignments.
    ("group-assignment-before-the-log", "an assignment is sent once it is replicated", TURN,
     "response=response, is_durable=self._has_appended", "response=response, is_durable=False"),
    ("group-assignment-again-at-once", "also to a member that syncs again", SYNCING,
     "        step.answer_durably(event.token, _synced(group, member))\n",
     "        step.answer(event.token, _synced(group, member))\n"),
    ("group-any-generation-syncs", "only members of the present generation get an assignment", SYNCING,
     "    if request.generation_id != group.generation_id:\n"
     "        return ErrorCode.ILLEGAL_GENERATION\n", ""),
    ("group-too-large-a-record", "a record that the log cannot hold is not written", SYNCING,
     "    if not step.fits(record):\n", "    if False:\n"),
    # Sessions.
    ("group-silent-members-stay", "a silent member is removed", MEMBERSHIP,
     "    drop(group, member, step)\n    rebalance(group, step)\n", "    return\n"),
    ("group-parked-members-lost", "a parked member does not expire", MEMBERSHIP,
     "    if member.is_waiting and not member.is_new:\n", "    if False:\n"),
    ("group-new-members-never-lost", "a new member that waits too long is removed", MEMBERSHIP,
     "    if member.is_waiting and not member.is_new:\n", "    if member.is_waiting:\n"),
    ("group-heartbeat-too-late-in-life", "a heartbeat in a rebalance counts", MEMBERSHIP,
     "    extend_session(group, group.members[request.member_id], step)\n"
     "    if group.state == ClassicGroupState.PREPARING_REBALANCE:\n"
     "        return ErrorCode.REBALANCE_IN_PROGRESS\n",
     "    if group.state == ClassicGroupState.PREPARING_REBALANCE:\n"
     "        return ErrorCode.REBALANCE_IN_PROGRESS\n"
     "    extend_session(group, group.members[request.member_id], step)\n"),
    ("group-no-sessions-after-load", "sessions run again after a fail-over", MEMBERSHIP,
     "    for member in group.members.values():\n        extend_session(group, member, step)\n"
     "    if len", "    if len"),
    # Offsets.
    ("offsets-of-an-old-generation", "a member of an old generation cannot commit", COMMITTING,
     "        if generation_id != group.generation_id:\n"
     "            return ErrorCode.ILLEGAL_GENERATION\n", ""),
    ("offsets-of-strangers", "a client that is no member commits only to an empty group", COMMITTING,
     "    elif not is_transactional and not group.is_empty:\n"
     "        return ErrorCode.UNKNOWN_MEMBER_ID\n", ""),
    ("offsets-before-the-assignment", "no member commits before it has its assignment", COMMITTING,
     "        return ErrorCode.REBALANCE_IN_PROGRESS\n", "        return ErrorCode.NONE\n"),
    ("offsets-told-at-once", "OffsetFetch returns replicated offsets only", SHARD,
     "step.answer_durably(event.token, fetched)", "step.answer(event.token, fetched)"),
    ("offsets-no-sign-of-life", "a commit counts as a heartbeat", SHARD,
     "            rebalance.extend_session(group, member, step)\n", "            pass\n"),
    ("offsets-marker-order", "the offset written later counts", BOOK,
     "if present is None or present.order < stored.order:", "if True:"),
    ("offsets-aborted-count", "offsets of an aborted transaction are dropped", BOOK,
     "if rows is None or not is_commit:", "if rows is None:"),
    ("offsets-pending-at-once", "offsets of a transaction wait for its marker", STORE,
     "            book.put_pending(producer_id, row.topic, row.partition, value, self._order)\n",
     "            book.put(row.topic, row.partition, value, self._order)\n"),
    ("offsets-unstable-shown", "require_stable waits for the marker", STORE,
     "if require_stable and book.is_pending(topic, partition):", "if False:"),
    ("offsets-zombie-producer", "an older epoch of a producer is fenced", STORE,
     "return request.producer_epoch < self._epochs.get(request.producer_id, -1)", "return False"),
    ("offsets-deleted-in-memory-only", "a deleted offset has a tombstone", STORE,
     "        step.append_all(\n            CoordinatorRecord(offset_key(group_id, topic, partition),"
     " None)\n            for topic, partition in there\n        )\n", ""),
    ("offsets-subscribed-deleted", "offsets in use are not deleted", SHARD,
     "if not group.is_empty and group.is_subscribed_to(topic):", "if False:"),
    ("offsets-group-with-members-deleted", "a group with members is not deleted", SHARD,
     "        elif not group.is_empty:\n            step.answer(event.token, "
     "ErrorCode.NON_EMPTY_GROUP)\n", ""),
    ("offsets-expire-in-use", "offsets of topics in use do not expire", EXPIRY,
     "        if not (has_members and group.is_subscribed_to(topic))\n", ""),
    ("offsets-expire-by-commit", "retention counts from when the group became empty", EXPIRY,
     "        base_ms = max(base_ms, group.current_state_timestamp_ms)\n", "        pass\n"),
    ("offsets-expire-while-pending", "offsets that an open transaction may change do not expire", EXPIRY,
     "        and not book.is_pending(topic, partition)\n", ""),
    # Records.
    ("offsets-newest-version", "offsets are written in the version of Kafka 4.1", RECORDS,
     "_OFFSET_VALUE_VERSION = 4\n", "_OFFSET_VALUE_VERSION = 3\n"),
    ("group-unknown-version-read", "an unknown record version is corrupt", RECORDS,
     "        if not 0 <= version <= _GROUP_VALUE_VERSION_MAX:\n", "        if False:\n"),
)  # fmt: skip

MUTANTS = mutants_of(_RULES, tests=("tests/test_groups",))
