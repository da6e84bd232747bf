"""The parts of one broker, made once and handed to the API handlers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.config.config_entries import ConfigEntries
from kvorum.broker.config.dynamic_config import static_values
from kvorum.broker.controller_channel.controller_api import ControllerChannel
from kvorum.broker.controller_channel.producer_ids import ProducerIdSource
from kvorum.broker.coordinator.host import CoordinatorHost
from kvorum.broker.coordinator.topics import InternalTopicMaker
from kvorum.broker.groups.shard_factory import group_shard_maker
from kvorum.broker.groups.streams_topics import StreamsTopicMaker
from kvorum.broker.manager.replica_manager import ReplicaManager
from kvorum.broker.metadata_answers.fenced_broker_visibility import FencedBrokerVisibility
from kvorum.broker.metadata_answers.topic_metadata import TopicMetadata
from kvorum.broker.metadata_answers.topic_names import OFFSETS_TOPIC
from kvorum.broker.metrics.client_metrics_page import ClientFigures
from kvorum.broker.metrics.client_telemetry import ClientTelemetry
from kvorum.broker.partition.recompression import Recompression
from kvorum.broker.quotas.client_quotas import ClientQuotas
from kvorum.broker.quotas.mutation_quota import MutationBuckets
from kvorum.broker.share.share_services import ShareServices
from kvorum.broker.transactions.driver import TransactionDriver
from kvorum.metadata.access.audit import AuditLog
from kvorum.metadata.access.authorizer import Authorizer
from kvorum.metadata.access.following import follow_acls
from kvorum.metadata.access.nodes import NodePrincipals
from kvorum.metadata.access.tokens import token_key
from kvorum.metadata.configs.effective import StaticValue
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.features import SUPPORTED, FeatureRange
from kvorum.metadata.image.image import BrokerImage, ClusterImage
from kvorum.metadata.image.records import Endpoint
from kvorum.runtime.tasks import TaskGroup, report_failure
from kvorum.storage.format.client_batch import BatchLimits, batch_limits
from kvorum.wire.produce_codec import NodeEndpoint
from kvorum.wire.versions import ServedVersions

if TYPE_CHECKING:
    from kvorum.broker.events.driver import EventsDriver
    from kvorum.metadata.events.source import MetadataSource


class Services:
    """The parts of a broker, as API handlers use them."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        replicas: ReplicaManager,
        controller: ControllerChannel,
        image: Callable[[], ClusterImage],
        cluster_id: str,
        broker_id: int,
        properties: Mapping[str, StaticValue] | None = None,
        supported_features: tuple[FeatureRange, ...] = SUPPORTED,
        metadata: MetadataSource | None = None,
        authorizer: Authorizer | None = None,
        audit: AuditLog | None = None,
        node_principals: NodePrincipals | None = None,
        certificates_problem: Callable[[Mapping[str, str]], str | None] = lambda configs: None,
        served_to_tools: ServedVersions | None = None,
    ) -> None:
        """config: the part of `properties` for brokers.

        image: of the cluster.
        properties: all that the broker was started with, for DescribeConfigs; None: `config`.
        metadata: the source of the records of `__kvorum_events`; None writes none.
        authorizer: None if every client may do everything.
        node_principals: None if everybody with CLUSTER_ACTION may fetch as any follower.
        served_to_tools: the APIs of a controller; None for a broker.
        certificates_problem: why this broker cannot use certificates in its dynamic configs.
        """
        self.config = config
        self.authorizer = authorizer
        self.node_principals = node_principals
        self.certificates_problem = certificates_problem
        self.served_to_tools = served_to_tools
        self.audit = audit or AuditLog()
        self.token_key = token_key(config.delegation_token_secret_key)  # None: there are none
        self.supported_features = supported_features
        self.replicas = replicas
        self.registry = replicas.registry
        self.metrics = replicas.metrics
        self.controller = controller
        self._image = image
        self.cluster_id = cluster_id
        self.broker_id = broker_id
        given = static_values(config) if properties is None else properties
        self.config_entries = ConfigEntries(broker_id, given, self.image)
        self.producer_ids = ProducerIdSource(controller, broker_id)
        self._background = TaskGroup(report_failure)
        topics = self.internal_topics = InternalTopicMaker(config, controller, self._background)
        self.streams_topics = StreamsTopicMaker(controller, self._background, self.now_ms)
        share = self.share = ShareServices(replicas, config, image, controller, topics.make)
        make = group_shard_maker(config, replicas.rng, replicas.metrics.share)
        self.groups = CoordinatorHost(
            topic=OFFSETS_TOPIC, replicas=replicas, make_shard=make, ask=share.group_states.ask
        )
        self.telemetry, self.client_figures = ClientTelemetry(), ClientFigures()
        self.transaction_driver = TransactionDriver(
            config=config,
            replicas=replicas,
            producer_ids=self.producer_ids,
            groups=self.groups,
            image=self.image,
        )
        self.transactions = self.transaction_driver.host
        self.events = None if metadata is None else self.events_driver(metadata)
        self.quotas, self.mutations = _quotas(config)
        self.topic_metadata = TopicMetadata()
        self.fenced_visibility = FencedBrokerVisibility()
        replicas.image_listeners.append(self._on_image)
        self.auto_creations: set[str] = set()  # topics that a client asked for the metadata of
        self.batch_limits, self.recompression = _recompression(config)

    def events_driver(self, metadata: MetadataSource) -> EventsDriver:
        """The driver of `__kvorum_events` with that source of the metadata's records."""
        # Imported only here: most clusters write no events of their metadata.
        from kvorum.broker.events.driver import EventsDriver

        return EventsDriver(
            config=self.config,
            replicas=self.replicas,
            controller=self.controller,
            internal_topics=self.internal_topics,
            source=metadata,
        )

    def now_ms(self) -> int:
        """Monotonic time in milliseconds."""
        return self.replicas.clock.monotonic_ms()

    def image(self) -> ClusterImage:
        """The cluster image as clients are shown it: without the leaders of abandoned
        partitions."""
        return self.replicas.isolation.shown(self._image())

    def _on_image(self, delta: Delta | None, image: ClusterImage) -> None:
        if self.authorizer is not None:
            follow_acls(self.authorizer, delta, image)
        if delta is None or delta.changed_brokers:
            self.fenced_visibility.observe(image, self.now_ms())

    def in_background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work`, whose result no request waits for; it is cancelled at `stop`."""
        self._background.spawn(work, name)

    async def stop(self) -> None:
        await self.share.stop()
        await self.groups.stop()
        await self.transaction_driver.stop()
        if self.events is not None:
            await self.events.stop()
        await self._background.stop()
        await self.recompression.stop()

    def endpoint_of(self, broker: BrokerImage, listener: str) -> Endpoint:
        """The endpoint of that broker for clients that are connected to `listener`."""
        for endpoint in broker.endpoints:
            if endpoint.name == listener:
                return endpoint
        return broker.endpoint

    def topic_name(self, topic_id: bytes) -> str:
        """The name of a topic, "" for an unknown id."""
        topic = self._image().topics.get(topic_id)
        return "" if topic is None else topic.name

    def node_endpoints(self, broker_ids: set[int], listener: str) -> list[NodeEndpoint]:
        """Addresses of the brokers that an answer names (Produce v10+, Fetch v16+)."""
        brokers = self.image().brokers
        found = []
        for broker_id in sorted(broker_ids):
            broker = brokers.get(broker_id)
            if broker is not None:
                endpoint = self.endpoint_of(broker, listener)
                found.append(NodeEndpoint(broker_id, endpoint.host, endpoint.port, broker.rack))
        return found

    @property
    def names_another_controller(self) -> bool:
        """True if this broker reaches no controller, and names another broker as the controller."""
        return self.controller.is_lost and self.controller_id() != self.broker_id

    def controller_id(self) -> int:
        """The broker that this broker names to clients as the controller; -1 for none.

        A broker names itself, since every broker forwards requests to the controllers. While a
        mutation quota is set, all brokers name the lowest active broker, which must get all those
        requests. A broker that has lost the controllers names the next broker.

        Bad sequence if it named another broker: 1. An AdminClient of librdkafka is connected to
        brokers A and B, and A names B. 2. B dies. 3. The client reconnects to B again and again,
        and asks no other broker for the controller. Creating a topic then waits for a metadata
        refresh, minutes later. If A names itself and dies, the client notices at once, has no
        connection left, and asks the next broker.
        """
        if self.served_to_tools is not None:
            return self.broker_id  # a controller forwards requests too
        ids = self.image().active_broker_ids()
        others = [i for i in ids if i != self.broker_id]
        if self.controller.is_lost and others:
            return next((i for i in others if i > self.broker_id), others[0])
        if self.broker_id in ids and not self.quotas.binds_mutations:
            return self.broker_id
        return ids[0] if ids else -1


def _recompression(config: BrokerConfig) -> tuple[BatchLimits, Recompression]:
    limits = batch_limits(config.kvorum_batch_records_max, config.socket_request_max_bytes)
    return limits, Recompression(limits)


def _quotas(config: BrokerConfig) -> tuple[ClientQuotas, MutationBuckets]:
    samples_max, sample_ms = config.quota_window_num, config.quota_window_size_seconds * 1000
    quotas = ClientQuotas(samples_max=samples_max, sample_ms=sample_ms)
    return quotas, MutationBuckets(quotas, samples_max=samples_max, sample_ms=sample_ms)
