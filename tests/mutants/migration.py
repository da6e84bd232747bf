"""Rules of groups during a migration between the protocols, each with an edit that breaks it."""

from __future__ import annotations

from tests.mutants.model import mutants_of

UPGRADE = "kvorum/broker/groups/migration/upgrade.py"
DOWNGRADE = "kvorum/broker/groups/migration/downgrade.py"
JOINING = "kvorum/broker/groups/migration/joining.py"
MEMBERSHIP = "kvorum/broker/groups/migration/membership.py"
MIXED = "kvorum/broker/groups/migration_coordinator.py"
EMBEDDED = "kvorum/broker/groups/migration/embedded.py"
COORDINATOR = "kvorum/broker/groups/consumer_coordinator.py"
CONSUMER_MEMBERSHIP = "kvorum/broker/groups/consumer/membership.py"
ENTERING = "kvorum/broker/groups/consumer/entering.py"
HEARTBEAT = "kvorum/broker/groups/consumer/heartbeat.py"
GROUP = "kvorum/broker/groups/consumer/group.py"
RECORDS = "kvorum/broker/groups/consumer/records.py"
CLASSIC_GROUP = "kvorum/broker/groups/classic/group.py"

_RULES: tuple[tuple[str, str, str, str, str], ...] = (
    # Upgrade.
    ("migration-any-policy", "the policy forbids the upgrade", UPGRADE,
     "if not config.group_consumer_migration_policy.allows_upgrade:", "if False:"),
    ("migration-frees-what-is-read", "members keep their assignments", UPGRADE,
     "    return resolved(assignment.partitions, image)\n", "    return frozenset()\n"),
    ("migration-forgets-the-owned", "an interrupted rebalance frees no partition in use", UPGRADE,
     "        return resolved(subscription.owned, image)\n", "        return frozenset()\n"),
    ("migration-custom-assignor", "a custom assignor's own data forbids the upgrade", UPGRADE,
     "    if assignment.user_data and ", "    if False and "),
    ("migration-sticky-is-custom", "clients' own sticky assignors are taken over", UPGRADE,
     " and classic.protocol_name not in CLIENTS_ASSIGNORS:", ":"),
    ("migration-held-twice", "a partition assigned to two members goes to one", UPGRADE,
     "        has = frozenset(row for row in has if row not in group.holders)\n", ""),
    ("migration-leaves-them-waiting", "parked requests of the classic rebalance are answered", UPGRADE,
     "        rebalance.end_requests(member, step, ErrorCode.REBALANCE_IN_PROGRESS)\n", ""),
    ("migration-classic-timers-run-on", "the classic group's timers end with it", UPGRADE,
     "    step.cancel_timer(JoinTimer(classic.group_id))\n", ""),
    ("migration-without-tombstone", "the classic group leaves a tombstone", UPGRADE,
     "    yield CoordinatorRecord(group_key(group.group_id), None)\n", ""),
    ("migration-member-in-memory", "members' assignments are written to the log", UPGRADE,
     "        yield group.current_record(member)\n", "        yield from ()\n"),
    ("migration-in-two-batches", "an upgrade is in the log as a whole", COORDINATOR,
     "            records, inputs.out[:] = [*records, *inputs.out], []\n", "            pass\n"),
    ("migration-no-session-of-old-members", "sessions run on through the upgrade", COORDINATOR,
     "            membership.extend_session(group, member_id, step)\n        return answer",
     "            pass\n        return answer"),
    # Classic members in the mixed group.
    ("migration-join-told-too-early", "a member epoch is sent once it is replicated", MIXED,
     "            step.answer_durably(event.token, joined)\n",
     "            step.answer(event.token, joined)\n"),
    ("migration-sync-told-too-early", "an assignment is sent once it is replicated", MIXED,
     "step.answer_durably(event.token, membership.sync(", "step.answer(event.token, membership.sync("),
    ("migration-blind-to-owned", "a cooperative member gives up when it has", JOINING,
     "        owned=joiner.owned,\n", "        owned=frozenset(),\n"),
    ("migration-ghost-keeps-reading", "a removed member revokes before it joins again", JOINING,
     "    if is_new and subscription.owned:\n", "    if False:\n"),
    ("migration-nothing-in-common", "classic members have a common assignor", JOINING,
     "            common &= {protocol.name for protocol in member.classic.protocols}\n",
     "            pass\n"),
    ("migration-joins-when-disabled", "with the policy `disabled` protocols are not mixed", JOINING,
     "allows_mixed_groups:", "allows_mixed_groups and False:"),
    ("migration-old-client-unfenced", "a static client's successor has another id", JOINING,
     "        updated = replace(back(updated), member_id=new_member_id(instance_id, step))\n",
     "        told = back(told)\n"),
    ("migration-quiet-epoch", "a new group epoch makes classic members join again", MEMBERSHIP,
     "    if member.member_epoch < group.group_epoch:\n        return True\n", ""),
    ("migration-quiet-release", "freed partitions make waiting classic members join again", MEMBERSHIP,
     "        return all(row not in group.holders for row in missing)\n",
     "        return False\n"),
    ("migration-quiet-topics", "a topic's new partitions make classic members join again", MEMBERSHIP,
     "        and topics_hash(group.subscribed_topics(), image) != group.metadata_hash\n",
     "        and False\n"),
    ("migration-sync-of-any-generation", "an assignment is of one generation", MEMBERSHIP,
     "    if request.generation_id != member.member_epoch:\n"
     "        return Synced(error=ErrorCode.ILLEGAL_GENERATION)\n", ""),
    ("migration-sync-out-of-date", "a SyncGroup behind the group's epoch must join again", MEMBERSHIP,
     "    if member.member_epoch < group.group_epoch and not is_revoking:\n", "    if False:\n"),
    ("migration-revoking-is-not-told", "a member that has to revoke is told which partitions", MEMBERSHIP,
     " and not is_revoking:\n", ":\n"),
    ("migration-no-time-to-join", "a member that does not join again in time is removed", CONSUMER_MEMBERSHIP,
     "        timer = ClassicRejoinTimer(group.group_id, member.member_id)\n"
     "        step.set_timer(timer, max(member.rebalance_timeout_ms, 0))\n", ""),
    ("migration-no-time-to-sync", "a member that does not sync in time is removed", CONSUMER_MEMBERSHIP,
     "    timer = ClassicSyncTimer(group.group_id, member.member_id)\n"
     "    step.set_timer(timer, max(member.rebalance_timeout_ms, 0))\n", ""),
    ("migration-session-of-the-other", "a classic member has its own session timeout",
     CONSUMER_MEMBERSHIP, "        timeout_ms = classic.session_timeout_ms\n", "        pass\n"),
    ("migration-timers-of-the-other", "who changes its protocol changes its timers", ENTERING,
     "        forget_timers(group, updated.member_id, step)\n    if is_new", "        pass\n    if is_new"),
    ("migration-stays-classic", "a heartbeat makes it a member of the consumer protocol", HEARTBEAT,
     "        classic=None,\n", ""),
    ("migration-stale-is-113", "classic clients get ILLEGAL_GENERATION (22)", GROUP,
     "return ErrorCode.ILLEGAL_GENERATION if is_classic else", "return"),
    ("migration-kind-in-memory", "a member's protocol is written to the log", RECORDS,
     "            _classic_metadata(member.classic),\n", "            _NO_CLASSIC_METADATA,\n"),
    ("migration-names-gone-topics", "assignments name existing partitions only", EMBEDDED,
     "and partition in topic.partitions", ""),
    # Downgrade.
    ("migration-never-back", "without consumer-protocol members the group becomes classic again", DOWNGRADE,
     "    return bool(set.intersection(*offered))\n", "    return False\n"),
    ("migration-back-too-early", "one consumer-protocol member keeps the group's protocol", DOWNGRADE,
     "        if member.classic is None:\n            return False\n",
     "        if member.classic is None:\n            continue\n"),
    ("migration-no-rebalance", "the last consumer's partitions are assigned again", DOWNGRADE,
     "    rebalance.prepare(classic, step)\n", ""),
    ("migration-no-rebalance-after-load", "also by the next coordinator", CLASSIC_GROUP,
     "        leader_id, self.leader_id = self.leader_id, None\n",
     "        leader_id = self.leader_id\n"),
    ("migration-lost-generation", "up-to-date members hear 27, not 22", COORDINATOR,
     "        self.finish(present, epoch, inputs, step)\n",
     "        self.finish(present, present.group_epoch, inputs, step)\n"),
    ("migration-downgrade-stays-in-log", "the consumer group leaves tombstones", DOWNGRADE,
     "[*written, *group.tombstones(), classic.record_without_leader()]",
     "[*written, classic.record_without_leader()]"),
    ("migration-last-place-stays-new", "a classic client in the last consumer's static place downgrades the group",
     MIXED, "        if downgrade.is_due(group, self._config):\n", "        if False:\n"),
)  # fmt: skip

MUTANTS = mutants_of(
    _RULES,
    tests=(
        "tests/test_groups/migration",
        "tests/test_groups/consumer",
    ),
)
