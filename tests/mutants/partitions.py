"""Rules of partitions, their logs and their replication, each with an edit that breaks it.

Most must be noticed by the world of partitions itself, the others by the tests of the log.
"""

from __future__ import annotations

from tests.mutants.model import Mutant

CORE = "kvorum/broker/partition/core/partition.py"
LINK = "kvorum/broker/controller_channel/alter_partition_manager.py"
ISR = "kvorum/broker/partition/core/isr.py"
REPLICA = "kvorum/broker/partition/replica.py"
TRUNCATION = "kvorum/broker/partition/core/truncation.py"
SEQUENCES = "kvorum/broker/partition/core/refused_sequences.py"
QUOTAS = "kvorum/broker/quotas/client_quotas.py"
TERM = "kvorum/broker/coordinator/shard_context.py"
HOST = "kvorum/broker/coordinator/host.py"
FETCHING = "kvorum/broker/fetch/leader_fetch.py"
OBJECTIONS = "kvorum/broker/fetch/fetch_validation.py"
SESSION = "kvorum/broker/fetch/follower_fetch_session.py"
SESSIONS = "kvorum/broker/fetch/fetch_sessions.py"
PLAN = "kvorum/broker/manager/metadata_plan.py"
STARTS = "kvorum/broker/fetch/log_start_ack.py"
STORE = "kvorum/broker/log_dirs/replica_store.py"
OFFSETS = "kvorum/broker/log_dirs/offset_checkpoints.py"
OPENER = "kvorum/broker/manager/replica_opener.py"
FAILURES = "kvorum/broker/manager/failure_handling.py"
PLACES = "kvorum/broker/log_dirs/log_directories.py"
MAINTENANCE = "kvorum/broker/manager/background_jobs.py"
FETCHER = "kvorum/broker/fetch/follower_fetch.py"
LOG = "kvorum/storage/log/log.py"
RECOVERY = "kvorum/storage/recovery/recovery.py"
RECOVERY_EPOCHS = "kvorum/storage/recovery/epoch_recovery.py"
METADATA_API = "kvorum/broker/api/metadata.py"
LOST_FILES = "kvorum/storage/recovery/missing_files.py"
EPOCHS = "kvorum/storage/files/leader_epochs.py"
INDEX = "kvorum/storage/files/index.py"
CLIENT_BATCH = "kvorum/storage/format/client_batch.py"
RECORD_CHECK = "kvorum/storage/format/record_validation.py"
PRODUCERS = "kvorum/storage/files/producer_state.py"
PLACING = "kvorum/storage/log/append_plan.py"
WALK = "kvorum/storage/recovery/batch_walk.py"
RETENTION = "kvorum/storage/log/retention.py"
ROLLING = "kvorum/storage/log/append_plan.py"
SEGMENT = "kvorum/storage/files/segment.py"

OF_CORE = ("tests/test_broker/test_partition.py",)
OF_SESSION = ("tests/test_broker/test_replica_session.py",)
OF_SESSIONS = ("tests/test_broker/test_waiters_and_sessions.py",)
OF_REFUSED = ("tests/test_broker/test_refused_sequences.py",)
OF_QUOTAS = ("tests/test_broker/test_client_quotas.py",)
OF_HOST = ("tests/test_broker/test_coordinator_host.py",)
OF_CHECKS = ("tests/test_broker/test_served_checks.py",)
OF_DELETION = ("tests/test_broker/test_delete_records.py",)
OF_STORE = ("tests/test_broker/test_replica_store.py",)
OF_LOST_FOLDERS = ("tests/test_broker/test_lost_folders.py",)
OF_SUSPECTS = ("tests/test_broker/test_suspects.py",)
OF_LOST = ("tests/test_storage/test_lost_files.py",)
OF_CLIENTS = ("tests/test_storage/test_client_batch.py",)
OF_LOG = (
    "tests/test_storage/test_log.py",
    "tests/test_storage/test_recovery.py",
    "tests/test_storage/test_batch.py",
    "tests/test_storage/test_epochs.py",
    "tests/test_storage/test_producer_state.py",
)
NONE: tuple[str, ...] = ()

