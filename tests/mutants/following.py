"""Mutants of what followers begin with, what retention leaves, and what outlives its connection."""

from __future__ import annotations

from tests.mutants.model import Mutant

LOG = "storage/log.py"
LOG_BASE = "storage/log_base.py"
SESSION = "broker/replica_session.py"
REPLICA = "broker/replica.py"
FETCHING = "broker/fetching.py"
CONNECTION = "broker/connection.py"

OF_START = ("tests/test_storage/test_start_within_batch.py",)
OF_FOLLOWING = ("tests/test_broker/test_following.py",)
OF_PARTITION = ("tests/test_broker/test_partition.py",)
OF_REFUSED = ("tests/test_broker/test_refused_sequences.py",)
OF_PRODUCERS = ("tests/test_storage/test_producers_kept.py",)
OF_VERIFICATION = ("tests/test_transactions/test_verification.py",)
OF_CONNECTIONS = ("tests/test_broker/test_connections.py",)
OF_SERVED = ("tests/test_broker/test_served_checks.py",)
OF_DIRECTORIES = ("tests/test_broker/test_log_directories.py",)
OF_LAUNCH = ("tests/test_launch/test_log_directories.py",)
OF_TABLE = ("tests/test_metadata/test_config_table.py", "tests/test_metadata/test_configs.py")
OF_DUMP = ("tests/test_storage/test_small_files.py",)

