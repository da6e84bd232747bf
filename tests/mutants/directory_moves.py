"""Mutants of moves between the data directories of a broker, and of cordons."""

from __future__ import annotations

from tests.mutants.model import Mutant

STEPS = "kvorum/broker/log_dirs/core/move_steps.py"
RULES = "kvorum/broker/log_dirs/core/move_rules.py"
MOVE = "kvorum/broker/manager/directory_move.py"
MOVES = "kvorum/broker/manager/directory_moves.py"
FAILURES = "kvorum/broker/manager/failure_handling.py"
DIRECTORIES = "kvorum/broker/log_dirs/log_directories.py"

OF_RULES = ("tests/test_broker/test_move_rules.py",)
OF_CRASHES = ("tests/test_broker/test_directory_move_crashes.py",)
_MOVES_TESTS = "tests/test_broker/test_directory_moves.py"
OF_MOVES = (_MOVES_TESTS,)
OF_EPOCHS = (f"{_MOVES_TESTS}::test_leader_epochs_without_records_are_known_after_the_move",)
OF_PRODUCERS = (f"{_MOVES_TESTS}::test_producers_whose_batches_are_gone_are_known_after_the_move",)
OF_ROOM = (f"{_MOVES_TESTS}::test_a_destination_without_room_ends_the_move_and_stays_online",)
OF_RESTARTS = (f"{_MOVES_TESTS}::test_a_move_goes_on_after_a_restart",)
OF_CORDONS = (
    "tests/test_broker/test_cordoned_directories.py",
    "tests/test_metadata/test_cordons.py",
)

_RULES: tuple[tuple[str, str, str, str, str, tuple[str, ...]], ...] = (
    ("move-misses-truncations", "a truncation of the current log is followed", STEPS,
     "        end_offset = min(end_offset, facts.cut_offset)\n", "        pass\n", OF_RULES),
    ("move-flushes-too-few", "fsynced records are copied before the flush", STEPS,
     " or facts.future_end_offset < facts.durable_end_offset:\n", ":\n", OF_RULES),
    ("move-swaps-unflushed", "the future log is as durable as the current one", STEPS,
     "    is_flushed = facts.future_durable_end_offset >= facts.durable_end_offset\n",
     "    is_flushed = True\n", OF_RULES),
    ("move-forgets-deleted", "the log start is saved before the swap", STEPS,
     "    if facts.saved_start_offset != start_offset:\n", "    if False:\n", OF_RULES),
    ("move-untold", "the metadata names the destination before the swap", STEPS,
     "    if not facts.is_told:\n", "    if False:\n", OF_RULES),
    ("move-common-by-length", "logs are compared by their leader epochs", STEPS,
     "        if ours == theirs:\n", "        if True:\n", OF_RULES),
    ("move-promotes-the-unfinished", "a future replica is promoted only after half a swap", RULES,
     "    if currents or told is None or not put_aside:\n", "    if currents or told is None:\n",
     OF_RULES),
    ("move-half-undone", "half a swap is completed", MOVES,
     "        if found is None:\n            return\n        log_dir = items[found.log_dir]\n",
     "        if True:\n            return\n        log_dir = items[found.log_dir]\n", OF_CRASHES),
    ("move-keeps-its-epochs", "the log takes over epochs and producers at the swap", MOVE,
     ", equal=current)\n", ")\n", OF_EPOCHS),
    ("move-loses-producers", "a snapshot keeps producers whose batches are gone", MOVE,
     "        if log.producers.ends() != current.producers.ends():\n", "        if False:\n",
     OF_PRODUCERS),
    ("move-not-throttled", "a throttle holds for the last records too", MOVE,
     "        if is_level or quota.room(now_ms) > 0:\n", "        if True:\n", OF_MOVES),
    ("moved-log-uncompacted", "the cleaner's offset moves with the log", MOVE,
     "        if cleaned_offset is not None:\n", "        if False:\n", OF_MOVES),
    ("moving-log-compacted", "a log that moves is not compacted",
     "kvorum/broker/manager/log_cleaner.py",
     "        if replica.future is not None:\n", "        if False:\n", OF_MOVES),
    ("moved-log-closed-at-once", "fetches that began before the swap are sent", MOVES,
     "        self._retired.append(_Retired(due_ms, log_dir, log, aside, replica.log_dir))\n",
     "        log.abandon()\n        log_dir.store.remove_later(aside)\n", OF_MOVES),
    ("target-failure-untold", "the metadata hears that the replica has not moved", FAILURES,
     "            if is_moving:\n                self._end_move(replica)\n", "", OF_MOVES),
    ("full-target-fails", "a move without room fails no directory", MOVES,
     "        if is_full(failure) or not is_disk_fault(failure):\n",
     "        if not is_disk_fault(failure):\n", OF_ROOM),
    ("moves-forgotten-at-start", "a start continues the moves that it finds", MOVES,
     "        if chosen is None:\n            return\n", "        if True:\n            return\n",
     OF_RESTARTS),
    ("cordon-not-obeyed", "a cordoned directory takes no new replicas", DIRECTORIES,
     "        usable = [item for item in self.online if not item.is_cordoned] or self.online\n",
     "        usable = self.online\n", OF_CORDONS),
    ("cordoned-broker-placed", "a broker that has cordoned all gets no replicas",
     "kvorum/metadata/controller/decide/topics.py",
     "        if not is_cordoned(image, broker.broker_id)\n", "", OF_CORDONS),
    ("cordoned-broker-assigned", "an assignment to a cordoned broker is refused",
     "kvorum/metadata/controller/decide/topics.py",
     "        elif cordoned := [r for r in replicas if is_cordoned(image, r)]:\n",
     "        elif cordoned := []:\n", OF_CORDONS),
    ("cordoned-broker-reassigned", "a reassignment to a cordoned broker is refused",
     "kvorum/metadata/controller/decide/reassignment.py",
     "    if cordoned:\n", "    if False:\n", OF_CORDONS),
    ("cordoned-replica-stuck", "replicas on a cordoned broker may stay in a reassignment",
     "kvorum/metadata/controller/decide/reassignment.py",
     "if r not in partition.replicas and is_cordoned(image, r)]", "if is_cordoned(image, r)]",
     OF_CORDONS),
)  # fmt: skip

MUTANTS = tuple(
    Mutant(name, rule, path, old, new, tests=tests, has_simulator=False)
    for name, rule, path, old, new, tests in _RULES
)
