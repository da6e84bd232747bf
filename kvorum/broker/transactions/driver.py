"""The driver of transactions: carries out the shards' questions, with requests to other brokers."""

from __future__ import annotations

from typing import Any

from kvorum.broker.config.broker_config import part_of
from kvorum.broker.coordinator.model import FactLearned
from kvorum.broker.coordinator.shard_context import ShardContext
from kvorum.broker.transactions.broker_services import DriverServices
from kvorum.broker.transactions.config import TransactionConfig
from kvorum.broker.transactions.coordinators import Coordinators
from kvorum.broker.transactions.markers import MarkerSender
from kvorum.broker.transactions.peers import Peers
from kvorum.broker.transactions.requests import ProducerIdTaken, SendMarkers, TakeProducerId
from kvorum.broker.transactions.shard import TransactionShard
from kvorum.metadata.image.features import TRANSACTION_VERSION, level_of
from kvorum.runtime.errors import InvariantViolated, Rejected
from kvorum.runtime.tasks import TaskGroup, report_failure


class TransactionDriver:
    """The transactions of one broker. coordinators: used by the leaders of partitions."""

    def __init__(self, services: DriverServices) -> None:
        self._services = services
        replicas = services.replicas
        self._peers = Peers(
            broker_id=services.broker_id,
            peer_address=replicas.peer_address,
            connect=replicas.connect,
        )
        self._markers = MarkerSender(services, self._peers)
        self._tasks = TaskGroup(report_failure)
        self.coordinators = Coordinators(services, self._peers)

    def make_shard(self, partition_id: int, leader_epoch: int) -> TransactionShard:
        """An empty shard for one partition of `__transaction_state` in that leader epoch."""
        return TransactionShard(
            coordinator_epoch=leader_epoch,
            config=part_of(self._services.config, TransactionConfig),
            transaction_version=self._level,
        )

    def ask(self, term: ShardContext, question: Any) -> None:
        """Carry out a shard's question; the answer is a `FactLearned`."""
        match question:
            case SendMarkers():
                self._markers.send(term, question)
            case TakeProducerId():
                self._tasks.spawn(self._take_producer_id(term, question), "take-producer-id")
            case _:
                raise InvariantViolated(f"{term.name} asks {question!r}")

    async def stop(self) -> None:
        await self._tasks.stop()
        await self._markers.stop()
        self._peers.close()

    def _level(self) -> int:
        return level_of(self._services.image().features, TRANSACTION_VERSION)

    async def _take_producer_id(self, term: ShardContext, question: TakeProducerId) -> None:
        taken = await self._services.producer_ids.take()
        producer_id = None if isinstance(taken, Rejected) else taken
        term.give(
            FactLearned(
                fact=ProducerIdTaken(
                    transactional_id=question.transactional_id, producer_id=producer_id
                )
            )
        )
