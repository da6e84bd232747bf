"""Produce (0). Served: v3-13, advertised from 0 (otherwise librdkafka does not compress); v0-2
requests close the connection.

Batches are stored as they came, unless the topic's compression.type names another codec: then a
thread recompresses them (kvorum/broker/partition/recompression). Header, CRC and records are
checked. In a compacted topic every record must have a key (INVALID_RECORD, with an error for each
record without one, v8+). acks 0, 1 and -1.

Errors per partition: NOT_ENOUGH_REPLICAS before and NOT_ENOUGH_REPLICAS_AFTER_APPEND after the
append, REQUEST_TIMED_OUT at the deadline, NOT_LEADER_OR_FOLLOWER with the current leader (v10+),
INVALID_TOPIC_EXCEPTION for internal topics, OUT_OF_ORDER_SEQUENCE_NUMBER and INVALID_PRODUCER_EPOCH
for idempotent producers.

Transactional batches: the first one of a transaction in a partition waits until the coordinator has
confirmed that the partition is in the transaction (kvorum/broker/transactions/produce_gate). v12+
adds it (KIP-890); clients of older versions must have added it, else they get INVALID_TXN_STATE
(TRANSACTION_ABORTABLE from v11). Other errors: INVALID_PRODUCER_EPOCH for a fenced producer,
CONCURRENT_TRANSACTIONS from v12 while the last transaction's markers are being written
(NOT_ENOUGH_REPLICAS before), TRANSACTIONAL_ID_AUTHORIZATION_FAILED for all partitions of a request
without a transactional id, or with one that the client may not use.

Byte quotas: the client pauses after its answer (KIP-219).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from kvorum.broker.api.context import RequestContext
from kvorum.broker.metadata_answers.topic_names import INTERNAL_TOPICS
from kvorum.broker.partition.core.batch_validation import ProduceTerms, refusal
from kvorum.broker.partition.recompression import QueuedBatch, Recompressed
from kvorum.broker.partition.replica import Replica
from kvorum.broker.purgatory.pending_produce import PendingAck, PendingProduce
from kvorum.broker.quotas.client_quotas import QuotaKind
from kvorum.broker.transactions.produce_gate import ProduceGate
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import ATTRIBUTES_AT, TRANSACTIONAL_BIT, BatchError
from kvorum.storage.format.client_batch import Unpacking
from kvorum.wire.framing import response_head
from kvorum.wire.produce_codec import (
    API,
    FIRST_FLEXIBLE,
    FIRST_TOPIC_ID,
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    ProduceTopic,
    pack_produce_response,
    parse_produce_request,
)

_NAMED_TWICE = "the request names the partition twice; only its first batch was looked at"

ACCESS = (
    (AclOperation.WRITE, ResourceType.TOPIC),
    (AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID),
)


class _Progress(NamedTuple):
    """State of one request. The partitions of a request have numbers, in its order.

    answers: by number; a partition that waits has a blank one.
    appended: batches whose replication the answer waits for.
    to_recompress: batches that are recompressed first, as copies; they are not appended yet.
    named: the replicas for which the request has had a batch.
    """

    request: ProduceRequest
    terms: ProduceTerms
    gate: ProduceGate | None
    answers: list[ProducedPartition]
    appended: list[tuple[int, Replica, int]]
    to_recompress: list[tuple[int, Replica, bytearray]]
    named: set[Replica]


def handle(context: RequestContext, view: memoryview, position: int, end: int) -> None:
    """Append the request's batches; answer now, or when they are replicated."""
    version = context.api_version
    request = parse_produce_request(
        view, position, end, version, items_max=context.request_items_max
    )
    if not _may_write_in_transaction(context, request, view):
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        answers = [refused for topic in request.topics for refused in _refused(topic, error)]
        _respond(context, request, answers)
        return
    clock = context.services.replicas.clock
    terms = ProduceTerms(
        request.acks,
        version,
        clock.monotonic_ms(),
        clock.wall_ms(),
        Unpacking(end - position, context.services.batch_limits),
    )
    progress = _Progress(request, terms, _gate(context, request, terms), [], [], [], set())
    for topic in request.topics:
        _append_topic(context, view, topic, progress)
    # Pause before the answer: an answer that waits for replication then has the rest of the pause.
    context.pause(QuotaKind.PRODUCE, end - position)
    gate = progress.gate
    if progress.appended or progress.to_recompress or (gate is not None and gate.held):
        _park(context, progress)
    else:
        _respond(context, request, progress.answers)


def _gate(
    context: RequestContext, request: ProduceRequest, terms: ProduceTerms
) -> ProduceGate | None:
    """None for a request without a transactional id."""
    if request.transactional_id is None:
        return None
    coordinators = context.services.transaction_driver.coordinators
    return ProduceGate(coordinators, request.transactional_id, terms)


def _may_write_in_transaction(
    context: RequestContext, request: ProduceRequest, view: memoryview
) -> bool:
    """False if a batch is transactional, and the request has no transactional id or one that the
    client may not use."""
    if request.transactional_id is not None and not context.has_access_control:
        return True
    is_transactional = any(
        length > ATTRIBUTES_AT and view[position + ATTRIBUTES_AT] & TRANSACTIONAL_BIT
        for topic in request.topics
        for _, position, length in topic.partitions
    )
    if not is_transactional:
        return True
    transactional_id = request.transactional_id
    return transactional_id is not None and context.allows_transactional_id(
        AclOperation.WRITE, transactional_id
    )


