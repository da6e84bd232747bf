"""Rules of the controller's decisions, each with an edit that breaks it."""

from __future__ import annotations

import functools

from tests.mutants.model import of_controller_runs, of_decisions

BROKERS = "metadata/controller/decide/brokers.py"
CHANGE = "metadata/controller/decide/partition_change.py"
CONFIGS = "metadata/controller/decide/configs.py"
CONTROLLER = "metadata/controller/controller.py"
CORE = "metadata/controller/controller_core.py"
DELTA = "metadata/image/delta.py"
ELECTIONS = "metadata/controller/decide/elections.py"
ELECTORATE = "metadata/controller/decide/eligible_brokers.py"
FEATURES = "metadata/controller/decide/features.py"
GROWTH = "metadata/controller/decide/partitions.py"
ISR = "metadata/controller/decide/isr.py"
LEADER_CHECK = "metadata/controller/leader_check.py"
PRODUCERS = "metadata/controller/decide/producer_ids.py"
QUOTAS = "metadata/controller/decide/quotas.py"
SCRAM = "metadata/controller/decide/scram.py"
REASSIGNMENT = "metadata/controller/decide/reassignment.py"
SESSIONS = "metadata/controller/broker_sessions.py"
TOPICS = "metadata/controller/decide/topics.py"
UNREGISTER = "metadata/controller/decide/unregister.py"
ELIGIBLE = "metadata/controller/decide/elr_clearing.py"

#: test_partition_machine makes topics all the time, and chases its tail if they go wrong.
_of_topics = functools.partial(of_decisions, tests=("tests/test_metadata/test_topics.py",))

