"""Requests from a partition's leader to the coordinator of a transactional id (KIP-890).

Clients of KIP-890 part 2 (Produce v12+, TxnOffsetCommit v5+) do not add partitions to transactions;
the partition's leader does it for them. For older clients, the leader asks if they have done so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from kvorum.broker.coordinator.host import CoordinatorHost
from kvorum.broker.coordinator.keys import partition_of
from kvorum.broker.manager.replica_registry import ReplicaRegistry
from kvorum.broker.metadata_answers.topic_names import TRANSACTIONS_TOPIC
from kvorum.broker.network.peers import Peers
from kvorum.broker.transactions.core.model import TopicPartition
from kvorum.broker.transactions.core.requests import (
    EPOCH_BUMP_VERSION,
    AddPartitions,
    PartitionErrors,
)
from kvorum.runtime.clock import Clock
from kvorum.runtime.errors import ErrorCode, error_code_of
from kvorum.runtime.tasks import TaskGroup
from kvorum.wire.versions import Api

ADD_PARTITIONS_TO_TXN = Api(
    key=24,
    name="add_partitions_to_txn",
    min_version=0,
    max_version=5,
    first_flexible=3,
    inter_broker_min_version=4,
)

CONCURRENT_RETRY_MS = 20
"""Pause before a leader tries again to add a partition while the markers of the last transaction
are being written."""
CONCURRENT_RETRIES_MAX = 5
"""Retries after which the client gets CONCURRENT_TRANSACTIONS and must retry itself."""

_UNREACHABLE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class Coordinators:
    """The coordinators of transactional ids, on any broker.

    host: those on this broker.
    tasks: of requests that wait for a coordinator.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        host: CoordinatorHost,
        registry: ReplicaRegistry,
        peers: Peers,
        tasks: TaskGroup,
        clock: Clock,
    ) -> None:
        self._broker_id = broker_id
        self._host = host
        self._registry = registry
        self._peers = peers
        self.tasks = tasks
        self.clock = clock

    async def join(
        self,
        *,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        is_add: bool,
    ) -> PartitionErrors:
        """Add the partitions to the producer's transaction, or verify that they are in it.

        Returns the coordinator's error for each; see `error_for_producer`.
        """
        body = AddPartitions(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=frozenset(partitions),
            is_verify_only=not is_add,
            client_version=EPOCH_BUMP_VERSION if is_add else 0,
        )
        answer = await self._ask(body)
        retries = 0
        while is_add and retries < CONCURRENT_RETRIES_MAX and _is_concurrent(answer):
            await asyncio.sleep(CONCURRENT_RETRY_MS / 1000)
            retries += 1
            answer = await self._ask(body)
        return answer

    async def _ask(self, body: AddPartitions) -> PartitionErrors:
        leader = self._leader_of(body.transactional_id)
        answer: Any
        if leader == self._broker_id:
            answer = await self._host.request(key=body.transactional_id, body=body)
        elif leader is None:
            answer = ErrorCode.COORDINATOR_NOT_AVAILABLE
        else:
            answer = await self._ask_peer(leader, body)
        if isinstance(answer, ErrorCode):
            return dict.fromkeys(body.partitions, answer)
        errors: PartitionErrors = answer
        return errors

    def _leader_of(self, transactional_id: str) -> int | None:
        topic = self._registry.image.topic(TRANSACTIONS_TOPIC)
        if topic is None:
            return None
        partition = topic.partitions.get(partition_of(transactional_id, len(topic.partitions)))
        return None if partition is None or not partition.has_leader else partition.leader

    async def _ask_peer(self, leader: int, body: AddPartitions) -> PartitionErrors | ErrorCode:
        by_topic: dict[str, list[int]] = {}
        for topic, partition_id in sorted(body.partitions):
            by_topic.setdefault(topic, []).append(partition_id)
        values = {
            "transactions": [
                {
                    "transactional_id": body.transactional_id,
                    "producer_id": body.producer_id,
                    "producer_epoch": body.producer_epoch,
                    "verify_only": body.is_verify_only,
                    "topics": [
                        {"name": topic, "partitions": ids} for topic, ids in by_topic.items()
                    ],
                }
            ]
        }
        version = ADD_PARTITIONS_TO_TXN.max_version
        answer = await self._peers.call(leader, ADD_PARTITIONS_TO_TXN, version, values)
        if answer is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if answer.error_code:
            return error_code_of(answer.error_code)
        found = {
            TopicPartition(topic.name, row.partition_index): error_code_of(row.partition_error_code)
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for row in topic.results_by_partition
        }
        return {p: found.get(p, ErrorCode.UNKNOWN_SERVER_ERROR) for p in body.partitions}


def _is_concurrent(answer: PartitionErrors) -> bool:
    return ErrorCode.CONCURRENT_TRANSACTIONS in answer.values()


def error_for_producer(
    error: ErrorCode, *, knows_concurrent: bool, knows_abortable: bool
) -> ErrorCode:
    """The coordinator's error, translated to one that the producer's version of the API knows.

    knows_concurrent: Produce v12+, TxnOffsetCommit v5+.
    knows_abortable: Produce v11+, TxnOffsetCommit v4+. Retriable errors become NOT_ENOUGH_REPLICAS,
        after which the client retries without refreshing its metadata.
    """
    if error == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error == ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    if error in _UNREACHABLE or (
        error == ErrorCode.CONCURRENT_TRANSACTIONS and not knows_concurrent
    ):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return error