_RULES: tuple[tuple[str, str, str, str, str, tuple[str, ...]], ...] = (
    # A log that begins within a batch.
    ("around-the-start-is-here", "a follower takes the batch around its start", SESSION,
     "            if read_header(view, part.position).end_offset > replica.log.end_offset:\n",
     "            if read_header(view, part.position).base_offset >= replica.log.end_offset:\n",
     OF_FOLLOWING),
    ("start-in-the-first-name", "a log start above its first file is checkpointed first", REPLICA,
     "core.partition_id, base_offset, log.start_offset)\n",
     "core.partition_id, base_offset, base_offset)\n",
     ("tests/test_broker/test_truncation.py",)),
    ("start-falls-before-the-cut", "a log's start falls when all below it is gone", REPLICA,
     "        self.lower_checkpoints(core.topic, core.partition_id, offset, start_offset)\n        yield",
     "        self.lower_checkpoints(core.topic, core.partition_id, offset, offset)\n        yield",
     ("tests/test_sim_partitions/test_seeds.py",)),
    ("start-falls-to-the-batch", "a log that takes the batch begins where it began", LOG,
     "        self._start_offset = start_offset\n        appended", "        appended", OF_START),
    ("batch-in-no-file", "the first file is named by the batch", LOG,
     "        if not self._segments.items:\n            self._segments.add(base",
     "        if False:\n            self._segments.add(base", OF_START),
    ("epoch-below-the-start", "epochs begin where the log does", LOG,
     "        self.epochs.truncate_from_start(start_offset)\n        return appended",
     "        return appended", OF_START),
    ("below-a-log-with-records", "only an empty log begins anew below", LOG,
     "        if start_offset != self._end_offset or self.size_bytes or len",
     "        if start_offset != self._end_offset or len", OF_START),
    ("below-what-it-holds", "the batch reaches to the start", LOG,
     "header.base_offset < start_offset <= header.last_offset",
     "header.base_offset < start_offset", OF_START),
    ("cut-before-the-names", "what lies behind a cut is gone before the cut is durable", LOG,
     "        segments.sync_directories()\n        active.cut(offset)\n",
     "        active.cut(offset)\n", OF_START),
    ("claims-a-part-of-a-batch", "a flush claims no part of a batch that was cut", LOG,
     "        segments.stop_derived_files(self._end_offset)\n        self._start_offset = min",
     "        self._start_offset = min", OF_START),
    # Retention.
    ("unflushed-retired", "a segment goes once it was flushed", LOG_BASE,
     "        count = min(count, len(segments.sealed_prefix()))\n", "", OF_START),
    ("producers-retired", "a snapshot is there before older records go", LOG_BASE,
     "            segments.keep_producers(count, self.producers)\n", "", OF_START),
    ("renamed-is-durable", "a first file counts when its folder was fsynced", LOG_BASE,
     "0 if segments.has_unsynced_names or not segments.bases", "0 if not segments.bases", OF_START),
    ("flushing-is-flushed", "nor while the flush is under way", "storage/segments.py",
     "        return bool(self._dirty_directories) or self._ticket is not None\n",
     "        return bool(self._dirty_directories)\n", OF_START),
    # What was read is less than what is there.
    ("short-is-sound", "a file that became shorter is damaged", "storage/batch_walk.py",
     "    while at < found.length:\n", "    while at < len(data):\n", (*OF_START, *OF_SERVED)),
    ("damage-behind-ends-the-broker", "damage behind an answer costs the replica", FETCHING,
     "        except (OSError, CorruptData) as failure:\n            # What lies behind",
     "        except ZeroDivisionError as failure:\n            # What lies behind", OF_SERVED),
    # Leaders and followers.
    ("throttled-hears-nothing", "a throttled follower hears where histories part", FETCHING,
     "            if answer is not None and not parked.is_full and not _must_be_told(watched, answer):\n"
     "                continue  # and dirty as it was\n",
     "            answer = None\n            if not parked.is_full:\n                continue\n",
     OF_FOLLOWING),
    ("epoch-fails-who-waits", "a leader that goes on refuses nobody", REPLICA,
     "            if has_led:\n", "            if False:\n", OF_FOLLOWING),
    ("proposed-in-its-new-epoch", "a proposal is sent again as it was made", "broker/partition.py",
     "isinstance(self.isr_state, isr.Committed) else self._proposal\n",
     "isinstance(self.isr_state, isr.Committed) else self._propose(self.isr_state)\n", OF_PARTITION),
    ("answer-before-the-metadata", "the metadata alone takes a member out", "broker/partition.py",
     "APPLIED and not state.isr.issubset(answer.isr):", "APPLIED and False:", OF_PARTITION),
    ("minimum-after-the-isr", "a minimum counts before the ISR that comes with it",
     "broker/replicas.py", "            replica.core.min_insync_replicas = minimum\n",
     "            del minimum\n", OF_FOLLOWING),
    ("nothing-is-known", "a new leader knows what lies below its watermark", "broker/api/list_offsets.py",
     "    if not is_end_known and (found is None or found[1] >= end_offset):\n",
     "    if not is_end_known:\n", OF_FOLLOWING),
    ("largest-of-the-committed", "the largest timestamp may be above the watermark",
     "broker/api/list_offsets.py",
     "log.offset_of_max_timestamp(end_offset if is_end_known else core.end_offset)",
     "log.offset_of_max_timestamp(end_offset)", OF_FOLLOWING),
    ("repeat-without-time", "a repeat is told the time of its append", REPLICA,
     "duplicate.timestamp_ms if self.config.is_log_append_time else -1", "-1", OF_FOLLOWING),
    ("first-batch-overtaken", "a producer begins with what was refused",
     "broker/refused_sequences.py",
     "    if is_unknown and refused.is_behind(header)", "    if False and refused.is_behind(header)",
     OF_REFUSED),
    ("refused-for-ever", "what came again holds nobody back", "broker/refused_sequences.py",
     "            refused.pop(_of(header), None)\n", "", OF_REFUSED),
    ("forgotten-in-a-new-epoch", "the same leader remembers what it refused", REPLICA,
     "        has_led = self.core.is_leader\n", "        has_led = False\n", OF_REFUSED),
    ("given-up-holds-back", "who gives a batch up goes on", "broker/refused_sequences.py",
     "        if refused.get(batch):\n", "        if False:\n", OF_REFUSED),
    ("given-up-at-once", "what is behind waits again with the earlier one",
     "broker/refused_sequences.py", "            refused[other] = False\n", "            pass\n",
     OF_REFUSED),
    ("noted-for-another-leader", "what waited for another leader is no earlier batch",
     "broker/transactions/verification.py",
     "        self._first_sequences.clear()\n", "", OF_VERIFICATION),
    ("noted-beyond-its-marker", "a marker ends what is known of its transaction",
     "broker/transactions/verification.py",
     "        self._first_sequences.pop((producer_id, producer_epoch - is_epoch_raised), None)\n",
     "", OF_VERIFICATION),
    ("producers-cleaned-away", "a snapshot is there before a clean takes batches", LOG_BASE,
     "        self._segments.keep_producers(len(cleaned), self.producers)\n", "",
     ("tests/test_storage/test_cleaning_histories.py",)),
    ("snapshot-above-ignored", "a start takes from a snapshot what no batch tells",
     "storage/batch_walk.py",
     "                self.producers.complete(read_snapshot(self._disk, path))\n",
     "                pass\n", OF_PRODUCERS),
    ("damaged-snapshot-counts", "a snapshot that is damaged keeps no producers",
     "storage/segments.py", "                    read_snapshot(self._disk, self._snapshot_path(offset))\n",
     "", OF_PRODUCERS),
    ("snapshot-of-the-end", "a snapshot tells of nothing behind its offset", "storage/segments.py",
     "producers.until(offset))", "producers)", OF_PRODUCERS),
    ("snapshot-takes-the-window", "a snapshot takes no batches away", "storage/producer_state.py",
     "            if entry is None or not entry.batches or known.epoch > entry.epoch:\n",
     "            if True:\n", OF_PRODUCERS),
    ("any-first-sequence", "an epoch of one transaction begins with 0",
     "broker/transactions/verification.py",
     "    if not is_known and version >= FIRST_ADDING_VERSION and header.base_sequence:\n",
     "    if False:\n", OF_VERIFICATION),
    ("batch-over-the-end-passed-over", "a batch that begins below the end is refused",
     "broker/replica_session.py",
     "            if read_header(view, part.position).end_offset > replica.log.end_offset:\n",
     "            if read_header(view, part.position).base_offset >= replica.log.end_offset:\n",
     ("tests/test_broker/test_replica_session.py",)),
    # Connections.
    ("long-requests-come-first", "who sent more long requests comes behind the others", CONNECTION,
     "            self._loop.call_later(0, self._go_on)\n",
     "            self._loop.call_soon(self._go_on)\n", OF_CONNECTIONS),
    ("long-requests-in-a-row", "after a long request the loop goes round", CONNECTION,
     "                    server.turn.spend()\n", "                    pass\n", OF_CONNECTIONS),
    ("unread-thrown-away", "what came before the end is read after a pause", CONNECTION,
     "        return not (is_paused and (self._buffer.has_more or _unread_bytes(self._fd)))\n",
     "        return True\n", OF_CONNECTIONS),
    ("paused-is-there", "who closed and left nothing is gone", CONNECTION,
     "        return not (is_paused and (self._buffer.has_more or _unread_bytes(self._fd)))\n",
     "        return not is_paused\n", OF_CONNECTIONS),
    ("waits-for-the-gone", "a deletion of a closed connection is over",
     "broker/api/delete_records.py", "    if context.slot.connection.is_closed:\n",
     "    if False:\n", OF_CONNECTIONS),
    # Directories.
    ("bad-message-is-ours", "a checksum of the file system is the disk's error",
     "broker/log_directories.py", "        errno.EMFILE, errno.ENFILE,",
     "        errno.EBADMSG, errno.EMFILE, errno.ENFILE,", OF_DIRECTORIES),
    ("only-eio-is-the-files", "a file that cannot be read fails its directory", CONNECTION,
     "            if failure.errno not in _OF_SOCKETS:\n",
     "            if failure.errno == errno.EIO:\n", OF_DIRECTORIES),
    ("sockets-fail-directories", "a socket's error is no file's", CONNECTION,
     "                file.pread(count, send.position)\n                return\n",
     "                raise failure\n", OF_DIRECTORIES),
    ("damaged-identity-stops-all", "a further directory with a damaged identity is passed over",
     "launch/log_directories.py", "        except CorruptData as damage:\n",
     "        except ZeroDivisionError as damage:\n", OF_LAUNCH),
    ("lost-and-found-is-somebodys", "a new file system is empty", "launch/identity.py",
     '"logs", "lost+found")', '"logs")', OF_LAUNCH),
    ("denied-without-a-word", "a directory that cannot be entered is named",
     "launch/log_directories.py", "        with suppress(OSError):\n",
     "        with suppress(ZeroDivisionError):\n", OF_LAUNCH),
    # Configs and dumps.
    ("empty-items", "a list has no empty items", "metadata/configs/model.py",
     '        items = [item.strip() for item in text.split(",")] if text else []\n',
     "        items = list_items(text)\n", OF_TABLE),
    ("throttled-item-missing", "of throttled replicas empty items are let in, as in Kafka",
     "metadata/configs/model.py", "            named = [item for item in items if item]\n",
     "            named = items\n", OF_TABLE),
    ("every-and-one", "* stands alone", "metadata/configs/model.py",
     '            if named != ["*"] and any', '            if "*" not in named and any', OF_TABLE),
    ("lags-contradict", "lags fit each other when they are changed", "metadata/decide/configs.py",
     "        conflict = topic_configs_conflict(wanted)\n", "        conflict = None\n", OF_TABLE),
    ("lags-contradict-at-first", "and when the topic is made", "metadata/decide/topics.py",
     "    conflict = topic_configs_conflict(dict(topic.configs))\n", "    conflict = None\n", OF_TABLE),
    ("senseless-lag-stops-the-controller", "a value of another version contradicts nothing",
     "metadata/config_keys.py",
     "    if not isinstance(low, int) or not isinstance(high, int) or low <= high:\n",
     "    if low <= high:\n", OF_TABLE),
    ("damage-is-no-fault", "a dump with damage is no success", "storage/dump_indexes.py",
     "            self.damage\n            or ", "            ", OF_DUMP),
    ("damaged-has-no-records", "records of a damaged batch are shown", "storage/dump.py",
     "        if deep_iteration:\n            try:", "        if deep_iteration and is_valid:\n            try:",
     OF_DUMP),
)  # fmt: skip

MUTANTS = tuple(
    Mutant(name, rule, path, old, new, tests=tests, world="partitions")
    for name, rule, path, old, new, tests in _RULES
)
