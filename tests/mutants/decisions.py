"""Rules of the controller's decisions, each with an edit that breaks it."""

from __future__ import annotations

import functools

from tests.mutants.model import of_controller_runs, of_decisions

BROKERS = "kvorum/metadata/controller/decide/brokers.py"
CHANGE = "kvorum/metadata/controller/decide/partition_change.py"
CONFIGS = "kvorum/metadata/controller/decide/configs.py"
CONTROLLER = "kvorum/metadata/controller/core/controller.py"
CORE = "kvorum/metadata/controller/core/quorum_controller.py"
DELTA = "kvorum/metadata/image/delta.py"
ELECTIONS = "kvorum/metadata/controller/decide/elections.py"
ELECTORATE = "kvorum/metadata/controller/decide/eligible_brokers.py"
FEATURES = "kvorum/metadata/controller/decide/features.py"
GROWTH = "kvorum/metadata/controller/decide/partitions.py"
ISR = "kvorum/metadata/controller/decide/isr.py"
LEADER_CHECK = "kvorum/metadata/controller/core/leader_check.py"
MAPS = "kvorum/metadata/image/persistent_map.py"
PRODUCERS = "kvorum/metadata/controller/decide/producer_ids.py"
QUOTAS = "kvorum/metadata/controller/decide/quotas.py"
SCRAM = "kvorum/metadata/controller/decide/scram.py"
REASSIGNMENT = "kvorum/metadata/controller/decide/reassignment.py"
SESSIONS = "kvorum/metadata/controller/core/broker_sessions.py"
TOPICS = "kvorum/metadata/controller/decide/topics.py"
UNREGISTER = "kvorum/metadata/controller/decide/unregister.py"
ELIGIBLE = "kvorum/metadata/controller/decide/elr_clearing.py"

#: test_partition_machine makes topics all the time, and chases its tail if they go wrong.
_of_topics = functools.partial(of_decisions, tests=("tests/test_metadata/test_topics.py",))

