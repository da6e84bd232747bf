"""Produce (0). Served: v3-13, advertised from 0 (otherwise librdkafka does not compress); v0-2
requests close the connection.

Batches are stored as they came, unless the topic's compression.type names another codec: then a
thread recompresses them (broker/partition/recompression). Header, CRC and records are checked. In a
compacted topic every record must have a key (INVALID_RECORD, with an error for each record without
one, v8+). acks 0, 1 and -1.

Errors per partition: NOT_ENOUGH_REPLICAS before and NOT_ENOUGH_REPLICAS_AFTER_APPEND after the
append, REQUEST_TIMED_OUT at the deadline, NOT_LEADER_OR_FOLLOWER with the current leader (v10+),
INVALID_TOPIC_EXCEPTION for internal topics, OUT_OF_ORDER_SEQUENCE_NUMBER and INVALID_PRODUCER_EPOCH
for idempotent producers.

Transactional batches: the first one of a transaction in a partition waits until the coordinator has
confirmed that the partition is in the transaction (broker/transactions/produce_gate). v12+ adds it
(KIP-890); clients of older versions must have added it, else they get INVALID_TXN_STATE
(TRANSACTION_ABORTABLE from v11). Other errors: INVALID_PRODUCER_EPOCH for a fenced producer,
CONCURRENT_TRANSACTIONS from v12 while the last transaction's markers are being written
(NOT_ENOUGH_REPLICAS before).

Byte quotas: the client pauses after its answer (KIP-219).
"""

from __future__ import annotations

from typing import NamedTuple

from kvorum.broker.api.context import RequestContext
from kvorum.broker.metadata_answers.topic_names import INTERNAL_TOPICS
from kvorum.broker.network.purgatory import PendingAck, PendingProduce
from kvorum.broker.partition.batch_validation import ProduceTerms
from kvorum.broker.partition.recompression import QueuedBatch, Recompressor
from kvorum.broker.partition.replica import Replica
from kvorum.broker.quotas.client_quotas import QuotaKind
from kvorum.broker.transactions.produce_gate import ProduceGate
from kvorum.metadata.access.model import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import ATTRIBUTES_AT, TRANSACTIONAL_BIT
from kvorum.storage.format.client_batch import Unpacking
from kvorum.wire.framing import response_head
from kvorum.wire.produce_codec import (
    FIRST_FLEXIBLE,
    FIRST_TOPIC_ID,
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    ProduceTopic,
    pack_produce_response,
    parse_produce_request,
)
from kvorum.wire.versions import Api

_NAMED_TWICE = "the request names the partition twice; only its first batch was looked at"

API = Api(
    key=0,
    name="produce",
    min_version=3,
    max_version=13,
    first_flexible=FIRST_FLEXIBLE,
    advertised_min_version=0,
)
ACCESS = (
    (AclOperation.WRITE, ResourceType.TOPIC),
    (AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID),
)


class _Waiting(NamedTuple):
    """A batch that the answer waits for. to_recompress: the recompressor and the batch, if it is
    recompressed first; it is then not appended yet."""

    replica: Replica
    required_offset: int
    topic_index: int
    partition_index: int
    to_recompress: tuple[Recompressor, bytearray] | None = None


class _Progress(NamedTuple):
    """State of one request. named: the replicas for which the request has had a batch."""

    terms: ProduceTerms
    gate: ProduceGate | None
    waiting: list[_Waiting]
    named: set[Replica]


def handle(context: RequestContext, view: memoryview, position: int, end: int) -> None:
    """Append the request's batches; answer now, or when they are replicated."""
    version = context.api_version
    request = parse_produce_request(view, position, end, version)
    topics: list[ProducedTopic] = []
    waiting: list[_Waiting] = []
    clock = context.services.replicas.clock
    terms = ProduceTerms(
        request.acks,
        version,
        clock.monotonic_ms(),
        clock.wall_ms(),
        Unpacking(end - position),
    )
    if context.has_access_control and not _may_write_in_transaction(context, request, view):
        _refuse_transaction(context, request)
        return
    gate = None
    if request.transactional_id is not None:
        gate = ProduceGate(context.services, request.transactional_id, terms)
    progress = _Progress(terms, gate, waiting, set())
    for topic_index, topic in enumerate(request.topics):
        partitions = _append_topic(context, view, topic, topic_index, progress)
        topics.append(ProducedTopic(topic.name, topic.topic_id, partitions))
    # Pause before the answer: an answer that waits for replication then has the rest of the pause.
    context.pause(QuotaKind.PRODUCE, end - position)
    if waiting or (gate is not None and gate.held):
        _park(context, request, topics, progress)
    elif request.acks == 0:
        _finish_unanswered(context, topics)
    else:
        _respond(context, topics)


def _may_write_in_transaction(
    context: RequestContext, request: ProduceRequest, view: memoryview
) -> bool:
    """False if a batch is transactional, and the request has no transactional id or one that the
    client may not use."""
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


def _refuse_transaction(context: RequestContext, request: ProduceRequest) -> None:
    error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    topics = [
        ProducedTopic(topic.name, topic.topic_id, _refused(topic, error))
        for topic in request.topics
    ]
    finish = _finish_unanswered if request.acks == 0 else _respond
    finish(context, topics)


