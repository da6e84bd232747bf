"""Rules of Streams groups, each with an edit that breaks it."""

from __future__ import annotations

from tests.mutants.model import mutants_of

_FOLDER = "kvorum/broker/groups/streams/"
RECONCILIATION = _FOLDER + "reconciliation.py"
HEARTBEAT = _FOLDER + "heartbeat.py"
MEMBERSHIP = _FOLDER + "membership.py"
TARGETS = _FOLDER + "targets.py"
CONFIGURING = _FOLDER + "configuring.py"
ASSIGNOR = _FOLDER + "assignor.py"
COMMITTING = _FOLDER + "committing.py"
DESCRIBING = _FOLDER + "describing.py"
CHECKS = _FOLDER + "checks.py"

_RULES = (
    ("streams-two-owners", "an active task is with one member at a time", RECONCILIATION,
     "            self._holders.active(task) is not None\n", "            False\n"),
    ("streams-two-copies-on-a-process", "a process has one copy of a task", RECONCILIATION,
     "            or self._process_id in self._holders.standby(task)\n", "            or False\n"),
    ("streams-no-confirmation", "a member confirms that it gave tasks up", RECONCILIATION,
     "    must_wait = not revoked.is_empty and may_own\n", "    must_wait = False\n"),
    ("streams-promoted-standby-closed", "a copy that becomes active stays open", RECONCILIATION,
     "    standby.revoked -= target.active\n", ""),
    ("streams-lost-answer-lost", "a lost answer is told again", HEARTBEAT,
     "has_new_tasks or request.owned not in (None, after.assigned.tasks)", "has_new_tasks"),
    ("streams-delay-for-ever", "the first target follows the delay", HEARTBEAT,
     "    group.has_initial_delay = False\n", "    pass\n"),
    ("streams-static-moved-with-tasks", "tasks on another process are given anew", MEMBERSHIP,
     "        assigned=NOTHING_ASSIGNED if is_moved else before.assigned,\n",
     "        assigned=before.assigned,\n"),
    ("streams-static-moves-nothing", "a static member's return moves nothing", MEMBERSHIP,
     "        return told.placement != before.placement\n    has_changed", "        return True\n    has_changed"),
    ("streams-old-epoch-with-more", "an old epoch with foreign tasks is fenced", MEMBERSHIP,
     " and _owns_no_more(request, member)", ""),
    ("streams-topics-not-looked-up", "a topic that changes changes the tasks", TARGETS,
     "    if is_new or found is None or group.is_metadata_stale:\n", "    if is_new or found is None:\n"),
    ("streams-target-too-soon", "targets have a least age", TARGETS,
     "    if 0 <= now_ms - group.target_epoch.timestamp_ms < interval_ms:\n", "    if False:\n"),
    ("streams-repartition-by-one-input", "a repartition topic is as wide as its inputs", CONFIGURING,
     "    return max(known, default=None)\n", "    return min(known, default=None)\n"),
    ("streams-changelog-of-any-width", "an internal topic has the count of its tasks", CONFIGURING,
     "        elif len(found.partitions) != topic.num_partitions:\n", "        elif False:\n"),
    ("streams-sources-of-any-width", "co-partitioned topics have one count", CONFIGURING,
     "        if any(other != count for other in found.values()):\n", "        if False:\n"),
    ("streams-everything-moves", "members keep their tasks", ASSIGNOR,
     "        member_id = board.last_active.get(task)\n", "        member_id = None\n"),
    ("streams-standby-beside-its-task", "a standby is on another process", ASSIGNOR,
     "            if is_active or task not in process.tasks:\n", "            if True:\n"),
    ("streams-commit-of-a-given-task", "only the owner commits", COMMITTING,
     "    return since is not None and epoch >= since\n", "    return True\n"),
    ("streams-description-of-another-epoch", "a description is of the group's topology", DESCRIBING,
     "    if epoch != group.topology_epoch:\n", "    if False:\n"),
    ("streams-another-topology", "all members have one topology", CHECKS,
     "told != present:", "False:"),
)  # fmt: skip

MUTANTS = mutants_of(_RULES, tests=("tests/test_groups/streams",))
