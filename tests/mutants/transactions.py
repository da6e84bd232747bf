"""Rules of transactions, at the coordinator and in the partitions, each with an edit that breaks it."""

from __future__ import annotations

from tests.mutants.model import Mutant

SHARD = "kvorum/broker/transactions/core/shard.py"
MACHINE = "kvorum/broker/transactions/core/machine.py"
MODEL = "kvorum/broker/transactions/core/model.py"
RECORDS = "kvorum/broker/transactions/core/records.py"
VERIFICATION = "kvorum/broker/partition/core/verification.py"
BOOK = "kvorum/broker/transactions/core/marker_book.py"
MARKING = "kvorum/broker/transactions/marking.py"
GATE = "kvorum/broker/transactions/produce_gate.py"
COORDINATORS = "kvorum/broker/transactions/coordinators.py"
OFFSETS = "kvorum/broker/transactions/offsets_gate.py"
TXN_OFFSET_COMMIT = "kvorum/broker/api/txn_offset_commit.py"
TERM = "kvorum/broker/coordinator/shard_context.py"
PRODUCERS = "kvorum/storage/files/producer_state.py"

BY_MODEL = ("tests/test_transactions/test_model.py",)
BY_RULES = ("tests/test_transactions/test_shard.py", "tests/test_transactions/test_ends.py")
BY_OFFSETS = ("tests/test_transactions/test_offsets.py",)
BY_SHARDS = ("tests/test_transactions/test_markers_in_shards.py",)
BY_RECORDS = ("tests/test_transactions/test_records.py",)
BY_TIMERS = ("tests/test_broker/test_shard_timers.py",)
BY_PARTITIONS = (
    "tests/test_transactions/test_verification.py",
    "tests/test_transactions/test_marker_book.py",
    "tests/test_transactions/test_partition_side.py",
)