def _append_topic(
    context: RequestContext,
    view: memoryview,
    topic: ProduceTopic,
    topic_index: int,
    progress: _Progress,
) -> list[ProducedPartition]:
    terms, gate, waiting, named = progress
    registry = context.services.registry
    is_by_id = context.api_version >= FIRST_TOPIC_ID
    partitions: list[ProducedPartition] = []
    if context.has_access_control:
        name = topic.name or context.services.topic_name(topic.topic_id)
        if name and not context.allows_topic(AclOperation.WRITE, name):
            return _refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    for partition_id, position, length in topic.partitions:
        if terms.acks not in (-1, 0, 1):
            error = ErrorCode.INVALID_REQUIRED_ACKS
            partitions.append(ProducedPartition(partition_id, error.value))
            continue
        if is_by_id:
            replica = registry.find(topic.topic_id, partition_id)
        else:
            replica = registry.find_by_name(topic.name, partition_id)
        if replica is None:
            error = registry.missing_error(topic.name, topic.topic_id, partition_id)
            partitions.append(ProducedPartition(partition_id, error.value))
            continue
        if replica.core.topic in INTERNAL_TOPICS:
            error = ErrorCode.INVALID_TOPIC_EXCEPTION
            partitions.append(ProducedPartition(partition_id, error.value))
            continue
        if replica in named:
            error = ErrorCode.INVALID_REQUEST
            partitions.append(
                ProducedPartition(partition_id, error.value, error_message=_NAMED_TWICE)
            )
            continue
        named.add(replica)
        batch = view[position : position + max(length, 0)]
        recompressor = replica.recompressor
        if recompressor is not None and recompressor.holds(batch):
            to_recompress = (recompressor, bytearray(batch))
            waiting.append(_Waiting(replica, 0, topic_index, len(partitions), to_recompress))
            partitions.append(ProducedPartition(partition_id))
            continue
        if gate is not None and gate.holds(replica, batch, topic_index, len(partitions)):
            partitions.append(ProducedPartition(partition_id))
            continue
        answer, required = replica.append(batch, terms)
        if required:
            waiting.append(_Waiting(replica, required, topic_index, len(partitions)))
        partitions.append(answer)
    return partitions


def _refused(topic: ProduceTopic, error: ErrorCode) -> list[ProducedPartition]:
    """The same error for each partition of a topic."""
    return [ProducedPartition(partition_id, error.value) for partition_id, _, _ in topic.partitions]


def _park(
    context: RequestContext,
    request: ProduceRequest,
    topics: list[ProducedTopic],
    progress: _Progress,
) -> None:
    terms, gate, waiting, _ = progress
    connection = context.slot.connection
    replicas = context.services.replicas
    deadlines = replicas.deadlines
    finish = _finish_unanswered if request.acks == 0 else _respond
    pending = PendingProduce(topics, lambda answer: finish(context, answer), deadlines)
    for wait in waiting:
        pending.wait_for(wait.topic_index, wait.partition_index)
    if gate is not None:
        for held in gate.held:
            pending.wait_for(held.topic_index, held.partition_index)
        gate.start(pending)
    for wait in waiting:
        if wait.to_recompress is not None:
            recompressor, batch = wait.to_recompress
            at = (wait.topic_index, wait.partition_index)
            own_gate = _own_gate(context, request, terms)
            item = QueuedBatch(batch, terms, own_gate, pending, *at, connection)
            recompressor.add(item, context.services)
            continue
        wait.replica.wait_for_replication(
            PendingAck(wait.required_offset, pending, wait.topic_index, wait.partition_index)
        )
    if pending.is_done:
        return
    context.slot.parked = pending
    deadlines.add(pending, replicas.clock.monotonic_ms() + max(request.timeout_ms, 0))


def _own_gate(
    context: RequestContext, request: ProduceRequest, terms: ProduceTerms
) -> ProduceGate | None:
    """A gate for a batch that reaches it after its request was handled."""
    if request.transactional_id is None:
        return None
    return ProduceGate(context.services, request.transactional_id, terms)


def _finish_unanswered(context: RequestContext, topics: list[ProducedTopic]) -> None:
    """Finish a request with acks=0. No answer means success, so an error must close the
    connection."""
    if any(partition.error for topic in topics for partition in topic.partitions):
        context.slot.connection.close("an append with acks=0 failed")
    else:
        context.slot.fill(())


def _note_error(context: RequestContext, partition: ProducedPartition) -> None:
    context.services.metrics.note_error(API.key, partition.error)


def _respond(context: RequestContext, topics: list[ProducedTopic]) -> None:
    version = context.api_version
    leaders = set()
    for topic in topics:
        for partition in topic.partitions:
            if partition.error:
                _note_error(context, partition)
                if partition.current_leader is not None:
                    leaders.add(partition.current_leader[0])
    endpoints = context.services.node_endpoints(leaders, context.listener) if leaders else ()
    muted_ms = context.slot.connection.muted_ms
    body = pack_produce_response(version, topics, endpoints, throttle_ms=muted_ms)
    head = response_head(context.correlation_id, len(body), is_flexible=version >= FIRST_FLEXIBLE)
    context.slot.fill((head, body))
