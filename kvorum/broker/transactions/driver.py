"""The driver of transactions: carries out the shards' questions, with requests to other brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvorum.broker.config.broker_config import BrokerConfig, part_of
from kvorum.broker.controller_channel.producer_ids import ProducerIdSource
from kvorum.broker.coordinator.host import CoordinatorHost
from kvorum.broker.coordinator.model import FactLearned
from kvorum.broker.coordinator.shard_context import ShardContext
from kvorum.broker.manager.replica_manager import ReplicaManager
from kvorum.broker.metadata_answers.topic_names import TRANSACTIONS_TOPIC
from kvorum.broker.network.peers import Peers
from kvorum.broker.transactions.coordinators import Coordinators
from kvorum.broker.transactions.core.config import TransactionConfig
from kvorum.broker.transactions.core.requests import ProducerIdTaken, SendMarkers, TakeProducerId
from kvorum.broker.transactions.core.shard import TransactionShard
from kvorum.broker.transactions.markers import MarkerSender
from kvorum.broker.transactions.marking import MarkerWriter
from kvorum.metadata.image.features import TRANSACTION_VERSION, level_of
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.errors import InvariantViolated, Rejected
from kvorum.runtime.tasks import TaskGroup, report_failure


class TransactionDriver:
    """The transactions of one broker.

    host: the coordinators on this broker.
    coordinators: those on any broker, for the leaders of partitions.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        replicas: ReplicaManager,
        producer_ids: ProducerIdSource,
        groups: CoordinatorHost,
        image: Callable[[], ClusterImage],
    ) -> None:
        """image: as clients are shown it."""
        self._config = config
        self._producer_ids = producer_ids
        self._image = image
        broker_id = replicas.broker_id
        self._peers = Peers(
            broker_id=broker_id,
            purpose="transactions",
            peer_address=replicas.peer_address,
            connect=replicas.connect,
        )
        self.marker_writer = MarkerWriter(
            registry=replicas.registry,
            deadlines=replicas.deadlines,
            clock=replicas.clock,
            groups=groups,
            image=image,
        )
        self._markers = MarkerSender(broker_id, self.marker_writer, self._peers, image)
        self._tasks = TaskGroup(report_failure)
        self.host = CoordinatorHost(
            topic=TRANSACTIONS_TOPIC,
            replicas=replicas,
            make_shard=self._make_shard,
            ask=self._ask,
        )
        self.coordinators = Coordinators(
            broker_id=broker_id,
            host=self.host,
            registry=replicas.registry,
            peers=self._peers,
            tasks=self._tasks,
            clock=replicas.clock,
        )

    def _make_shard(self, partition_id: int, leader_epoch: int) -> TransactionShard:
        """An empty shard for one partition of `__transaction_state` in that leader epoch."""
        return TransactionShard(
            coordinator_epoch=leader_epoch,
            config=part_of(self._config, TransactionConfig),
            transaction_version=self._level,
        )

    def _ask(self, term: ShardContext, question: Any) -> None:
        """Carry out a shard's question; the answer is a `FactLearned`."""
        match question:
            case SendMarkers():
                self._markers.send(term, question)
            case TakeProducerId():
                self._tasks.spawn(self._take_producer_id(term, question), "take-producer-id")
            case _:
                raise InvariantViolated(f"{term.name} asks {question!r}")

    async def stop(self) -> None:
        await self.host.stop()
        await self._tasks.stop()
        await self._markers.stop()
        self._peers.close()

    def _level(self) -> int:
        return level_of(self._image().features, TRANSACTION_VERSION)

    async def _take_producer_id(self, term: ShardContext, question: TakeProducerId) -> None:
        taken = await self._producer_ids.take()
        producer_id = None if isinstance(taken, Rejected) else taken
        term.give(
            FactLearned(
                fact=ProducerIdTaken(
                    transactional_id=question.transactional_id, producer_id=producer_id
                )
            )
        )