MUTANTS = (
    # Brokers.
    of_decisions(
        "second-process-takes-the-place",
        "a living broker keeps its place",
        BROKERS,
        "        if has_session and known.is_active:\n",
        "        if False and known.is_active:\n",
    ),
    of_decisions(
        "same-incarnation-registers-anew",
        "a retry keeps its epoch",
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
        "a heartbeat of an earlier process is refused",
        BROKERS,
        "    if broker.broker_epoch != request.broker_epoch:\n",
        "    if False:\n",
    ),
    of_decisions(
        "registration-forgets-what-it-led",
        "a process that takes over an id leads nothing of what was before it",
        BROKERS,
        "        records.extend(changes_without_broker(",
        "        list(changes_without_broker(",
    ),
    of_decisions(
        "unclean-restart-stays-eligible",
        "who lost its logs is no eligible leader (KIP-966)",
        BROKERS,
        "        is_lost = request.broker_epoch_before != known.broker_epoch\n",
        "        is_lost = False\n",
    ),
    of_decisions(
        "shutdown-keeps-leaders",
        "a broker that leaves in good order gives its leaderships away first",
        BROKERS,
        "            broker.broker_id, broker.broker_epoch, in_controlled_shutdown=True\n        ),\n"
        "        *changes_without_broker(image, broker.broker_id, eligible),\n",
        "            broker.broker_id, broker.broker_epoch, in_controlled_shutdown=True\n        ),\n",
    ),
    of_decisions(
        "living-broker-unregistered",
        "a living broker is not unregistered",
        UNREGISTER,
        "    if has_session and broker.is_active:\n",
        "    if False:\n",
    ),
    of_decisions(
        "last-copy-unregistered",
        "the last broker in sync is not unregistered",
        UNREGISTER,
        "        if partition.isr == (request.broker_id,)\n",
        "        if partition.isr == ()\n",
    ),
    # Sessions.
    of_decisions(
        "session-of-another-epoch-breaks",
        "the end of an older stream is none of a newer session's business",
        SESSIONS,
        "        if session is None or session.broker_epoch != broker_epoch:\n",
        "        if session is None:\n",
    ),
    of_decisions(
        "end-of-an-older-stream-counts",
        "only the end of a broker's newest stream says that it is gone",
        SESSIONS,
        "        if serial is not None and serial != streams.newest:\n",
        "        if False:\n",
    ),
    of_decisions(
        "return-of-a-stream-forgotten",
        "a process that came back was not dead: its grace grows",
        SESSIONS,
        "            streams.doublings = self._doublings(streams, now_ms) + 1\n",
        "            streams.doublings = 0\n",
    ),
    of_decisions(
        "flaps-of-a-dead-process-inherited",
        "another process of that id begins with the configured grace",
        SESSIONS,
        "        if streams is None or streams.broker_epoch < broker_epoch:\n            newest =",
        "        if streams is None:\n            newest =",
    ),
    of_decisions(
        "flaps-never-forgotten",
        "quiet times take the doublings of a grace back",
        SESSIONS,
        "        return max(min(streams.doublings, most) - quiet, 0)\n",
        "        return min(streams.doublings, most)\n",
    ),
    of_decisions(
        "own-stall-fences-brokers",
        "a controller that stood still proves nothing about brokers",
        SESSIONS,
        "        if late_ms > STALL_MS:\n",
        "        if False:\n",
    ),
    # Elections and ISR.
    of_decisions(
        "fenced-broker-elected",
        "only an active broker leads",
        CHANGE,
        "        if replica in active and replica in members:\n",
        "        if replica in members:\n",
    ),
    of_decisions(
        "isr-becomes-empty",
        "the last member stays in the ISR",
        CHANGE,
        "    if not isr:\n        isr = partition.isr\n",
        "    if False:\n        isr = partition.isr\n",
    ),
    of_decisions(
        "unclean-without-leave",
        "unclean elections only where they are allowed or ordered",
        CHANGE,
        "    if rules.is_unclean_allowed or partition_target.election is Election.UNCLEAN:\n",
        "    if True:\n",
    ),
    of_decisions(
        "unclean-is-not-told",
        "a leader by an unclean election is told that it recovers",
        CHANGE,
        "        recovery = RECOVERING if outcome.is_unclean else RECOVERED\n",
        "        recovery = RECOVERED\n",
    ),
    of_decisions(
        "lost-replica-stays-eligible",
        "who may have lost its log leaves the ELR",
        CHANGE,
        "    holders = (set(partition.isr) | set(partition.elr)) - partition_target.lost\n",
        "    holders = set(partition.isr) | set(partition.elr)\n",
    ),
    of_decisions(
        "elr-above-the-minimum",
        "an ISR of the minimum needs no eligible replicas, and ends them",
        CHANGE,
        "    if not rules.has_elr or len(isr) >= min(rules.min_isr, len(shape.replicas)):\n",
        "    if not rules.has_elr:\n",
    ),
    of_decisions(
        "new-minimum-keeps-the-elr",
        "another min.insync.replicas ends the ELRs under it",
        ELIGIBLE,
        "    return (*cleared, *records)\n",
        "    return tuple(records)\n",
    ),
    of_decisions(
        "leader-order-is-the-isrs",
        "the first member of the ISR in the order of the replicas leads",
        CHANGE,
        "    in_sync = _first(shape.replicas, active, isr)\n",
        "    in_sync = _first(isr, active, isr)\n",
    ),
    of_decisions(
        "stale-leader-epoch-accepted",
        "a proposal of an earlier leader is refused",
        ISR,
        "    if epochs[0] < partition.leader_epoch:\n",
        "    if False:\n",
    ),
    of_decisions(
        "stale-partition-epoch-accepted",
        "a proposal that rests on an older ISR is refused",
        ISR,
        "    if epochs[1] < partition.partition_epoch:\n",
        "    if False:\n",
    ),
    of_decisions(
        "restarted-replica-joins",
        "a replica that restarted since does not join on its predecessor's word (KIP-903)",
        ISR,
        "        if broker_epoch != -1 and broker_epoch != broker.broker_epoch:\n",
        "        if False:\n",
    ),
    of_decisions(
        "fenced-replica-joins",
        "no fenced broker joins an ISR",
        ISR,
        "        if broker is None or not broker.is_active:\n",
        "        if broker is None:\n",
    ),
    of_decisions(
        "follower-proposes",
        "only the leader proposes",
        ISR,
        "    if broker_id != partition.leader:\n",
        "    if False:\n",
    ),
    of_decisions(
        "sweep-forgets-the-rest",
        "the periodic walk goes on where its chunk ended",
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
        "controllers read whether elections may be unclean as it is described",
        ELECTORATE,
        "    is_allowed = None if text is None else parse(TOPIC_CONFIGS[UNCLEAN_ELECTION], text)\n",
        '    is_allowed = None if text is None else text == "true"\n',
    ),
    of_decisions(
        "first-walk-after-an-interval",
        "who takes over looks for partitions without a leader at once",
        LEADER_CHECK,
        "        self.next_deadline_ms = now_ms + CHUNK_PAUSE_MS\n",
        "        self.next_deadline_ms = now_ms + self._interval_ms\n",
    ),
    of_decisions(
        "first-walk-prefers",
        "who takes over leaves the leaders that there are",
        CORE,
        "only_missing=not check.has_walked)\n",
        "only_missing=False)\n",
    ),
    # Reassignment.
    of_decisions(
        "move-completes-too-early",
        "a move is complete when all targets are in sync",
        CHANGE,
        "    if not set(target) <= set(isr) or not any(r in rules.active for r in isr):\n",
        "    if not any(r in rules.active for r in isr):\n",
    ),
    of_decisions(
        "cancel-keeps-the-targets",
        "a cancelled move goes back to the original replicas",
        REASSIGNMENT,
        "        target = origin\n",
        "        target = partition.replicas\n",
    ),
    of_decisions(
        "move-to-unknown-brokers",
        "targets are registered brokers",
        REASSIGNMENT,
        "    elif unknown := [r for r in target if r not in image.brokers]:\n",
        "    elif unknown := [r for r in target if r is None]:\n",
    ),
    of_decisions(
        "growth-during-a-move",
        "no partitions are added while a move is under way",
        GROWTH,
        "    if any(partition.is_reassigning for partition in topic.partitions.values()):\n",
        "    if False:\n",
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
        "validate-only makes nothing",
        TOPICS,
        "        if not request.validate_only:\n",
        "        if True:\n",
    ),
    _of_topics(
        "topic-made-twice",
        "a name stands for one topic",
        TOPICS,
        "    if name in image.topic_ids:\n",
        "    if False:\n",
    ),
    of_decisions(
        "configs-outlive-their-topic",
        "a topic's configs go with it",
        DELTA,
        "        if key in self._configs:\n            del self._configs[key]\n",
        "        if False:\n            del self._configs[key]\n",
    ),
    of_decisions(
        "leader-epoch-stays",
        "a new leader is a new leader epoch",
        DELTA,
        "            old.leader_epoch + (record.leader is not None),\n",
        "            old.leader_epoch,\n",
    ),
    # Producer ids, configs, quotas, features.
    of_decisions(
        "block-handed-out-twice",
        "a block of producer ids is one broker's alone",
        PRODUCERS,
        "start + BLOCK_LENGTH),),\n",
        "start),),\n",
    ),
    of_decisions(
        "config-of-a-topic-that-is-not",
        "configs are of topics that there are",
        CONFIGS,
        "        if image.topic(name) is None:\n",
        "        if False:\n",
    ),
    of_decisions(
        "replacement-keeps-the-rest",
        "AlterConfigs replaces all that a resource has",
        CONFIGS,
        "    wanted = {} if is_replacement else dict(current)\n",
        "    wanted = dict(current)\n",
    ),
    of_decisions(
        "quotas-below-their-level",
        "no quota is written at a level that has no words for it",
        QUOTAS,
        "    if level < REASSIGNMENT_LEVEL:\n",
        "    if False:\n",
    ),
    of_decisions(
        "credentials-below-their-level",
        "no credential is written at a level that has no words for it",
        SCRAM,
        "    if level < SCRAM_LEVEL:\n",
        "    if False:\n",
    ),
    of_decisions(
        "level-that-loses-credentials",
        "a level goes not down while there are credentials",
        FEATURES,
        "    if level < SCRAM_LEVEL and image.scram_credentials:\n",
        "    if False:\n",
    ),
    of_decisions(
        "level-that-a-broker-cannot-read",
        "a level is in the range of every node",
        FEATURES,
        "        elif not known.min_level <= level <= known.max_level:\n",
        "        elif False:\n",
    ),
    of_decisions(
        "unfit-node-joins",
        "a node that cannot read the levels in force does not join",
        FEATURES,
        "    if problem is None:\n        return None\n    return Rejected(\n"
        "        ErrorCode.UNSUPPORTED_VERSION,",
        "    if True:\n        return None\n    return Rejected(\n"
        "        ErrorCode.UNSUPPORTED_VERSION,",
    ),
    of_decisions(
        "half-an-update",
        "feature updates come true together or not at all",
        FEATURES,
        "    if request.validate_only or any(one.error is not ErrorCode.NONE for one in outcome):\n",
        "    if request.validate_only:\n",
    ),
    of_decisions(
        "downgrade-loses-metadata",
        "no downgrade below what the metadata needs",
        FEATURES,
        "    if lost is None:\n        return None\n",
        "    if True:\n        return None\n",
    ),
    # The controller.
    of_decisions(
        "renounced-decisions-stay",
        "what was decided and not committed is forgotten with the leadership",
        CONTROLLER,
        "        self.speculative = None\n\n    def note_committed",
        "        pass\n\n    def note_committed",
    ),
    # The controller over its log: the simulator alone must object.
    of_controller_runs(
        "answered-before-the-commit",
        "a reply waits for the commit of what it rests on",
        CORE,
        "        if end_offset <= self._high_watermark:\n",
        "        if True:\n",
    ),
    of_controller_runs(
        "deposed-and-answers",
        "who is deposed acknowledges nothing that it had decided",
        CORE,
        "                _settle(self._parked.popleft(), self._not_controller())\n",
        "                first = self._parked.popleft()\n"
        "                _settle(first, first.reply)\n",
    ),
    of_controller_runs(
        "claimed-before-its-first-commit",
        "a leader decides once a record of its own epoch is committed",
        CORE,
        "            or self._high_watermark <= change.epoch_start_offset\n",
        "",
    ),
    of_controller_runs(
        "decided-on-yesterdays-image",
        "a decision sees all that was decided before it",
        CONTROLLER,
        "            decided = self._decide(image, request, now_ms)\n",
        "            decided = self._decide(self.committed, request, now_ms)\n",
    ),
    of_controller_runs(
        "records-in-two-places",
        "a decision's records are one batch",
        CORE,
        "RECORDS_PER_BATCH_MAX = 50_000\n",
        "RECORDS_PER_BATCH_MAX = 1\n",
    ),
    of_controller_runs(
        "fencing-left-for-the-next-timer",
        "a broker whose session ended is fenced",
        CORE,
        "        while (fenced := controller.fence_next_broker(now_ms)) is not None:\n",
        "        while (fenced := None) is not None:\n",
    ),
    of_controller_runs(
        "snapshot-without-fencing",
        "a snapshot holds what the log said",
        "metadata/image/snapshot_job.py",
        "            broker.is_fenced,\n",
        "            True,\n",
    ),
    of_controller_runs(
        "returning-replica-waits",
        "a broker that returns leads what nobody else can",
        BROKERS,
        "        *changes_with_broker(image, broker.broker_id, eligible),\n",
        "",
    ),
    of_controller_runs(
        "unregistered-and-still-leads",
        "who is unregistered leads nothing",
        UNREGISTER,
        "            *changes_without_broker(image, request.broker_id, eligible, is_lost=True),\n",
        "",
    ),
    of_controller_runs(
        "eligible-replica-overlooked",
        "an eligible replica leads when nobody in sync can",
        CHANGE,
        "    if eligible is not None:\n",
        "    if False:\n",
    ),
    of_controller_runs(
        "controller-forgets-who-it-is",
        "a registration that was acknowledged is in the image",
        DELTA,
        "            incarnation_id=record.incarnation_id,\n"
        "            endpoints=record.endpoints,\n            features=record.features,\n",
        "            incarnation_id=bytes(16),\n"
        "            endpoints=record.endpoints,\n            features=record.features,\n",
    ),
)