def _append_topic(
    context: RequestContext, view: memoryview, topic: ProduceTopic, progress: _Progress
) -> None:
    _, terms, gate, answers, appended, to_recompress, named = progress
    if context.has_access_control:
        name = topic.name or context.services.topic_name(topic.topic_id)
        if name and not context.allows_topic(AclOperation.WRITE, name):
            answers += _refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return
    if terms.acks not in (-1, 0, 1):
        answers += _refused(topic, ErrorCode.INVALID_REQUIRED_ACKS)
        return
    registry = context.services.registry
    is_by_id = terms.version >= FIRST_TOPIC_ID
    for partition_id, position, length in topic.partitions:
        number = len(answers)
        if is_by_id:
            replica = registry.find(topic.topic_id, partition_id)
        else:
            replica = registry.find_by_name(topic.name, partition_id)
        if replica is None:
            asked_name = None if is_by_id else topic.name
            error = registry.missing_error(asked_name, topic.topic_id, partition_id)
            answers.append(ProducedPartition(partition_id, error.value))
            continue
        if replica.core.topic in INTERNAL_TOPICS:
            error = ErrorCode.INVALID_TOPIC_EXCEPTION
            answers.append(ProducedPartition(partition_id, error.value))
            continue
        if replica in named:
            error = ErrorCode.INVALID_REQUEST
            answers.append(ProducedPartition(partition_id, error.value, error_message=_NAMED_TWICE))
            continue
        named.add(replica)
        batch = view[position : position + max(length, 0)]
        if replica.holds_for_recompression(batch):
            to_recompress.append((number, replica, bytearray(batch)))
            answers.append(ProducedPartition(partition_id))
        elif gate is not None and gate.holds(replica, batch, number):
            answers.append(ProducedPartition(partition_id))
        else:
            answer, required = replica.append(batch, terms)
            if required:
                appended.append((number, replica, required))
            answers.append(answer)


def _refused(topic: ProduceTopic, error: ErrorCode) -> list[ProducedPartition]:
    """The same error for each partition of a topic."""
    return [ProducedPartition(partition_id, error.value) for partition_id, _, _ in topic.partitions]


def _park(context: RequestContext, progress: _Progress) -> None:
    request, terms, gate, answers, appended, to_recompress, _ = progress
    replicas = context.services.replicas
    pending = PendingProduce(answers, partial(_respond, context, request), replicas.deadlines)
    for number, _, _ in appended:
        pending.wait_for(number)
    for number, _, _ in to_recompress:
        pending.wait_for(number)
    if gate is not None:
        for held in gate.held:
            pending.wait_for(held.number)
        gate.start(pending)
    for number, replica, batch in to_recompress:
        item = QueuedBatch(
            batch,
            terms,
            context.slot.connection.count_held,
            partial(_append_recompressed, context, progress, pending, number, replica),
        )
        context.services.recompression.add(replica, item)
    to_recompress.clear()  # the line has the copies now
    for number, replica, required_offset in appended:
        replica.wait_for_replication(PendingAck(required_offset, pending, number))
    if pending.is_done:
        return
    context.slot.parked = pending
    replicas.deadlines.add(pending, replicas.clock.monotonic_ms() + max(request.timeout_ms, 0))


def _append_recompressed(
    context: RequestContext,
    progress: _Progress,
    pending: PendingProduce,
    number: int,
    replica: Replica,
    outcome: Recompressed,
) -> None:
    """Do as `_append_topic` does with a batch that needs no recompression."""
    if isinstance(outcome, BatchError):
        pending.put(number, refusal(replica.core.partition_id, outcome))
        pending.complete(number, ErrorCode.NONE)
        return
    batch, header = outcome
    # A gate for this batch alone: that of its request has started.
    gate = _gate(context, progress.request, progress.terms)
    if gate is not None and gate.holds(replica, batch, number):
        gate.start(pending)
        return
    clock = context.services.replicas.clock
    terms = progress.terms._replace(now_ms=clock.monotonic_ms(), wall_ms=clock.wall_ms())
    replica.append_late(batch, terms, pending, number, checked=header)


def _respond(
    context: RequestContext, request: ProduceRequest, answers: list[ProducedPartition]
) -> None:
    """Send the answer. With acks=0 there is none, which means success, so an error must close the
    connection."""
    if request.acks == 0:
        if any(partition.error for partition in answers):
            context.slot.connection.close("an append with acks=0 failed")
        else:
            context.slot.fill(())
        return
    version = context.api_version
    leaders = set()
    for partition in answers:
        if partition.error:
            context.services.metrics.note_error(API.key, partition.error)
            if partition.current_leader is not None:
                leaders.add(partition.current_leader[0])
    topics = []
    start = 0
    for name, topic_id, partitions in request.topics:
        end = start + len(partitions)
        topics.append(ProducedTopic(name, topic_id, answers[start:end]))
        start = end
    endpoints = context.services.node_endpoints(leaders, context.listener) if leaders else ()
    muted_ms = context.slot.connection.muted_ms
    body = pack_produce_response(version, topics, endpoints, throttle_ms=muted_ms)
    head = response_head(context.correlation_id, len(body), is_flexible=version >= FIRST_FLEXIBLE)
    context.slot.fill((head, body))