_RULES = (
    # The end of a transaction.
    ("markers-before-the-decision-is-safe", "markers are sent after the decision is replicated", SHARD,
     "        effects: list[Effect] = [Append(records=(record,)), *answers]\n"
     "        if transaction.state in PREPARED:\n"
     "            effects.append(self._barrier(transaction))\n        return effects\n",
     "        effects: list[Effect] = [Append(records=(record,)), *answers]\n"
     "        if transaction.state in PREPARED:\n"
     "            barrier = self._barrier(transaction)\n"
     "            effects += self._on_prepared(\n"
     "                barrier.tag, Instant(0, transaction.updated_ms)\n            )\n"
     "        return effects\n", BY_MODEL),
    ("loaded-markers-without-barrier", "a loaded decision sends markers once it is replicated", SHARD,
     "        effects += [\n            self._barrier(transaction)\n"
     "            for transaction in self._transactions.values()\n"
     "            if transaction.state in PREPARED\n        ]\n",
     "        for transaction in list(self._transactions.values()):\n"
     "            if transaction.state in PREPARED:\n"
     "                tag = self._barrier(transaction).tag\n"
     "                effects += self._on_prepared(tag, now)\n", BY_MODEL),
    ("loaded-decision-forgotten", "a new coordinator completes every decision", SHARD,
     "            if transaction.state in PREPARED\n        ]\n        return effects",
     "            if transaction.state in PREPARED and False\n        ]\n        return effects",
     BY_MODEL),
    ("answered-before-it-is-replicated", "EndTxn is answered once its record is replicated", SHARD,
     "        answer = ShardAnswer(token=request.token, response=outcome.reply)",
     "        answer = ShardAnswer(token=request.token, response=outcome.reply, is_durable=False)",
     BY_MODEL),
    ("fenced-before-it-is-replicated", "a final error is sent once its records are replicated", SHARD,
     "    return ShardAnswer(token=token, response=response, is_durable=is_durable)",
     "    return ShardAnswer(token=token, response=response, is_durable=False)", BY_RULES),
    ("complete-at-the-first-news", "only the answer to the question completes", SHARD,
     "if self._marker_questions.get(fact.transactional_id) != fact.ask_id:",
     "if fact.transactional_id not in self._asked:", BY_RULES),
    ("decision-turned-round", "the outcome of a decided transaction cannot change", MODEL,
     "    State.COMPLETE_COMMIT: frozenset({State.PREPARE_COMMIT}),",
     "    State.COMPLETE_COMMIT: frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT}),", BY_RULES),
    ("opposite-end-is-a-repeat", "an EndTxn with the opposite outcome is refused", MACHINE,
     "    if transaction.state == State.EMPTY or transaction.is_committed != request.is_commit:",
     "    if transaction.state == State.EMPTY:", BY_MODEL),
    ("opposite-repeat-after-a-bump", "a repeat with the other outcome is refused", MACHINE,
     "            return _refused(ErrorCode.INVALID_TXN_STATE)\n        if transaction.producer_epoch >",
     "            pass\n        if transaction.producer_epoch >", BY_MODEL),
    ("last-epoch-handed-out", "no producer gets the epoch that is reserved for fences", MACHINE,
     "        if transaction.producer_epoch > EPOCH_EXHAUSTED:\n", "        if False:\n", BY_MODEL),
    ("repeat-not-known", "a repeated EndTxn gets the first answer", MACHINE,
     "        and request.producer_epoch + 1 == transaction.producer_epoch\n",
     "        and False\n", BY_RULES),
    ("end-without-epoch-bump", "each EndTxn raises the epoch (KIP-890)", MACHINE,
     "        producer_epoch=transaction.producer_epoch + 1,\n"
     "        last_producer_epoch=transaction.producer_epoch,\n        next_producer_id",
     "        last_producer_epoch=transaction.producer_epoch,\n        next_producer_id", BY_MODEL),
    ("repeat-after-an-older-client", "a fenced producer does not get its successor's epoch", MACHINE,
     "        and transaction.client_version >= EPOCH_BUMP_VERSION\n", "", BY_RULES),
    # Fencing.
    ("fence-in-the-same-epoch", "a fence raises the epoch", MACHINE,
     "        producer_epoch=transaction.producer_epoch + 1,\n"
     "        last_producer_epoch=NO_EPOCH,\n",
     "        last_producer_epoch=NO_EPOCH,\n", BY_RULES),
    ("init-without-raising", "a second producer with the same id gets a higher epoch", MACHINE,
     "    epoch, last_epoch = transaction.producer_epoch + 1, NO_EPOCH\n",
     "    epoch, last_epoch = transaction.producer_epoch, NO_EPOCH\n", BY_MODEL),
    ("old-epoch-adds", "a fenced producer cannot add partitions", MACHINE,
     "    if transaction.producer_epoch != request.producer_epoch:\n"
     "        return _refused(ErrorCode.PRODUCER_FENCED)\n    held",
     "    held", BY_MODEL),
    ("old-epoch-ends", "a fenced producer cannot end a transaction", MACHINE,
     "    if transaction.producer_epoch != request.producer_epoch:\n"
     "        return _refused(ErrorCode.PRODUCER_FENCED)\n    identity",
     "    identity", BY_MODEL),
    ("epochs-run-out", "an exhausted epoch leads to a new producer id", MODEL,
     "EPOCH_EXHAUSTED = EPOCH_MAX - 1", "EPOCH_EXHAUSTED = EPOCH_MAX", BY_MODEL),
    ("repeat-of-init-fenced", "a repeated InitProducerId is recognised (KIP-360)", MACHINE,
     "        elif request.producer_epoch == transaction.last_producer_epoch != NO_EPOCH:",
     "        elif False:", BY_RULES),
    # Partitions and time.
    ("added-behind-the-decision", "no partition is added to a decided transaction", MACHINE,
     "    if transaction.state in PREPARED:\n"
     "        return _refused(_of_prepared(transaction, request.producer_id,"
     " request.producer_epoch))\n    if transaction.producer_id != request.producer_id:",
     "    if transaction.producer_id != request.producer_id:", BY_MODEL),
    ("partitions-of-the-last-one", "verification checks the open transaction only", MACHINE,
     "held = transaction.partitions if transaction.state == State.ONGOING else frozenset()",
     "held = transaction.partitions or request.partitions", BY_RULES),
    ("no-time-out", "a transaction is aborted after its timeout", SHARD,
     "if transaction.state == State.ONGOING and is_over:", "if False and is_over:", BY_RULES),
    ("open-id-expires", "a transactional id with an open transaction does not expire", SHARD,
     "            if transaction.state in AT_REST\n            and transaction.updated_ms",
     "            if transaction.updated_ms", BY_RULES),
    ("tags-forgotten", "the next producer id survives a fail-over", RECORDS,
     "    if transaction.next_producer_id != NO_PRODUCER_ID:", "    if False:", BY_RECORDS),
    # The partitions' side.
    ("unverified-batch-let-in", "a transactional batch is appended only after its verification", VERIFICATION,
     "    if not is_verified and not producers.is_open(producer_id, epoch):",
     "    if False:", BY_PARTITIONS),
    ("marker-between-verdict-and-append", "a marker voids earlier verifications", VERIFICATION,
     "                pending.is_void = True", "                pending.is_void = False",
     BY_PARTITIONS),
    ("next-transaction-made-void", "a raised epoch begins a new transaction", VERIFICATION,
     "is_ended = epoch < producer_epoch or (epoch == producer_epoch and not is_epoch_raised)",
     "is_ended = epoch <= producer_epoch", BY_PARTITIONS),
    ("verdict-outlives-the-leader", "a verification is valid for one leadership", VERIFICATION,
     "            if pending.leadership != self._leadership:", "            if False:", BY_PARTITIONS),
    ("sequence-overtaken", "a later batch does not open a producer's sequence", VERIFICATION,
     "        return noted is None or sequence <= noted\n",
     "        return True\n", BY_PARTITIONS),
    ("sequence-overtaken-behind-a-marker", "the first batch of an epoch has sequence 0", PRODUCERS,
     "            if first != 0:\n                raise _out_of_order(header, \"0 as the first",
     "            if False:\n                raise _out_of_order(header, \"0 as the first",
     BY_PARTITIONS),
    ("overtaken-in-the-queue", "batches wait behind a batch that is being verified", GATE,
     "if not is_pending and not _needs_verification(replica, header):",
     "if is_pending or not _needs_verification(replica, header):", BY_PARTITIONS),
    ("older-coordinator-writes", "a marker with an older coordinator epoch is refused", PRODUCERS,
     "        if coordinator_epoch < entry.coordinator_epoch:", "        if False:", BY_PARTITIONS),
    ("older-marker-appended", "a marker with an older producer epoch is refused", PRODUCERS,
     "        if producer_epoch < entry.epoch or is_of_next:", "        if is_of_next:",
     BY_PARTITIONS),
    ("marker-ends-the-next", "a repeated marker ends no other transaction", PRODUCERS,
     "        is_of_next = is_epoch_raised and self.is_open(producer_id, producer_epoch)",
     "        is_of_next = False", BY_PARTITIONS),
    ("unknown-at-the-leader-is-gone", "only the coordinator's own image decides that a topic is deleted", BOOK,
     "        ErrorCode.NONE,\n", "        ErrorCode.NONE,\n"
     "        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,\n", BY_PARTITIONS),
    ("failed-marker-counts", "a marker that failed is sent again", BOOK,
     "        if error in _DONE:\n", "        if error is not None:\n", BY_PARTITIONS),
    ("offsets-unverified", "transactional offsets are written only after their verification", OFFSETS,
     "    while not replica.log.producers.is_open(producer_id, producer_epoch):",
     "    while False:", BY_OFFSETS),
    ("offsets-of-a-refused-transaction", "a failed verification refuses the offsets", TXN_OFFSET_COMMIT,
     "    if refused != ErrorCode.NONE:\n", "    if False:\n", BY_OFFSETS),
    ("new-clients-offsets-only-verified", "v5 adds the group's partition", TXN_OFFSET_COMMIT,
     "        is_add=version >= FIRST_ADDING_VERSION,\n", "        is_add=False,\n", BY_OFFSETS),
    ("marker-missed-while-loading", "a marker is heard while the log is read", TERM,
     "            # changes nothing.\n"
     "            self._events.append(event)\n",
     "            pass\n", BY_SHARDS),
    ("told-before-the-marker-is-safe", "answers after a marker rest on it", TERM,
     "            # From now on, durable answers wait for the marker's replication too.\n"
     "            self._end_offset = self.replica.log.end_offset\n", "", BY_SHARDS),
    ("groups-not-told", "a group's shard gets the markers of its partition", MARKING,
     "    if core.topic == OFFSETS_TOPIC:\n", "    if False:\n", BY_OFFSETS),
    ("markers-not-waited-for", "a marker counts once it is replicated", MARKING,
     "            await done\n", "            pass\n", BY_PARTITIONS),
    ("patience-without-end", "who waits for markers is answered in time", SHARD,
     "        return [SetTimer(name=_ParkTimer(transactional_id), deadline_ms=deadline_ms)]",
     "        return []", BY_RULES),
    ("parked-forgotten", "a parked request continues once the markers are written", SHARD,
     "        return effects + self._unpark(transaction.transactional_id, now)",
     "        return effects", BY_RULES),
    ("end-overtakes-a-parked-add", "an EndTxn waits behind a parked request of its id", SHARD,
     "        if is_end and request.body.transactional_id in self._parked:", "        if False:", BY_RULES),
    ("prepared-end-is-final", "an EndTxn is retried while markers are written", MACHINE,
     "    if transaction.state in PREPARED:\n        # Also if", "    if False:\n        # Also if", BY_RULES),
    ("request-before-due-timers", "a request sees what due timers have ended", TERM,
     "                    self._fire_due(now)\n", "                    pass\n", BY_TIMERS),
    ("older-client-adds", "older clients must have added the partition", COORDINATORS,
     "            is_verify_only=not is_add,\n", "            is_verify_only=False,\n",
     BY_PARTITIONS),
)  # fmt: skip

MUTANTS = tuple(
    Mutant(
        name, rule, path, old, new, tests=tests, has_simulator=False, world="transactions"
    )
    for name, rule, path, old, new, tests in _RULES
)  # fmt: skip
