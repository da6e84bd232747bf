"""Rules of share groups, each with an edit that breaks it."""

from __future__ import annotations

from tests.mutants.model import mutants_of

PARTITION = "kvorum/broker/share/core/share_partition.py"
RUNS = "kvorum/broker/share/core/runs.py"
SESSIONS = "kvorum/broker/share/core/sessions.py"
LED = "kvorum/broker/share/led_share_partition.py"
LETTERS = "kvorum/broker/share/dead_letters.py"
ATTEMPTS = "kvorum/broker/share/core/dead_letter_attempts.py"
LETTER_RULES = "kvorum/broker/share/core/dead_letters.py"
MANAGER = "kvorum/broker/share/manager.py"
SHARD = "kvorum/broker/share_state/shard.py"
BATCHES = "kvorum/broker/share_state/batches.py"
HEARTBEAT = "kvorum/broker/groups/share/heartbeat.py"
COORDINATOR = "kvorum/broker/groups/share_coordinator.py"

_CORE: tuple[tuple[str, str, str, str, str], ...] = (
    # One record.
    ("share-two-holders", "a record is held by one member at a time", PARTITION,
     "            if run.state is not _AVAILABLE:\n                continue\n            piece",
     "            if run.is_terminal:\n                continue\n            piece"),
    ("share-another-member-accepts", "a member acknowledges only what it holds", PARTITION,
     "            if run.member_id != member_id:\n", "            if False:\n"),
    ("share-half-refused", "a refused request acknowledges nothing", PARTITION,
     "        for first, last, _ in batches:\n            refused",
     "        for first, last, _ in batches[:1]:\n            refused"),
    ("share-released-for-ever", "a record is delivered as often as the limit allows", PARTITION,
     "is_over = run.delivery_count >= limits.delivery_count_limit", "is_over = False"),
    ("share-no-end-of-a-lock", "a lock ends at its time", PARTITION,
     "r for r in self._runs if r.lock_deadline_ms <= now_ms",
     "r for r in self._runs if r.lock_deadline_ms < 0"),
    ("share-bad-record-takes-all", "records that come back often come in pieces", PARTITION,
     "    if run.delivery_count < threshold:\n        return None\n", "    return None\n"),
    ("share-flight-without-bound", "no more records are in flight than allowed", PARTITION,
     "self.end_offset if self.in_flight < limits.record_locks_max else None", "self.end_offset"),
    ("share-marker-for-a-member", "what is for nobody is archived", PARTITION,
     "            if batch.is_dropped:\n", "            if False:\n"),
    ("share-renewed-in-vain", "a renewed lock ends later", PARTITION,
     "                    run.lock_deadline_ms = now_ms + limits.lock_duration_ms\n",
     "                    pass\n"),
    ("share-release-not-kept", "a release is kept though another member has the record",
     PARTITION, "                state, count = _AVAILABLE, count - 1\n", "                pass\n"),
    ("share-start-stays", "settled records at the front move the start", RUNS,
     "        while done < len(self._runs) and self._runs[done].is_terminal:\n",
     "        while False:\n"),
    # What is kept.
    ("share-old-leader-writes", "leaders of older epochs are fenced", SHARD,
     "        if state.leader_epoch > leader_epoch:\n", "        if False:\n"),
    ("share-reader-fences-nobody", "a leader that reads fences those before it", SHARD,
     "or body.leader_epoch <= state.leader_epoch:\n            return state",
     "or True:\n            return state"),
    ("share-altered-and-overwritten", "an older state is fenced", SHARD,
     "        if state.state_epoch > body.state_epoch:\n            return _fenced_state(body.state_epoch, state)\n"
     "        update", "        update"),
    ("share-initialized-anew", "an initialisation sent twice changes nothing", SHARD,
     "        if state is not None and state.state_epoch == body.state_epoch:\n",
     "        if False:\n"),
    ("share-pruned-too-far", "the log keeps the oldest snapshot that is needed", SHARD,
     "min(self._snapshot_offsets.values(), default=0)",
     "max(self._snapshot_offsets.values(), default=0)"),
    ("share-no-snapshot", "many updates end in a snapshot", SHARD,
     "        if self._updates[key] + 1 >= most:\n", "        if False:\n"),
    ("share-lagging-image", "a topic that no image had yet is not deleted", SHARD,
     "            elif key.topic_id in known:\n", "            else:\n"),
    ("share-older-state-wins", "newer states replace older ones", BATCHES,
     "    for row in sorted([*_outside(older, newer), *newer]):",
     "    for row in sorted([*older, *_outside(newer, older)]):"),
)  # fmt: skip

