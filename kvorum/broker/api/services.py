"""The parts of a broker that API handlers use. `broker.network.services.Services` has them all."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.controller.controller_api import Controller
from kvorum.broker.controller.producer_ids import ProducerIdSource
from kvorum.broker.coordinator.host import CoordinatorHost
from kvorum.broker.coordinator.topics import InternalTopicMaker
from kvorum.broker.fetch.fetch_services import FetchServices
from kvorum.broker.fetch.follower_fetch import ReplicaFetcherManager
from kvorum.broker.log_dirs.log_directories import LogDirectories, LogDirectory
from kvorum.broker.manager.current_configs import CurrentConfigs
from kvorum.broker.manager.isolation import Isolation
from kvorum.broker.manager.replica_registry import ReplicaRegistry
from kvorum.broker.metadata_answers.fenced_broker_visibility import FencedBrokerVisibility
from kvorum.broker.metadata_answers.topic_metadata import TopicMetadata
from kvorum.broker.metrics.client_metrics_page import ClientFigures
from kvorum.broker.metrics.client_telemetry import ClientTelemetry
from kvorum.broker.metrics.counters import BrokerMetrics
from kvorum.broker.network.purgatory import Deadlines
from kvorum.broker.partition.recompression import RecompressionThreads
from kvorum.broker.quotas.client_quotas import ClientQuotas
from kvorum.broker.quotas.mutation_quota import MutationBuckets
from kvorum.broker.transactions.driver import TransactionDriver
from kvorum.metadata.access.audit import AuditLog
from kvorum.metadata.access.authorizer import Authorizer
from kvorum.metadata.access.nodes import NodePrincipals
from kvorum.metadata.access.tokens import TokenKey
from kvorum.metadata.configs.effective import StaticValue
from kvorum.metadata.image.features import FeatureRange
from kvorum.metadata.image.image import BrokerImage, ClusterImage
from kvorum.metadata.image.records import Endpoint
from kvorum.runtime.clock import Clock
from kvorum.wire.produce_codec import NodeEndpoint


class Replicas(Protocol):
    """The replica manager, as API handlers see it."""

    @property
    def clock(self) -> Clock: ...

    @property
    def rng(self) -> random.Random: ...

    @property
    def configs(self) -> CurrentConfigs: ...

    @property
    def deadlines(self) -> Deadlines: ...

    @property
    def directories(self) -> LogDirectories: ...

    @property
    def fetch_services(self) -> FetchServices: ...

    @property
    def fetchers(self) -> ReplicaFetcherManager: ...

    @property
    def isolation(self) -> Isolation: ...

    def now_ms(self) -> int: ...

    def on_file_failed(self, path: str, failure: OSError) -> None: ...

    def on_directory_error(
        self, log_dir: LogDirectory, failure: OSError, operation: str
    ) -> None: ...


class ApiServices(Protocol):
    """The parts of a broker that API handlers use."""

    @property
    def broker_id(self) -> int: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def config(self) -> BrokerConfig:
        """The part of `properties` for brokers."""
        ...

    @property
    def properties(self) -> Mapping[str, StaticValue]:
        """All properties that the broker was started with."""
        ...

    @property
    def supported_features(self) -> tuple[FeatureRange, ...]: ...

    @property
    def authorizer(self) -> Authorizer | None:
        """None: everybody may do everything."""
        ...

    @property
    def node_principals(self) -> NodePrincipals | None:
        """None: everybody with CLUSTER_ACTION may fetch in the name of every broker."""
        ...

    @property
    def audit(self) -> AuditLog: ...

    @property
    def certificates_problem(self) -> Callable[[Mapping[str, str]], str | None]:
        """Returns a sentence if this broker cannot use the certificates in dynamic configs of its
        own."""
        ...

    @property
    def token_key(self) -> TokenKey | None:
        """None: delegation tokens are off."""
        ...

    @property
    def replicas(self) -> Replicas: ...

    @property
    def registry(self) -> ReplicaRegistry: ...

    @property
    def metrics(self) -> BrokerMetrics: ...

    @property
    def controller(self) -> Controller: ...

    @property
    def producer_ids(self) -> ProducerIdSource: ...

    @property
    def internal_topics(self) -> InternalTopicMaker: ...

    @property
    def groups(self) -> CoordinatorHost: ...

    @property
    def transactions(self) -> CoordinatorHost: ...

    @property
    def transaction_driver(self) -> TransactionDriver: ...

    @property
    def quotas(self) -> ClientQuotas: ...

    @property
    def mutations(self) -> MutationBuckets: ...

    @property
    def telemetry(self) -> ClientTelemetry: ...

    @property
    def client_figures(self) -> ClientFigures: ...

    @property
    def topic_metadata(self) -> TopicMetadata: ...

    @property
    def fenced_visibility(self) -> FencedBrokerVisibility: ...

    @property
    def recompression_threads(self) -> RecompressionThreads: ...

    @property
    def caches(self) -> dict[str, Any]:
        """Caches that API files keep between requests, by a name of their own."""
        ...

    def now_ms(self) -> int: ...

    def image(self) -> ClusterImage: ...

    def topic_name(self, topic_id: bytes) -> str: ...

    def controller_id(self) -> int: ...

    def endpoint_of(self, broker: BrokerImage, listener: str) -> Endpoint: ...

    def node_endpoints(self, broker_ids: set[int], listener: str) -> list[NodeEndpoint]: ...

    def in_background(self, work: Coroutine[Any, Any, None], name: str) -> None: ...
