"""Rules of groups of the consumer protocol, each with an edit that breaks it."""

from __future__ import annotations

from tests.mutants.model import mutants_of

RECONCILIATION = "kvorum/broker/groups/consumer/reconciliation.py"
ENTERING = "kvorum/broker/groups/consumer/entering.py"
HEARTBEAT = "kvorum/broker/groups/consumer/heartbeat.py"
MEMBERSHIP = "kvorum/broker/groups/consumer/membership.py"
TARGETS = "kvorum/broker/groups/consumer/targets.py"
ASSIGNORS = "kvorum/broker/groups/consumer/assignors.py"
GROUP = "kvorum/broker/groups/consumer/group.py"
COORDINATOR = "kvorum/broker/groups/consumer_coordinator.py"
LOADING = "kvorum/broker/groups/consumer/loading.py"
EXPRESSIONS = "kvorum/broker/groups/consumer/expressions.py"
LINEAR = "kvorum/runtime/linear_expressions.py"
SHARD = "kvorum/broker/groups/shard.py"

_RULES: tuple[tuple[str, str, str, str, str], ...] = (
    # Assignment of partitions.
    ("consumer-takes-what-is-held", "a partition is free when no member holds it", RECONCILIATION,
     "if row in mine or row not in taken)", "if True)"),
    ("consumer-revokes-without-word", "a member confirms its revocations", RECONCILIATION,
     "            if _may_own(owned, member.pending_revocation):\n                return member\n",
     "            pass\n"),
    ("consumer-silence-confirms", "a heartbeat without owned partitions confirms nothing", RECONCILIATION,
     "return owned is None or not owned.isdisjoint(partitions)",
     "return owned is not None and not owned.isdisjoint(partitions)"),
    ("consumer-early-epoch", "a member that has to revoke stays in its epoch", RECONCILIATION,
     "            state=MemberState.UNREVOKED_PARTITIONS,\n",
     "            state=MemberState.UNREVOKED_PARTITIONS,\n"
     "            member_epoch=assignment_epoch,\n"),
    ("consumer-pending-is-free", "a partition that is being revoked is still held", "kvorum/broker/groups/consumer/"
     "member.py", "return self.assigned | self.pending_revocation", "return self.assigned"),
    ("consumer-old-word-counts", "a heartbeat of the previous epoch confirms nothing", HEARTBEAT,
     "    if is_current:\n        after", "    if True:\n        after"),
    # Epochs.
    ("consumer-greater-epoch", "a member epoch above the present one is fenced", HEARTBEAT,
     "if is_older and epoch == member.previous_member_epoch and owns_no_more:",
     "if epoch >= member.previous_member_epoch and owns_no_more:"),
    ("consumer-any-older-epoch", "of the older epochs only the previous one is accepted", HEARTBEAT,
     "if is_older and epoch == member.previous_member_epoch and owns_no_more:",
     "if is_older and owns_no_more:"),
    ("consumer-no-new-epoch", "a changed subscription raises the group epoch", ENTERING,
     "    has_changed = is_new or (\n", "    has_changed = is_new and (\n"),
    ("consumer-blind-to-topics", "changed topics raise the group epoch", TARGETS,
     "if has_changed or found != group.metadata_hash:", "if has_changed:"),
    ("consumer-hash-without-counts", "a topic's new partitions raise the group epoch", TARGETS,
     "\\0{len(topic.partitions)}\\n", "\\n"),
    ("consumer-target-in-memory", "the target is in the log", TARGETS,
     "            inputs.out.append(group.target_record(member_id))\n", ""),
    ("consumer-leave-without-epoch", "who leaves makes a new epoch", MEMBERSHIP,
     "    bump_epoch(group, inputs, has_changed=True)\n", ""),
    # Static members.
    ("consumer-instance-taken", "an instance id is taken until its member leaves", HEARTBEAT,
     "if holder != member_id and member.member_epoch != STATIC_LEAVE_EPOCH:", "if False:"),
    ("consumer-static-loses-target", "a static member comes back to its target", ENTERING,
     "        group.targets[updated.member_id] = target\n", ""),
    ("consumer-static-unfenced", "whoever holds another's instance id is fenced", MEMBERSHIP,
     "    if holder != member_id:\n", "    if False:\n"),
    # Time.
    ("consumer-no-session", "a silent member is out", MEMBERSHIP,
     "    remove(group, [member_id], inputs, step)\n\n\ndef on_rebalance_timer",
     "    return\n\n\ndef on_rebalance_timer"),
    ("consumer-no-rebalance-timeout", "a member that does not revoke in time is removed", MEMBERSHIP,
     "            step.set_timer(timer, member.rebalance_timeout_ms)\n", "            pass\n"),
    ("consumer-rebalance-timer-stays", "the revocation timer ends with the revocation", MEMBERSHIP,
     "        step.cancel_timer(timer)\n", "        pass\n"),
    ("consumer-no-timers-after-load", "sessions run again after a fail-over", MEMBERSHIP,
     "        extend_session(group, member.member_id, step)\n        if member.classic",
     "        if member.classic"),
    # Assignors.
    ("consumer-uniform-forgets", "members keep their partitions where possible", ASSIGNORS,
     "    kept = _kept(members, every)\n    least", "    kept = _kept({}, every) | "
     "dict.fromkeys(members, NO_PARTITIONS)\n    least"),
    ("consumer-uniform-any-order", "members with more partitions get the larger shares", ASSIGNORS,
     "key=lambda name: (-len(kept[name]), name))", "key=lambda name: (len(kept[name]), name))"),
    ("consumer-unbalanced", "the members' shares differ by one at most", ASSIGNORS,
     "sizes[target] + 1 < sizes[name]", "sizes[target] + 3 < sizes[name]"),
    # The log, offsets and the rest.
    ("consumer-told-too-early", "a heartbeat is answered once it is replicated", COORDINATOR,
     "step.answer_durably(event.token, self._answer(event, request, step))",
     "step.answer(event.token, self._answer(event, request, step))"),
    ("consumer-tombstone-of-the-other", "a classic tombstone ends classic groups only", SHARD,
     "            if self._classic(group_id) is not None:\n                del self.groups[group_id]",
     "            self.groups.pop(group_id, None)"),
    ("consumer-classic-record-stays", "a group that changes its protocol writes a tombstone",
     COORDINATOR,
     "            records = [CoordinatorRecord(group_key(request.group_id), None)]\n",
     "            records = []\n"),
    ("consumer-stale-commits", "members commit with their epoch", GROUP,
     "        if member.member_epoch == member_epoch:\n", "        if True:\n"),
    ("consumer-strangers-fetch", "only members may fetch offsets with a member id", SHARD,
     "            error = consumer_committing.fetch_refusal(group, body)\n", "            pass\n"),
    ("consumer-loses-what-it-has", "both records of a member count, in any order", LOADING,
     "                assigned=had.assigned,\n", "                assigned=value.assigned,\n"),
    ("consumer-expression-part", "the whole name must match", EXPRESSIONS,
     "matches = compiled(expression).fullmatch", "matches = compiled(expression).match"),
    ("consumer-expression-explodes", "a compiled expression takes little memory", LINEAR,
     "options.max_mem = PROGRAM_BYTES_MAX", "pass"),
)  # fmt: skip

MUTANTS = mutants_of(_RULES, tests=("tests/test_groups/consumer",))