_SERVED: tuple[tuple[str, str, str, str, str], ...] = (
    # Sessions.
    ("share-any-epoch", "requests of a session are numbered", SESSIONS,
     "        if epoch != session.epoch:\n", "        if False:\n"),
    ("share-session-moves", "a session ends with its connection", SESSIONS,
     "if session is None or session.connection is not connection:", "if session is None:"),
    ("share-closed-and-held", "a member that leaves gives up what it holds", MANAGER,
     "            self._led.release(session.group_id, where, session.member_id)\n",
     "            pass\n"),
    ("share-fetch-of-the-dead", "a session that ends acquires nothing any more", MANAGER,
     "        self._sessions.remove(session.group_id, session.member_id)\n        _unpark(session)\n",
     "        self._sessions.remove(session.group_id, session.member_id)\n"),
    ("share-old-state-stays", "a leader lets go of states that nobody fetches", MANAGER,
     "            self._led.retire_group(session.group_id)\n", "            pass\n"),
    # What is kept.
    ("share-told-too-early", "an acknowledgement is answered once it is kept", LED,
     "        self._acknowledged.append((core.revision, settled))\n",
     "        settled(ErrorCode.NONE)\n"),
    ("share-start-chosen-twice", "the first leader's start is kept", LED,
     "            self.core.keep_start()\n", "            pass\n"),
    # The group.
    ("share-no-states-for-the-second", "new subscriptions get states", HEARTBEAT,
     "    if not (has_changed or group.is_metadata_stale or states.initializing):\n",
     "    if not (group.is_metadata_stale or states.initializing):\n"),
    ("share-without-bound", "a group has no more members than allowed", HEARTBEAT,
     "    if len(group.members) >= size_max:\n", "    if False:\n"),
    ("share-altered-under-members", "offsets of a group with members stay", COORDINATOR,
     "        if isinstance(group, ShareGroup) and group.members:\n", "        if False:\n"),
)  # fmt: skip

_DEAD_LETTERS: tuple[tuple[str, str, str, str, str], ...] = (
    ("share-letter-before-its-state", "a dead letter is kept before it is written", PARTITION,
     "            if run.state is not _ARCHIVING or run.is_unwritten:\n",
     "            if run.state is not _ARCHIVING:\n"),
    ("share-rejected-and-forgotten", "a rejected record waits for its dead letter", PARTITION,
     "        self._settle(run, _ARCHIVING if limits.has_dead_letters else _ARCHIVED)\n",
     "        self._settle(run, _ARCHIVED)\n"),
    ("share-letters-of-the-one-before", "a new leader writes what is left of dead letters", LED,
     "        self._begin_dead_letters(self.core)\n        self.wake()\n",
     "        self.wake()\n"),
    ("share-letter-tried-once", "a dead letter without a place for now is tried again", ATTEMPTS,
     " and answer.code not in _FINAL:\n", " and False:\n"),
    ("share-one-record-takes-all-letters", "records are tried alone if a topic refuses one", ATTEMPTS,
     " and first < last:\n", " and False:\n"),
    ("share-letters-seen-once", "dead letters that come later are looked for", PARTITION,
     "        if state is _ARCHIVING:\n            self._may_have_letters = True\n", ""),
    ("share-any-topic-for-letters", "the topic says that it may have dead letters", LETTERS,
     '.get(DEAD_LETTERS_ENABLE, "").strip().lower() == "true":', '.get(DEAD_LETTERS_ENABLE, "true"):'),
    ("share-part-of-a-large-letter", "a batch of dead letters keeps to the topic's limit", LETTER_RULES,
     "        if len(parts) > 1 and size + len(record) > bytes_max:\n            break\n", ""),
    ("share-copies-cut-off", "dead letters wait for the copies that one read has not got", LETTERS,
     "            letters = _up_to(letters, last_offset)\n", ""),
)  # fmt: skip

MUTANTS = (
    *mutants_of(
        _CORE,
        tests=(
            "tests/test_share/test_share_partition.py",
            "tests/test_share/test_share_state_shard.py",
            "tests/test_share/test_state_batches.py",
        ),
    ),
    *mutants_of(
        _SERVED,
        tests=("tests/test_share/test_share_groups.py", "tests/test_share/test_share_apis.py"),
    ),
    *mutants_of(
        _DEAD_LETTERS,
        tests=(
            "tests/test_share/test_share_partition.py",
            "tests/test_share/test_dead_letter_attempts.py",
            "tests/test_share/test_dead_letters.py",
        ),
    ),
)
