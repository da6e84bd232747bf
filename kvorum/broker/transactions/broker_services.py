"""The parts of a broker that transactions use. `broker.network.services.Services` has them all."""

from __future__ import annotations

from collections.abc import Collection, Coroutine
from typing import Any, Protocol

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.controller.producer_ids import ProducerIdSource
from kvorum.broker.coordinator.host import CoordinatorHost
from kvorum.broker.fetch.follower_fetch import Connect, PeerAddress
from kvorum.broker.manager.replica_registry import ReplicaRegistry
from kvorum.broker.network.purgatory import Deadlines
from kvorum.broker.transactions.model import TopicPartition
from kvorum.broker.transactions.requests import PartitionErrors
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.clock import Clock


class TransactionCoordinators(Protocol):
    """The coordinators of transactional ids, on this broker or another."""

    async def join(
        self,
        *,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        is_add: bool,
    ) -> PartitionErrors: ...


class Driver(Protocol):
    """The broker's driver of transactions, as the gates of produce and offset requests use it."""

    @property
    def coordinators(self) -> TransactionCoordinators: ...


class Waits(Protocol):
    """The replica manager, for waiting."""

    @property
    def clock(self) -> Clock: ...

    @property
    def deadlines(self) -> Deadlines: ...


class Reach(Waits, Protocol):
    """The replica manager, for connections to other brokers, too."""

    @property
    def peer_address(self) -> PeerAddress: ...

    @property
    def connect(self) -> Connect: ...


class BrokerServices(Protocol):
    """The parts of a broker that transactions use. groups, transactions: the coordinators on this
    broker."""

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def broker_id(self) -> int: ...

    @property
    def replicas(self) -> Waits: ...

    @property
    def registry(self) -> ReplicaRegistry: ...

    @property
    def producer_ids(self) -> ProducerIdSource: ...

    @property
    def groups(self) -> CoordinatorHost: ...

    @property
    def transactions(self) -> CoordinatorHost: ...

    @property
    def transaction_driver(self) -> Driver: ...

    def image(self) -> ClusterImage: ...

    def in_background(self, work: Coroutine[Any, Any, None], name: str) -> None: ...


class DriverServices(BrokerServices, Protocol):
    """The parts of a broker that the driver of transactions needs."""

    @property
    def replicas(self) -> Reach: ...
