"""Mutants of the upkeep of folders, checkpoints and file descriptors around the logs."""

from __future__ import annotations

from tests.mutants.model import Mutant

MAINTENANCE = "kvorum/broker/manager/background_jobs.py"
OFFSETS = "kvorum/broker/log_dirs/offset_checkpoints.py"
STORE = "kvorum/broker/log_dirs/replica_store.py"
RECOVERY = "kvorum/storage/recovery/recovery.py"

CONNECTION = "kvorum/broker/network/connection.py"
FETCHING = "kvorum/broker/fetch/leader_fetch.py"

OF_ANSWERS = ("tests/test_broker/test_answers.py",)
OF_CONNECTIONS = ("tests/test_broker/test_connections.py",)
OF_SESSION = ("tests/test_broker/test_replica_session.py",)
OF_QUOTAS = ("tests/test_broker/test_client_quotas.py",)
OF_MAINTENANCE = ("tests/test_broker/test_maintenance.py",)
OF_OFFSETS = ("tests/test_broker/test_offset_checkpoints.py",)
OF_PLACES = ("tests/test_broker/test_replica_places.py",)
OF_FOLDERS = ("tests/test_broker/test_misplaced_folders.py",)
OF_HOST = ("tests/test_broker/test_coordinator_host.py",)
OF_CONTRADICTIONS = ("tests/test_storage/test_contradictions.py",)
OF_LOG = ("tests/test_storage/test_log.py",)