_RULES: tuple[tuple[str, str, str, str, str, tuple[str, ...]], ...] = (
    # The high watermark.
    ("watermark-over-the-current-isr", "a replica that is being added counts toward the high watermark", ISR,
     "        return self.isr | self.joining\n\n    @property\n    def proposed",
     "        return self.isr\n\n    @property\n    def proposed", OF_CORE),
    ("watermark-without-the-leaving", "a replica that is being removed counts until the removal is committed", ISR,
     "        return self.isr\n\n    @property\n    def proposed(self) -> frozenset[int]:\n"
     "        return self.isr - self.leaving",
     "        return self.isr - self.leaving\n\n    @property\n"
     "    def proposed(self) -> frozenset[int]:\n        return self.isr - self.leaving", OF_CORE),
    ("watermark-of-the-leader-alone", "the high watermark waits for the ISR", CORE,
     "                replica_id in maximal or self._is_joining_soon(replica_id, remote, now_ms)\n",
     "                self._is_joining_soon(replica_id, remote, now_ms)\n"
     "                and replica_id not in maximal\n", NONE),
    ("watermark-below-the-minimum", "below min.insync.replicas the high watermark does not advance", CORE,
     "self.role is not Role.LEADER or self.is_under_min_isr:\n            return False\n"
     "        least",
     "self.role is not Role.LEADER:\n            return False\n        least", OF_CORE),
    ("watermark-falls", "the high watermark only rises", CORE,
     "        if bounded <= self.high_watermark:\n            return False\n", "", OF_CORE),
    ("watermark-above-the-log", "a follower's watermark is within its log", CORE,
     "        bounded = min(leader_high_watermark, end_offset)",
     "        bounded = leader_high_watermark", NONE),
    ("truncation-keeps-the-watermark", "a truncation lowers the high watermark", CORE,
     "        self.high_watermark = min(self.high_watermark, end_offset)\n\n"
     "    def on_start_moved",
     "        pass\n\n    def on_start_moved", OF_CORE),
    ("returner-does-not-hold-back", "a replica that is about to join holds the high watermark back", CORE,
     "        return self._is_eligible(replica_id, remote) and self._is_in_sync(remote, now_ms)",
     "        return False", OF_CORE),
    # Produce.
    ("watermark-of-a-cut-log-kept", "a truncation lowers the checkpoint of the high watermark", OFFSETS,
     "            self.write_high_watermarks()\n        if self.recovery", "        if self.recovery",
     OF_STORE),
    ("ack-before-replication", "acks=all waits for the high watermark", REPLICA,
     "        if terms.acks != -1 or self.core.high_watermark >= required_offset:\n",
     "        if True:\n", NONE),
    ("ack-one-early", "an acknowledgement waits for the last record of its batch", REPLICA,
     "(acks[0].required_offset <= high_watermark or",
     "(acks[0].required_offset <= high_watermark + 1 or", NONE),
    ("append-below-the-minimum", "below min.insync.replicas acks=all is refused", CORE,
     "        if acks == -1 and self.is_under_min_isr:", "        if False:", OF_CORE),
    ("follower-takes-produce", "only the leader appends", CORE,
     "        if self.role is not Role.LEADER:\n            return ErrorCode.NOT_LEADER_OR_FOLLOWER\n"
     "        if acks",
     "        if acks", NONE),
    ("duplicate-appended", "a repeated batch is not appended again", PRODUCERS,
     "            if batch.first_sequence == first and batch.last_sequence == last:",
     "            if False:", OF_LOG),
    ("sequence-gap-appended", "a gap in the sequences is refused", PRODUCERS,
     "        if first != expected:", "        if False:", OF_LOG),
    ("duplicates-checked-nowhere", "the leader checks a producer's earlier batches",
     SEQUENCES, "        duplicate = producers.check(header)\n", "        duplicate = None\n", NONE),
    ("follower-forgets-producers", "followers know the producers' state", LOG,
     "                if header.producer_id >= 0:", "                if False:", NONE),
    # Followers and fencing.
    ("fetch-of-any-epoch", "a fetch with another leader epoch is fenced", CORE,
     "        if current_leader_epoch == self.leader_epoch or current_leader_epoch == UNKNOWN_EPOCH:",
     "        if True:", OF_CORE),
    ("diverged-fetch-counts", "a fetch counts only if the follower's log matches", OBJECTIONS,
     "        if epoch < last_epoch or end_offset < asked.fetch_offset:", "        if False:", NONE),
    ("rebooted-broker-counts", "a fetch of an earlier broker process does not count (KIP-903)", CORE,
     "        if remote is None or not self.peer_brokers.is_broker(replica_id, broker_epoch):",
     "        if remote is None:", OF_CORE),
    ("no-truncation-by-epoch", "a diverged follower truncates by epoch (KIP-101)", TRUNCATION,
     "    return max(min(leader_end, local_end), start_offset)\n",
     "    return end_offset\n", ("tests/test_broker/test_truncation.py",)),
    ("recovery-point-in-a-gap", "a truncation lowers the checkpoints to the new end", REPLICA,
     "        target = log.end_if_cut(\n", "        target = int(\n",
     ("tests/test_broker/test_truncation.py",)),
    ("truncation-to-the-watermark", "a new follower truncates by epoch, not to the high watermark (KIP-101)",
     REPLICA, "        if is_new:\n            self.fail_pending(ErrorCode.NOT_LEADER_OR_FOLLOWER)\n",
     "        if is_new:\n            self.log.truncate_to(self.core.high_watermark)\n"
     "            self.core.on_truncated(self.log.end_offset)\n", NONE),
    ("answer-of-an-old-epoch", "an answer to an old epoch's fetch is dropped", SESSION,
     "            if followed is None or followed.asked_epoch != followed.replica.core.leader_epoch:",
     "            if followed is None:", OF_SESSION),
    ("offline-replica-fetches-on", "a replica whose disk failed does not fetch", SESSION,
     "            if followed.replica.is_offline:", "            if False:", OF_SESSION),
    ("header-before-its-stamp", "every reader sees the log append time as the batch's timestamp",
     "kvorum/broker/partition/replica.py",
     "header=None if self.config.is_log_append_time else header", "header=header",
     ("tests/test_broker/test_following.py",)),
    ("found-before-the-disk-failed", "what was found of a replica ends with its disk", FETCHING,
     "    is_checked = watched in objections and not replica.is_offline\n",
     "    is_checked = watched in objections\n",
     ("tests/test_broker/test_waiters_and_sessions.py",)),
    ("consumer-reads-to-the-end", "consumers read below the high watermark", FETCHING,
     "core.high_watermark)\n    return core.high_watermark\n",
     "core.high_watermark)\n    return core.end_offset\n",
     NONE),
    ("isr-of-those-who-lag", "a replica joins the ISR only when it has reached the high watermark", CORE,
     "            and remote.end_offset >= self.high_watermark\n", "", OF_CORE),
    ("isr-before-the-epochs-start", "a replica joins the ISR only when it has reached the start of the leader's epoch", CORE,
     "            and remote.end_offset >= self.epoch_start_offset\n", "", OF_CORE),
    ("isr-never-shrinks", "a lagging replica leaves the ISR", CORE,
     "if replica_id in self.isr_state.isr and not self._is_in_sync(remote, now_ms)",
     "if False", OF_CORE),
    ("isr-never-grows", "a caught-up replica joins the ISR", CORE,
     "            if replica_id not in self.isr_state.isr\n",
     "            if False\n", OF_CORE),
    ("stale-image-obeyed", "an image older than the state is ignored", CORE,
     "image.leader_epoch < self.leader_epoch or image.partition_epoch <= self.partition_epoch",
     "image.leader_epoch < self.leader_epoch and False", OF_CORE),
    ("follow-without-asking", "a partition that is added to a fetcher is fetched", SESSION,
     "        self._end_pause(followed)\n        self._changed[key] = followed\n",
     "        self._end_pause(followed)\n", NONE),
    # Metadata.
    ("topics-told-apart-by-name", "a topic that is created again is another topic", STORE,
     "        if is_known and found_id != topic_id:", "        if False:", OF_STORE),
    ("checkpoints-of-a-dead-topic", "a new topic does not use the checkpoints of a deleted one of the same name",
     STORE, "            self.checkpoints.forget(key)\n", "", OF_STORE),
    ("deletions-forgotten", "a replica that was moved away is deleted", PLAN,
     "            elif old_topic is not None and old is not None and broker_id in old.replicas:",
     "            elif False:",
     ("tests/test_broker/test_plan.py",)),
    ("start-above-the-end", "a log truncated below its log start begins there after a restart", OFFSETS,
     "            start_offset = min(start_before, offset)\n",
     "            start_offset = start_before\n", OF_STORE),
    ("torn-identity-kills", "a torn partition.metadata counts as missing", STORE,
     "        if is_torn_partition_metadata(self._disk.read_bytes(metadata)):",
     "        if not self._disk.read_bytes(metadata):", OF_STORE),
    ("identity-never-fsynced", "a start fsyncs partition.metadata", STORE,
     "            sync_partition_metadata(self._disk, path)\n", "            pass\n", OF_STORE),
    ("removed-under-its-old-name", "the rename of a removed folder is durable first", STORE,
     "            self._disk.sync_dir(self.directory)\n            # Then",
     "            # Then", OF_STORE),
    ("recovery-point-outlives-its-folder", "a topic that is created again is not reported as a missing folder",
     STORE, "            self.checkpoints.write_dropped(lambda", "            (lambda is_going: None)(lambda", OF_STORE),
    ("watermark-outlives-its-folder", "nor because of a high watermark in the checkpoint",
     OFFSETS, "            if any(map(is_going, self._on_disk.get(HIGH_WATERMARK, ()))):",
     "            if False:", OF_STORE),
    ("watermarks-prove-nothing", "records committed since the machine was started must still be there",
     OFFSETS, "            self._is_same_boot = noted == self._disk.boot_id() != \"\"",
     "            self._is_same_boot = False", OF_STORE),
    ("watermarks-of-another-boot", "a power cut may lose committed records", OFFSETS,
     "            self._is_same_boot = noted == self._disk.boot_id() != \"\"",
     "            self._is_same_boot = True", OF_STORE),
    ("boot-noted-too-early", "the boot id is written with high watermarks of existing logs", OFFSETS,
     "            if self._is_collected and not self._is_boot_noted:",
     "            if not self._is_boot_noted:", OF_STORE),
    ("held-and-forgotten", "what was missed is missed after a power cut as well", STORE,
     "            self.checkpoints.keep_required(key)\n", "            pass\n", OF_STORE),
    ("put-aside-is-no-excuse", "a folder put aside explains the recovery point that is left", STORE,
     "        self._missing = lost - going\n", "        self._lost = lost\n", OF_STORE),
    ("taken-folder-begins-anew", "a replica that the cluster counts on does not begin anew", PLACES,
     "            if lost is not None:", "            if False:", OF_LOST_FOLDERS),
    ("eligible-is-not-counted-on", "nor does an eligible leader replica", OPENER,
     "self._broker_id in (*image.isr, *image.elr)", "self._broker_id in image.isr", OF_LOST_FOLDERS),
    ("taken-folder-is-not-told", "a replica whose folder is missing is reported to the controller", FAILURES,
     "or (own is not None and not own.is_offline)", "", OF_LOST_FOLDERS),
    ("refused-folder-stays", "a deleted topic's folder is removed, readable or not", FAILURES,
     "            broken.log_dir.store.delete_refused(broken.name, key[0])\n", "            pass\n",
     OF_LOST_FOLDERS),
    ("recovery-is-not-looked-for", "the periodic check reports a leader that has recovered", LINK,
     "                or core.propose_recovered()\n", "", ("tests/test_broker/test_isr_link.py",)),
    ("recovering-for-ever", "an uncleanly elected leader reports that it has recovered", CORE,
     "        if self.role is not Role.LEADER or not self.is_recovering:\n",
     "        if True:\n", OF_CORE),
    ("nameless-at-the-start-of-others", "a new replica's partition.metadata is durable", REPLICA,
     "            self.sync_identity()\n            self.identity_unsynced = False\n",
     "            pass\n", ("tests/test_broker/test_truncation.py",)),
    ("flushes-overlap", "a log has one flush at a time", MAINTENANCE,
     "        async with self._flushing:\n            await self._flush_alone(replica)\n",
     "        await self._flush_alone(replica)\n", OF_SESSION),
    ("answer-for-the-replica-before", "an answer counts only for the replica that fetched", SESSION,
     "            if followed.asked_in > self._answered:", "            if False:", OF_SESSION),
    ("repeated-records-tell-nothing", "an answer's offsets count even if its records were already there", SESSION,
     "                self._append(followed, part, batches)\n",
     "                self._append(followed, part, batches)\n            else:\n"
     "                return\n", OF_SESSION),
    ("parting-histories-tell", "an answer that requests a truncation has no other effect", FETCHING,
     "        if answer.diverging is not None:\n            # The", "        if False:\n            # The",
     OF_SESSIONS),
    ("told-what-was-dropped", "answers of an earlier epoch do not count",
     "kvorum/broker/fetch/fetch_sessions.py", "                    if self.is_replica and not _goes_on(before, asked):",
     "                    if False:", OF_SESSIONS),
    ("two-sessions-opened", "one fetch session is opened at a time", FETCHER,
     "        if not (self._in_flight and self.session.is_opening):", "        if True:",
     OF_SESSION),
    ("newcomers-wait-for-ever", "a partition that waited for others is fetched", FETCHER,
     "        if self.session.has_changes:", "        if False:", OF_SESSION),
    # The log.
    ("index-off-by-one", "an index leads to the batch that holds the offset", INDEX,
     "        at = bisect_right(self.relative_offsets, offset - self.base_offset) - 1\n"
     "        return self.positions[at] if at >= 0 else 0\n\n    def floor_position",
     "        at = bisect_right(self.relative_offsets, offset - self.base_offset)\n"
     "        at = min(at, len(self.positions) - 1)\n"
     "        return self.positions[at] if at >= 0 else 0\n\n    def floor_position", OF_LOG),
    ("crc-not-checked", "a batch with a wrong CRC is refused", CLIENT_BATCH,
     "    if not check_crc(view, 0, header):\n        _refuse(", "    if False:\n        _refuse(",
     OF_CLIENTS),
    ("trailing-bytes", "bytes after the last record are refused", RECORD_CHECK,
     "    if at != len(data):", "    if False:", OF_CLIENTS),
    ("offset-deltas", "offset deltas are in order", RECORD_CHECK,
     "if offset_delta != number or byte & 1:", "if False:", OF_CLIENTS),
    ("offset-columns", "offset deltas are in order, also in a run of equal records", RECORD_CHECK,
     "if _column(data, at + position, stride, run) != known[wanted]:", "if False:", OF_CLIENTS),
    ("run-of-unlike", "a run has records of equal sizes", RECORD_CHECK,
     "run = len(column) - len(column.lstrip(column[:1]))", "run = len(column)", OF_CLIENTS),
    ("fields-and-length", "a record is as long as its fields", RECORD_CHECK,
     "            if at != end:", "            if False:", OF_CLIENTS),
    ("newest-hidden", "no record has a later timestamp than its batch's max timestamp", CLIENT_BATCH,
     "newest_ms == header.max_timestamp_ms and", "True and", OF_CLIENTS),
    ("bits-kept", "attributes that belong to the broker are overwritten", CLIENT_BATCH,
     "attributes=header.attributes & CLIENT_BITS,", "attributes=header.attributes,", OF_CLIENTS),
    ("crc-of-a-leader-not-checked", "a follower checks the CRC", PLACING,
     "        if not check_crc(batches, position, header):", "        if False:", OF_LOG),
    ("roll-off-by-one", "a segment never exceeds segment.bytes", ROLLING,
     "    if size + item.size_bytes > config.segment_bytes:",
     "    if size > config.segment_bytes:", OF_LOG),
    ("older-epoch-appended", "epochs never fall in a log", PLACING,
     "        if header.leader_epoch < latest_epoch:", "        if False:", OF_LOG),
    ("offsets-fall", "offsets only rise in a log", PLACING,
     "        if base_offset < end_offset or last_offset < base_offset:",
     "        if last_offset < base_offset:", OF_LOG),
    ("offsets-of-the-client", "the leader gives the offsets", PLACING,
     "        stamp(batch, position, base_offset=end_offset, leader_epoch=leader_epoch)",
     "        stamp(batch, position, base_offset=0, leader_epoch=leader_epoch)", OF_LOG),
    ("epochs-kept-over-a-cut", "a truncation removes the epochs above it", EPOCHS,
     "        keep = bisect_left(self.start_offsets, offset)\n        if keep < len(self.epochs):",
     "        keep = len(self.epochs)\n        if keep < len(self.epochs):", OF_LOG),
    ("epoch-end-of-the-next", "an epoch ends where the next begins", EPOCHS,
     "        return self.epochs[after - 1], self.start_offsets[after]",
     "        return self.epochs[after - 1], self.start_offsets[after] + 1", OF_LOG),
    ("retention-leaves-a-hole", "retention moves the log start before it deletes segments", RETENTION,
     "    log.advance_start_offset(segments.bases[count])\n", "", OF_LOG),
    ("start-comes-back", "a raised log start stays raised", RECOVERY_EPOCHS,
     "    if not _has_batches_below(segments, epochs, start_offset):", "    if True:", OF_LOG),
    ("watermark-of-what-is-lost", "a checkpointed high watermark above a log's end is lowered", STORE,
     "        self.checkpoints.lower(*key, log.end_offset)\n", "", OF_STORE),
    ("refused-and-forgotten", "the checkpoint entries of a refused log are kept", OFFSETS,
     "if key in known}", "if False}", OF_STORE),
    ("lost-files-are-nothing", "a log that ends below its recovery point is refused", RECOVERY,
     "    if end_offset < recovery_point:", "    if False:", OF_LOST),
    ("the-lowest-is-the-controller", "a broker that reaches the controllers names itself as the controller",
     "kvorum/broker/api/services.py", "        if self.broker_id in ids and not", "        if False and not",
     ("tests/test_broker/test_mutation_quota.py",)),
    ("the-dead-lead-on", "Metadata waits for the next leader when a leader has closed its connections", METADATA_API,
     "    await suspects.wait(lambda present: _are_led_by(context, request, present))\n", "",
     OF_SUSPECTS),
    ("suspected-for-ever", "a broker that is reachable again is no longer suspected", "kvorum/broker/metadata_answers/suspects.py",
     "        if self._until_ms.pop(leader, None) is not None:\n", "        if False:\n",
     OF_SUSPECTS),
    ("orphans-are-nothing", "indexes without their .log are proof that it was taken", LOST_FILES,
     "            if base_offset in mark_deleted or suffix == RECOVERY_SUFFIX:", "            if True:",
     OF_LOST),
    ("leftover-is-proof", "a .recovery outlives an orderly stop", LOST_FILES,
     "            if base_offset in mark_deleted or suffix == RECOVERY_SUFFIX:",
     "            if base_offset in mark_deleted:", OF_LOST),
    ("first-files-are-nothing", "a log begins where its epochs do", LOST_FILES,
     "    if known >= first_base_offset or", "    if True or", OF_LOST),
    ("emptied-is-nothing", "a sealed .log that is shorter than its index says is refused", LOST_FILES,
     "        if index_bytes or time_index_bytes:", "        if False:", OF_LOST),
    ("cut-is-nothing", "a sealed .log that was truncated between batches is refused", LOST_FILES,
     "    if end_offset >= following:", "    if True:", OF_LOST),
    ("tails-cut", "a sealed .log that is shorter than its time index says is refused", LOST_FILES,
     "    if not is_indexed or (time_entry and end_offset <= known):", "    if not is_indexed:",
     OF_LOST),
    ("index-is-believed", "an index entry between two batches does not mean that the log is damaged", LOST_FILES,
     "        if position == 0:\n            raise", "        raise", OF_LOST),
    ("removed-before-the-epochs", "files of deleted segments are unlinked after the epoch checkpoint is written",
     RETENTION, "    if log.has_waiting_removals or (", "    if False and (",
     OF_LOST),
    ("named-behind-a-gap", "a compaction gap is not a missing end of the log", LOG,
     "            if segment.size_bytes and is_near:", "            if False:", OF_LOST),
    ("epochs-of-an-emptied-log", "a start writes the epochs that it found before it removes files",
     RECOVERY, "    if epochs.is_dirty or (checkpoint is not None and checkpoint.entries != epochs.entries):",
     "    if epochs.is_dirty:", OF_LOST),
    ("epochs-of-what-was", "a log that starts empty knows no old epochs", RECOVERY,
     "    if checkpoint is not None and checkpoint.epochs:", "    if False:", OF_LOST),
    ("epochs-below-the-first-batch", "no epoch begins below the first segment", LOG,
     "                self._forget_epochs_below(item.base_offset)\n            base_offset",
     "                pass\n            base_offset", OF_LOST),
    ("retention-above-the-watermark", "retention deletes committed records only", RETENTION,
     "        if high_watermark < upper_offset or", "        if False or", OF_LOG),
    ("repeat-refused", "a repeated batch is answered even while appends are refused", SEQUENCES,
     "        duplicate = producers.duplicate_of(header) if header.producer_id >= 0 else None",
     "        duplicate = None", OF_REFUSED),
    ("refusal-makes-a-gap", "batches after a refused one are refused for the same reason", SEQUENCES,
     "        is_explained = is_gap and", "        is_explained = False and", OF_REFUSED),
    ("refusals-outlive-the-leader", "a new leader starts without refused sequences", REPLICA,
     "                self.refused.clear()\n", "", OF_REFUSED),
    ("quota-of-the-least-particular", "the most specific quota applies", QUOTAS,
     "        for entity, shares in _candidates(user, client_id):",
     "        for entity, shares in reversed(_candidates(user, client_id)):", OF_QUOTAS),
    ("quota-forgets-its-window", "usage counts for the whole quota window", QUOTAS,
     "        while samples and samples[0][0] <= oldest_ms:", "        while len(samples) > 1:",
     OF_QUOTAS),
    ("pause-not-kept", "a client above its quota is not read from", "kvorum/broker/network/connection.py",
     "            or self._unmute_timer is not None\n", "", OF_QUOTAS),
    ("coordinator-answers-early", "a coordinator answers only with replicated records", TERM,
     "        while parked and parked[0].required_offset <= high_watermark:",
     "        while parked:", OF_HOST),
    ("coordinator-term-outlives-epoch", "a new leader epoch is a new term", HOST,
     "                and context.leader_epoch == core.leader_epoch\n", "", OF_HOST),
    ("coordinator-takes-with-too-few", "with too few in sync nothing is begun", TERM,
     "            if error != ErrorCode.NONE or self.replica.is_offline:",
     "            if self.replica.is_offline:", OF_HOST),
    ("coordinator-serves-half-a-log", "a loading coordinator accepts no requests", TERM,
     "        if self.state is ShardState.LOADING:\n            return ErrorCode.COORDINATOR_LOAD",
     "        if self.state is None:\n            return ErrorCode.COORDINATOR_LOAD", OF_HOST),
    ("damage-served-for-ever", "a leader verifies batches that a follower fetches twice", FETCHING,
     "        services.reread_verification.suspect(replica, remote, asked)\n", "        pass\n", OF_CHECKS),
    ("damage-forgotten", "a damaged replica is offline at later starts too", STORE,
     "        if self._disk.exists(mark):", "        if False:", OF_CHECKS),
    ("refusal-without-a-pause", "a follower that refuses records fetches at growing intervals", SESSION,
     "        if not followed.refused:\n", "        if True:\n", OF_CHECKS),
    ("session-outlives-the-registration", "a broker that registered again opens a new fetch session", SESSIONS,
     "        if state.replica_epoch != request.replica_epoch:\n", "        if False:\n",
     OF_SESSIONS),
    ("asks-while-all-pause", "no fetch is sent while all partitions are paused", FETCHER,
     "        if self.session.is_paused and not forgotten:\n",
     "        if self.session.is_empty and not forgotten:\n", OF_SESSION),
    ("waits-for-whom-the-metadata-took-out", "the high watermark does not wait for a dead broker", CORE,
     "            and not self._is_leaving(replica_id, remote)\n", "", OF_CORE),
    ("start-told-before-it-is-durable", "a follower reports only a durable log start", STARTS,
     "        if durable >= start_offset:", "        if True:", OF_DELETION),
)  # fmt: skip

MUTANTS = tuple(
    Mutant(name, rule, path, old, new, tests=tests, world="partitions")
    for name, rule, path, old, new, tests in _RULES
)