MUTANTS = (
    # Brokers.
    of_decisions(
        "planned-stop-blocks-topics",
        "a broker that was shut down gets replicas as any fenced one",
        TOPICS,
        "        if broker.is_fenced or not broker.in_controlled_shutdown\n",
        "        if not broker.in_controlled_shutdown\n",
    ),
    of_decisions(
        "joins-a-quorum-that-lost-records",
        "a broker with more metadata than the quorum does not register",
        BROKERS,
        "    if request.metadata_offset > context.next_offset or ",
        "    if ",
    ),
    of_decisions(
        "second-process-takes-the-place",
        "a second process cannot register while the broker's session lives",
        BROKERS,
        "        is_alive = has_session and known.is_active\n",
        "        is_alive = False\n",
    ),
    of_decisions(
        "another-disk-takes-the-place-after-a-claim",
        "a process with other directories cannot register within a session time-out",
        BROKERS,
        "        if is_alive or (may_be_alive and _has_other_directories(known, request)):\n",
        "        if is_alive:\n",
    ),
    of_decisions(
        "same-incarnation-registers-anew",
        "a retried registration keeps its broker epoch",
        BROKERS,
        "        if known.incarnation_id == request.incarnation_id:\n",
        "        if False:\n",
    ),
    of_decisions(
        "unfenced-before-it-has-caught-up",
        "a broker is unfenced once it has published its own registration",
        BROKERS,
        "    is_caught_up = request.metadata_offset > broker.broker_epoch\n",
        "    is_caught_up = True\n",
    ),
    of_decisions(
        "stale-heartbeat-counts",
        "a heartbeat of an earlier broker process is refused",
        BROKERS,
        "    if broker.broker_epoch != request.broker_epoch:\n",
        "    if False:\n",
    ),
    of_decisions(
        "registration-forgets-what-it-led",
        "a new registration takes the broker's leaderships away",
        BROKERS,
        "        records.extend(changes_without_broker(",
        "        list(changes_without_broker(",
    ),
    of_decisions(
        "unclean-restart-stays-eligible",
        "a broker after an unclean shutdown is no eligible leader (KIP-966)",
        BROKERS,
        "        is_lost = request.broker_epoch_before != known.broker_epoch\n",
        "        is_lost = False\n",
    ),
    of_decisions(
        "shutdown-keeps-leaders",
        "a controlled shutdown first moves leadership away",
        BROKERS,
        "            broker.broker_id, broker.broker_epoch, in_controlled_shutdown=True\n        ),\n"
        "        *changes_without_broker(image, broker.broker_id, eligible),\n",
        "            broker.broker_id, broker.broker_epoch, in_controlled_shutdown=True\n        ),\n",
    ),
    of_decisions(
        "living-broker-unregistered",
        "a live broker cannot be unregistered",
        UNREGISTER,
        "    if has_session and broker.is_active:\n",
        "    if False:\n",
    ),
    of_decisions(
        "unregistered-and-eligible",
        "an unregistered broker is no eligible leader replica",
        UNREGISTER,
        "broker_id, eligible, is_lost=True),",
        "broker_id, eligible, is_lost=False),",
        tests=("tests/test_metadata/test_elections.py",),
    ),
    of_decisions(
        "voter-unregistered",
        "the registration of a voter stays, with the levels that the voter supports",
        UNREGISTER,
        "    if controller_id in context.voter_ids:\n",
        "    if False:\n",
    ),
    of_decisions(
        "unregistered-below-its-level",
        "a controller's registration is removed only at the level that records it",
        UNREGISTER,
        "    if level < UNREGISTER_LEVEL:\n",
        "    if False:\n",
    ),
    of_decisions(
        "other-kind-of-voters",
        "a quorum keeps the kind of voters that it was made with",
        FEATURES,
        "    if name == KRAFT_VERSION and not own",
        "    if False and not own",
    ),
    of_decisions(
        "groups-without-bounds",
        "a controller's properties bound the configs of groups",
        CONTROLLER,
        "return alter_configs(image, request, self._config, records_max=most)",
        "return alter_configs(image, request, records_max=most)",
    ),
    of_decisions(
        "request-without-its-limit",
        "a controller's property bounds the records of a request",
        CONTROLLER,
        "        most = self._config.kvorum_controller_request_records_max\n",
        "        most = 10_000\n",
    ),
    # Sessions.
    of_decisions(
        "session-of-another-epoch-breaks",
        "the end of an older process's stream does not end a newer session",
        SESSIONS,
        "        if session is None or session.broker_epoch != broker_epoch:\n",
        "        if session is None:\n",
    ),
    of_decisions(
        "end-of-an-older-stream-counts",
        "only the end of a broker's newest stream means that it is gone",
        SESSIONS,
        "        if serial is not None and serial != streams.newest:\n",
        "        if False:\n",
    ),
    of_decisions(
        "return-of-a-stream-forgotten",
        "the same process came back, so it was not dead: its grace grows",
        SESSIONS,
        "            streams.doublings = self._doublings(streams, now_ms) + 1\n",
        "            streams.doublings = 0\n",
    ),
    of_decisions(
        "flaps-of-a-dead-process-inherited",
        "a new process of a broker starts with the configured grace",
        SESSIONS,
        "        if streams is None or streams.broker_epoch < broker_epoch:\n            newest =",
        "        if streams is None:\n            newest =",
    ),
    of_decisions(
        "flaps-never-forgotten",
        "quiet times halve a grown grace again",
        SESSIONS,
        "        return max(min(streams.doublings, most) - quiet, 0)\n",
        "        return min(streams.doublings, most)\n",
    ),
    of_decisions(
        "own-stall-fences-brokers",
        "a controller that was paused itself does not fence brokers for it",
        SESSIONS,
        "        if late_ms > STALL_MS:\n",
        "        if False:\n",
    ),
    # Elections and ISR.
    of_decisions(
        "fenced-broker-elected",
        "only an active broker is elected leader",
        CHANGE,
        "        if replica in active and replica in members:\n",
        "        if replica in members:\n",
    ),
    of_decisions(
        "isr-becomes-empty",
        "the last member of an ISR stays in it",
        CHANGE,
        "    if not isr:\n        isr = partition.isr\n",
        "    if False:\n        isr = partition.isr\n",
    ),
    of_decisions(
        "unclean-without-leave",
        "unclean elections happen only if they are allowed or requested",
        CHANGE,
        "    if rules.is_unclean_allowed or partition_target.election is Election.UNCLEAN:\n",
        "    if True:\n",
    ),
    of_decisions(
        "unclean-is-not-told",
        "an unclean election marks the partition as recovering",
        CHANGE,
        "        recovery = RECOVERING if outcome.is_unclean else RECOVERED\n",
        "        recovery = RECOVERED\n",
    ),
    of_decisions(
        "lost-replica-stays-eligible",
        "a replica that may have lost its log leaves the ELR",
        CHANGE,
        "    holders = (set(partition.isr) | set(partition.elr)) - partition_target.lost\n",
        "    holders = set(partition.isr) | set(partition.elr)\n",
    ),
    of_decisions(
        "elr-above-the-minimum",
        "the ELR is emptied when the ISR reaches the minimum",
        CHANGE,
        "    if not rules.has_elr or len(isr) >= min(rules.min_isr, len(shape.replicas)):\n",
        "    if not rules.has_elr:\n",
    ),
    of_decisions(
        "new-minimum-keeps-the-elr",
        "a change of min.insync.replicas empties the ELRs that depend on it",
        ELIGIBLE,
        "    return (*cleared, *records)\n",
        "    return tuple(records)\n",
    ),
    of_decisions(
        "leader-order-is-the-isrs",
        "the new leader is the first in-sync replica in the replicas' order",
        CHANGE,
        "    in_sync = _first(shape.replicas, active, isr)\n",
        "    in_sync = _first(isr, active, isr)\n",
    ),
    of_decisions(
        "stale-leader-epoch-accepted",
        "an ISR proposal with an old leader epoch is refused",
        ISR,
        "    if epochs[0] < partition.leader_epoch:\n",
        "    if False:\n",
    ),
    of_decisions(
        "stale-partition-epoch-accepted",
        "an ISR proposal with an old partition epoch is refused",
        ISR,
        "    if epochs[1] < partition.partition_epoch:\n",
        "    if False:\n",
    ),
    of_decisions(
        "restarted-replica-joins",
        "a restarted replica does not join the ISR by a fetch of its earlier process (KIP-903)",
        ISR,
        "        if broker_epoch != -1 and broker_epoch != broker.broker_epoch:\n",
        "        if False:\n",
    ),
    of_decisions(
        "fenced-replica-joins",
        "a fenced broker joins no ISR",
        ISR,
        "        if broker is None or not broker.is_active:\n",
        "        if broker is None:\n",
    ),
    of_decisions(
        "follower-proposes",
        "only the leader proposes an ISR",
        ISR,
        "    if broker_id != partition.leader:\n",
        "    if False:\n",
    ),
    of_decisions(
        "sweep-forgets-the-rest",
        "the periodic sweep continues where its last chunk ended",
        ELECTIONS,
        "                return Decision(tuple(records), "
        "Sweep(at.topic_ids, topic_index, partition_id))\n",
        "                return Decision(tuple(records), None)\n",
    ),
    of_decisions(
        "minimum-is-read-as-digits",
        "controllers read a minimum as brokers do",
        ELECTORATE,
        "    number = None if text is None else parse(TOPIC_CONFIGS[MIN_INSYNC_REPLICAS], text)\n",
        "    number = int(text) if text is not None and text.isdigit() else None\n",
    ),
    of_decisions(
        "unclean-is-read-as-true",
        "controllers use the value of unclean.leader.election.enable that is described",
        ELECTORATE,
        "    is_allowed = None if text is None else parse(TOPIC_CONFIGS[UNCLEAN_ELECTION], text)\n",
        '    is_allowed = None if text is None else text == "true"\n',
    ),
    of_decisions(
        "first-walk-after-an-interval",
        "a new active controller looks for leaderless partitions at once",
        LEADER_CHECK,
        "        self.next_deadline_ms = now_ms + CHUNK_PAUSE_MS\n",
        "        self.next_deadline_ms = now_ms + self._interval_ms\n",
    ),
    of_decisions(
        "first-walk-prefers",
        "a new active controller's first sweep moves no existing leaders",
        CORE,
        "only_missing=not check.has_walked)\n",
        "only_missing=False)\n",
    ),
    # Reassignment.
    of_decisions(
        "move-completes-too-early",
        "a reassignment completes when all target replicas are in sync",
        CHANGE,
        "    if not set(target) <= set(isr) or not any(r in rules.active for r in isr):\n",
        "    if not any(r in rules.active for r in isr):\n",
    ),
    of_decisions(
        "cancel-keeps-the-targets",
        "a cancelled reassignment restores the original replicas",
        REASSIGNMENT,
        "        target = origin\n",
        "        target = partition.replicas\n",
    ),
    of_decisions(
        "move-to-unknown-brokers",
        "the targets of a reassignment are registered brokers",
        REASSIGNMENT,
        "    elif unknown := [r for r in target if r not in image.brokers]:\n",
        "    elif unknown := [r for r in target if r is None]:\n",
    ),
    of_decisions(
        "growth-during-a-move",
        "new partitions get the replication factor that a reassignment leads to",
        GROWTH,
        "    factor = len(first.replicas) - len(first.removing_replicas)\n",
        "    factor = len(first.replicas)\n",
        tests=("tests/test_metadata/test_more_partitions.py",),
    ),
    # Topics.
    _of_topics(
        "fenced-replica-in-the-first-isr",
        "a fenced replica is not in the first ISR",
        TOPICS,
        "        isr = tuple(replica for replica in replicas if replica in active)\n",
        "        isr = tuple(replicas)\n",
    ),
    _of_topics(
        "validate-only-makes-topics",
        "validate-only creates no topic",
        TOPICS,
        "        if not request.validate_only:\n",
        "        if True:\n",
    ),
    _of_topics(
        "topic-made-twice",
        "two topics cannot have the same name",
        TOPICS,
        "    if name in image.topic_ids:\n",
        "    if False:\n",
    ),
    of_decisions(
        "configs-outlive-their-topic",
        "deleting a topic deletes its configs",
        DELTA,
        "        if key in self._configs:\n            del self._configs[key]\n",
        "        if False:\n            del self._configs[key]\n",
    ),
    of_decisions(
        "leader-epoch-stays",
        "a new leader gets a new leader epoch",
        DELTA,
        "            old.leader_epoch + (record.leader is not None),\n",
        "            old.leader_epoch,\n",
    ),
    of_decisions(
        "image-changed-in-place",
        "a change leaves the maps of earlier images as they were",
        MAPS,
        "            copy = self._copies[index] = buckets[index].copy()\n",
        "            copy = self._copies[index] = buckets[index]\n",
    ),
    # Producer ids, configs, quotas, features.
    of_decisions(
        "block-handed-out-twice",
        "a block of producer ids is given to one broker only",
        PRODUCERS,
        "start + BLOCK_LENGTH),),\n",
        "start),),\n",
    ),
    of_decisions(
        "config-of-a-topic-that-is-not",
        "only existing topics can have configs",
        CONFIGS,
        "        if image.topic(name) is None:\n",
        "        if False:\n",
    ),
    of_decisions(
        "two-replicas-on-a-machine",
        "no machine has two replicas of a partition while there are enough",
        "kvorum/metadata/controller/decide/placement.py",
        "found = _next(racks, position, replicas, full) or",
        "found = _next(racks, position, replicas, ()) or",
    ),
    of_decisions(
        "uneven-within-a-rack",
        "the brokers of a rack are within one replica of each other",
        "kvorum/metadata/controller/decide/placement.py",
        "        return replicas, -leaders, self._place[broker_id], broker_id\n",
        "        return 0, 0, self._place[broker_id], broker_id\n",
    ),
    of_decisions(
        "restart-believed-without-a-registration",
        "a node counts as restarted only by a new registration",
        "kvorum/metadata/inspect/roll.py",
        "    if not is_registered_again(image, before):\n",
        "    if not nodes_of(image):\n",
    ),
    of_decisions(
        "next-voter-too-early",
        "a restarted voter has the log up to its registration",
        "kvorum/metadata/inspect/roll.py",
        'if replica["log_end_offset"] < image.end_offset:',
        'if replica["log_end_offset"] < 0:',
    ),
    of_decisions(
        "leader-restarted-first",
        "the leader is the last of the controllers",
        "kvorum/metadata/inspect/roll.py",
        'key=lambda node: (node.role == "broker", node.node_id == leader_id, node.node_id)',
        'key=lambda node: (node.role == "broker", node.node_id)',
    ),
    of_decisions(
        "replacement-keeps-the-rest",
        "AlterConfigs replaces all configs of a resource",
        CONFIGS,
        "    wanted = {} if is_replacement else dict(current)\n",
        "    wanted = dict(current)\n",
    ),
    of_decisions(
        "quotas-below-their-level",
        "no quota is written below the metadata.version that supports it",
        QUOTAS,
        "    if level < REASSIGNMENT_LEVEL:\n",
        "    if False:\n",
    ),
    of_decisions(
        "credentials-below-their-level",
        "no credential is written below the metadata.version that supports it",
        SCRAM,
        "    if level < SCRAM_LEVEL:\n",
        "    if False:\n",
    ),
    of_decisions(
        "level-that-loses-credentials",
        "a downgrade is refused while there are credentials",
        FEATURES,
        "    if level < SCRAM_LEVEL and image.scram_credentials:\n",
        "    if False:\n",
    ),
    of_decisions(
        "level-that-a-broker-cannot-read",
        "a finalised level is in the range of every node",
        FEATURES,
        "        elif not known.min_level <= level <= known.max_level:\n",
        "        elif False:\n",
    ),
    of_decisions(
        "unfit-node-joins",
        "a node that does not support the finalised levels cannot register",
        FEATURES,
        "    if problem is None:\n        return None\n    return Rejected(\n"
        "        ErrorCode.UNSUPPORTED_VERSION,",
        "    if True:\n        return None\n    return Rejected(\n"
        "        ErrorCode.UNSUPPORTED_VERSION,",
    ),
    of_decisions(
        "half-an-update",
        "the feature updates of one request are all made or none",
        FEATURES,
        "    if request.validate_only or any(one.error is not ErrorCode.NONE for one in outcome):\n",
        "    if request.validate_only:\n",
    ),
    of_decisions(
        "downgrade-loses-metadata",
        "a downgrade below the level that the metadata needs is refused",
        FEATURES,
        "    if lost is None:\n        return None\n",
        "    if True:\n        return None\n",
    ),
    # The controller.
    of_decisions(
        "renounced-decisions-stay",
        "a controller that loses leadership drops its uncommitted decisions",
        CONTROLLER,
        "        self.speculative = None\n\n    def note_committed",
        "        pass\n\n    def note_committed",
    ),
    # The controller over its log: the simulator alone must object.
    of_controller_runs(
        "answered-before-the-commit",
        "a reply waits for the commit of the records that it depends on",
        CORE,
        "        if end_offset <= self._high_watermark:\n",
        "        if True:\n",
    ),
    of_controller_runs(
        "deposed-and-answers",
        "a deposed controller acknowledges none of its uncommitted decisions",
        CORE,
        "                _settle(self._parked.popleft(), self._not_controller())\n",
        "                first = self._parked.popleft()\n"
        "                _settle(first, first.reply)\n",
    ),
    of_controller_runs(
        "claimed-before-its-first-commit",
        "a new leader decides only after a record of its own epoch is committed",
        CORE,
        "            or self._high_watermark <= change.epoch_start_offset\n",
        "",
    ),
    of_controller_runs(
        "decided-on-yesterdays-image",
        "a decision sees all earlier decisions",
        CONTROLLER,
        "            decided = self._decide(image, request, now_ms, wall_ms)\n",
        "            decided = self._decide(self.committed, request, now_ms, wall_ms)\n",
    ),
    of_controller_runs(
        "records-in-two-places",
        "the records of a decision are one batch",
        CORE,
        "from kvorum.metadata.controller.decide import RECORDS_PER_BATCH_MAX\n",
        "RECORDS_PER_BATCH_MAX = 1\n",
    ),
    of_controller_runs(
        "fencing-left-for-the-next-timer",
        "a broker whose session ended is fenced at once",
        CORE,
        "        while (chunk := controller.fence_next(now_ms)) is not None:\n",
        "        while (chunk := None) is not None:\n",
    ),
    of_controller_runs(
        "snapshot-without-fencing",
        "a snapshot has each broker's own fencing state",
        "kvorum/metadata/image/snapshot_job.py",
        "            broker.is_fenced,\n",
        "            True,\n",
    ),
    of_controller_runs(
        "returning-replica-waits",
        "a returning broker leads partitions that no other broker can lead",
        BROKERS,
        "        *changes_with_broker(image, broker.broker_id, eligible),\n",
        "",
    ),
    of_controller_runs(
        "unregistered-and-still-leads",
        "an unregistered broker leads no partition",
        UNREGISTER,
        "            *changes_without_broker(image, request.broker_id, eligible, is_lost=True),\n",
        "",
    ),
    of_controller_runs(
        "eligible-replica-overlooked",
        "an eligible replica becomes leader if no in-sync replica can",
        CHANGE,
        "    if eligible is not None:\n",
        "    if False:\n",
    ),
    of_controller_runs(
        "controller-forgets-who-it-is",
        "an acknowledged controller registration is in the image",
        DELTA,
        "            incarnation_id=record.incarnation_id,\n"
        "            endpoints=record.endpoints,\n            features=record.features,\n",
        "            incarnation_id=bytes(16),\n"
        "            endpoints=record.endpoints,\n            features=record.features,\n",
    ),
)