_RULES: tuple[tuple[str, str, str, str, str, tuple[str, ...]], ...] = (
    # On a timer.
    ("collected-before-the-wait", "a directory is listed only when its turn comes",
     MAINTENANCE,
     "        for log_dir in self._directories.online:\n            if not log_dir.is_offline:\n"
     "                yield log_dir, [r for r in self._registry.with_files() if r.log_dir is log_dir]\n",
     "        listed = list(self._registry.with_files())\n"
     "        for log_dir in self._directories.online:\n"
     "            yield log_dir, [r for r in listed if r.log_dir is log_dir]\n", OF_MAINTENANCE),
    ("damage-ends-the-broker", "a flush that cannot begin costs its replica", MAINTENANCE,
     "        except (OSError, CorruptData) as failure:\n            # begin_flush reads",
     "        except ZeroDivisionError as failure:\n            # begin_flush reads", OF_MAINTENANCE),
    ("deleted-log-stays-open", "a flush that outlives its log lets the files go", MAINTENANCE,
     "            replica.log.end_flush(ticket)\n",
     "            if not replica.is_closed:\n                replica.log.end_flush(ticket)\n",
     OF_MAINTENANCE),
    ("checkpoints-for-nothing", "an offline replica is not flushed", MAINTENANCE,
     "            if not replica.is_offline and replica.log.needs_flush(now_ms):\n",
     "            if replica.log.needs_flush(now_ms):\n", OF_MAINTENANCE),
    ("cleaner-ends-the-broker", "a disk failure in the cleaner's check does not end the broker", "kvorum/broker/manager/log_cleaner.py",
     "        except OSError as failure:\n            self._on_failed(replica, failure)\n"
     "        return None",
     "        except ZeroDivisionError as failure:\n            self._on_failed(replica, failure)\n"
     "        return None", OF_MAINTENANCE),
    ("damage-stops-the-stop", "a clean shutdown closes all sound logs", STORE,
     "            except CorruptData as damage:\n                _log.error(\"%s is not closed",
     "            except ZeroDivisionError as damage:\n                _log.error(\"%s is not closed",
     OF_MAINTENANCE),
    ("failed-flush-stays-open", "a log that fails in a flush closes its files",
     "kvorum/storage/log/segments.py",
     "        self._is_flush_running = False\n        self._close_postponed()\n", "        pass\n",
     OF_CONTRADICTIONS),
    ("held-back-for-ever", "the high watermark is checked without a fetch too", MAINTENANCE,
     "            if core.high_watermark < core.end_offset and core.raise_high_watermark(now_ms):\n",
     "            if False and core.raise_high_watermark(now_ms):\n", OF_MAINTENANCE),
    ("own-start-untold", "a follower reports a log start that its own retention moved", MAINTENANCE,
     "                    if replica.log.start_offset > before and not core.is_leader:\n",
     "                    if False:\n", OF_MAINTENANCE),
    ("removal-forgotten", "a failed removal is retried", STORE,
     "            self._to_remove += left\n", "            pass\n", OF_MAINTENANCE),
    ("offline-waits-for-its-deadline", "a parked acks=all of an offline replica is answered at once",
     "kvorum/broker/partition/replica.py",
     "        if error != ErrorCode.NONE:\n            # The disk failed after this append",
     "        if False:\n            # The disk failed after this append", OF_MAINTENANCE),
    # Connections.
    ("vanished-client-ends-the-broker", "any error of a socket is its connection's", CONNECTION,
     "        except OSError as failure:\n            # Includes ETIMEDOUT",
     "        except ConnectionError as failure:\n            # Includes ETIMEDOUT", OF_CONNECTIONS),
    ("burst-holds-the-loop", "a client's burst lets others in between", CONNECTION,
     "            if now_s > until_s:\n",
     "            if False:\n", OF_CONNECTIONS),
    ("waiting-without-bound", "the waiting requests of a client are bounded", CONNECTION,
     "            or self.cold_requests >= COLD_REQUESTS_MAX\n", "", OF_CONNECTIONS),
    ("unsent-answers-uncounted", "answers that wait for an earlier one count toward the limit", CONNECTION,
     "        connection.count_output(parts)\n", "", OF_ANSWERS),
    ("answers-owed-are-lost", "pending answers are sent before a connection is closed", CONNECTION,
     "            self.flush()\n            self.close(f\"protocol", "            self.close(f\"protocol",
     OF_ANSWERS),
    ("sentence-ends-the-broker", "an error message is truncated to the version's limit",
     "kvorum/wire/primitives.py",
     "    if len(encoded) > _INT16_MAX:\n", "    if False:\n", OF_ANSWERS),
    ("answer-ends-the-broker", "an answer that cannot be encoded closes its connection",
     "kvorum/broker/api/context.py",
     "        except (struct.error, ArithmeticError, MemoryError, TypeError, ValueError) as error:\n",
     "        except ArithmeticError as error:\n", OF_ANSWERS),
    ("waits-though-it-has-all", "a fetch whose answer cannot grow by waiting is answered at once", FETCHING,
     "    return size >= parked.min_bytes\n", "    return False\n", OF_ANSWERS),
    ("waits-before-a-segment", "bytes before the end of a segment are sent at once", FETCHING,
     "        if has_more:\n", "        if False:\n", OF_ANSWERS),
    ("parked-session-evicted", "a fetch session with a parked fetch is not evicted",
     "kvorum/broker/fetch/fetch_sessions.py",
     "            if state.parked is not None:\n                continue",
     "            if False:\n                continue",
     ("tests/test_broker/test_waiters_and_sessions.py",)),
    ("waits-for-nobody", "a deletion is not waited for after its client has gone",
     "kvorum/broker/api/delete_records.py",
     "    context.slot.parked = pending\n", "", OF_CONNECTIONS),
    ("large-batch-not-replicated", "a follower accepts batches of any size from its leader", "kvorum/broker/fetch/follower_fetch.py",
     "ANSWER_BYTES_MAX = (1 << 31) - 1", "ANSWER_BYTES_MAX = 77_594_624", OF_CONNECTIONS),
    ("second-session", "one request at a time opens a session", "kvorum/broker/fetch/follower_fetch_session.py",
     "        return self._opening > self._answered\n",
     "        return self._opening > self._answered and self._answered == self._opening - 1\n",
     OF_SESSION),
    ("request-pause-without-bound", "the throttle time for request_percentage is at most a second (KIP-124)",
     "kvorum/broker/quotas/client_quotas.py",
     "        return min(pause_ms, self._sample_ms) if kind is QuotaKind.REQUEST else pause_ms\n",
     "        return pause_ms\n", OF_QUOTAS),
    ("epoch-of-an-offline-replica", "an offline replica answers 56",
     "kvorum/broker/api/offset_for_leader_epoch.py",
     "        if replica.is_offline:\n", "        if False:\n", OF_CONNECTIONS),
    # Checkpoints.
    ("start-of-a-log-that-went", "the log start of a deleted log is not checkpointed",
     "kvorum/broker/fetch/log_start_ack.py",
     " if not (replica.is_offline or replica.is_closed)]", "]", OF_OFFSETS),
    ("forgotten-too-early", "a new log starts when no thread writes to its predecessor", OFFSETS,
     "        with self._lock:\n            # A thread that writes",
     "        if True:\n            # A thread that writes", OF_OFFSETS),
    ("half-cut-comes-back", "what an offline replica says is not collected", OFFSETS,
     "            if replica.is_offline:\n                continue\n", "", OF_OFFSETS),
    # Folders.
    ("one-of-two-copies", "of two copies of a replica none is opened without the metadata", "kvorum/broker/log_dirs/log_directories.py",
     "        if len(found) < 2:\n", "        if told == UNASSIGNED_DIRECTORY or len(found) < 2:\n",
     OF_PLACES),
    ("older-copy-leads", "a copy does not replace a directory that cannot be read",
     "kvorum/broker/log_dirs/log_directories.py",
     "        if not is_named or (own is not None and not own.is_offline):\n", "        if True:\n",
     OF_PLACES),
    ("contested-copy-removed", "what may be the replica is not removed", STORE,
     "        self._contested.add(name)\n\n    def missing_reason", "        pass\n\n    def missing_reason",
     OF_PLACES),
    ("exchanged-folders-removed", "a folder of an existing topic is not removed for its name", STORE,
     "        if owner is not None:\n            raise", "        if False:\n            raise",
     OF_FOLDERS),
    ("copies-removed", "what no topic of that name asks for may be a copy", STORE,
     "            if owner is not None and name not in self._contested:",
     "            if False and name not in self._contested:", OF_FOLDERS),
    ("deleted-log-appended-to", "no records are appended to a deleted replica",
     "kvorum/broker/partition/replica.py",
     "        if self.is_closed:\n            return ErrorCode.NOT_LEADER_OR_FOLLOWER\n", "",
     OF_FOLDERS),
    ("nameless-though-committed", "a name that no power cut can have taken is missed", STORE,
     "        if self.checkpoints.required_offset(key) > 0:\n",
     "        if self.checkpoints.recovery_point(key) > 0:\n", OF_FOLDERS),
    ("watermark-of-an-earlier-boot", "what the power took is not missed later", STORE,
     "        self.checkpoints.drop(\n            _keys_of(name for name in nameless if",
     "        _ = (\n            _keys_of(name for name in nameless if", OF_FOLDERS),
    # Starts.
    ("gap-of-the-epoch-before", "a gap at the log start belongs to the newest epoch before it",
     "kvorum/storage/files/leader_epochs.py",
     "                if is_first and other_start < low < start:\n",
     "                if is_first and other_start < low < start and other < epoch:\n",
     OF_CONTRADICTIONS),
    ("epochs-believed", "batches take precedence over the epoch checkpoint", "kvorum/storage/recovery/epoch_recovery.py",
     "    return epoch == leader_epoch\n", "    return True\n", OF_CONTRADICTIONS),
    ("removed-then-refused", "a log is refused before a file of it goes", "kvorum/storage/recovery/batch_walk.py",
     "            if segment.end_offset < self._recovery_point:\n                # Fail before",
     "            if False:\n                # Fail before", OF_CONTRADICTIONS),
    ("refused-log-stays-open", "a log that is refused lets the files go", RECOVERY,
     "            close_files(segments)\n            raise\n", "            raise\n",
     OF_CONTRADICTIONS),
    ("sealed-segments-stay-open", "a start leaves no sealed segment open", RECOVERY,
     "            close_files([segment])\n", "            pass\n", OF_CONTRADICTIONS),
    ("start-above-a-closed-end", "a cleanly closed log does not end below its log start",
     RECOVERY, "    if is_clean:\n        raise CorruptData(\n            directory,\n",
     "    if False:\n        raise CorruptData(\n            directory,\n", OF_CONTRADICTIONS),
    ("unreadable-is-missing", "a file that cannot be read is not a missing file", "kvorum/runtime/disk.py",
     "        except (FileNotFoundError, NotADirectoryError):\n            return False\n",
     "        except OSError:\n            return False\n", OF_CONTRADICTIONS),
    ("damage-loaded", "a coordinator verifies the records that it loads", "kvorum/broker/coordinator/loading.py",
     "        if damage is not None:\n", "        if False:\n", OF_HOST),
    ("segment-named-far-from-its-end", "a segment is named by the log's end while that is near",
     "kvorum/storage/log/log.py",
     "            is_near = item.last_offset - self._end_offset <= RELATIVE_OFFSET_MAX\n",
     "            is_near = item.last_offset - segment.base_offset <= RELATIVE_OFFSET_MAX\n",
     OF_LOG),
)  # fmt: skip

MUTANTS = tuple(
    Mutant(name, rule, path, old, new, tests=tests, world="partitions")
    for name, rule, path, old, new, tests in _RULES
)
