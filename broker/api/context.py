"""The arguments of an API handler: the broker's services and the request's header."""

from __future__ import annotations

import struct
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.config.dynamic_config import static_values
from kvorum.broker.controller.controller_api import REQUEST_TIMEOUT_MS, Controller
from kvorum.broker.controller.producer_ids import ProducerIdSource
from kvorum.broker.coordinator.host import CoordinatorHost
from kvorum.broker.coordinator.topics import InternalTopicMaker
from kvorum.broker.groups.shard_factory import group_shard_maker
from kvorum.broker.manager.replica_manager import ReplicaManager
from kvorum.broker.metadata_answers.authorized_operations import operation_bits
from kvorum.broker.metadata_answers.fenced_broker_visibility import FencedBrokerVisibility
from kvorum.broker.metadata_answers.topic_metadata import TopicMetadata
from kvorum.broker.metadata_answers.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kvorum.broker.metrics.client_metrics_page import ClientFigures
from kvorum.broker.metrics.client_telemetry import ClientTelemetry
from kvorum.broker.network.connection import ANONYMOUS, Slot
from kvorum.broker.partition.recompression import RecompressionThreads
from kvorum.broker.quotas.client_quotas import ClientQuotas, QuotaKind
from kvorum.broker.quotas.mutation_quota import MutationBuckets
from kvorum.broker.transactions.driver import TransactionDriver
from kvorum.metadata.access.audit import AuditLog
from kvorum.metadata.access.authorizer import Authorizer
from kvorum.metadata.access.following import follow_acls
from kvorum.metadata.access.model import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    AclOperation,
    ResourceType,
)
from kvorum.metadata.access.tokens import token_key
from kvorum.metadata.configs.effective import StaticValue
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.features import SUPPORTED, FeatureRange
from kvorum.metadata.image.image import BrokerImage, ClusterImage
from kvorum.metadata.image.records import Endpoint
from kvorum.metadata.rpc.calls import ControllerCall, Reply, Request
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.tasks import TaskGroup, report_failure
from kvorum.wire.framing import API_VERSIONS_KEY, response_head
from kvorum.wire.kio_codec import encode_response
from kvorum.wire.produce_codec import NodeEndpoint
from kvorum.wire.versions import Api

if TYPE_CHECKING:
    from kvorum.broker.events.driver import EventsDriver
    from kvorum.metadata.events.source import MetadataSource


CLUSTER_REFUSED = Rejected(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
"""The refusal of a client that may not perform the operation on the cluster; Kafka's words."""


TOPIC_REFUSED = Rejected(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")


class Services:
    """The broker, as its API files see it."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        replicas: ReplicaManager,
        controller: Controller,
        image: Callable[[], ClusterImage],
        cluster_id: str,
        broker_id: int,
        properties: Mapping[str, StaticValue] | None = None,
        supported_features: tuple[FeatureRange, ...] = SUPPORTED,
        metadata: MetadataSource | None = None,
        authorizer: Authorizer | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        self.config = config
        self.authorizer = authorizer
        """None: everybody may do everything."""
        self.audit = audit or AuditLog()
        self.certificates_problem: Callable[[Mapping[str, str]], str | None] = lambda configs: None
        """A sentence if this broker cannot use the certificates in dynamic configs of its own."""
        self.token_key = token_key(config.delegation_token_secret_key)
        """None: delegation tokens are off."""
        self.supported_features = supported_features
        self.replicas = replicas
        self.registry = replicas.registry
        self.metrics = replicas.metrics
        self.controller = controller
        self._image = image
        self.cluster_id = cluster_id
        self.broker_id = broker_id
        # All properties that the broker was started with; `config` is the part for brokers.
        self.properties = static_values(config) if properties is None else properties
        self.producer_ids = ProducerIdSource(controller, broker_id)
        self.internal_topics = InternalTopicMaker(self)
        self.groups = CoordinatorHost(
            topic=OFFSETS_TOPIC,
            replicas=replicas,
            make_shard=group_shard_maker(config, replicas.rng),
        )
        self.telemetry = ClientTelemetry()
        self.client_figures = ClientFigures()
        self.transaction_driver = TransactionDriver(self)
        self.transactions = CoordinatorHost(
            topic=TRANSACTIONS_TOPIC,
            replicas=replicas,
            make_shard=self.transaction_driver.make_shard,
            ask=self.transaction_driver.ask,
        )
        self.events = None if metadata is None else self._events_driver(metadata)
        self.quotas = ClientQuotas(
            samples_max=config.quota_window_num, sample_ms=config.quota_window_size_seconds * 1000
        )
        self.mutations = MutationBuckets(
            self.quotas,
            samples_max=config.quota_window_num,
            sample_ms=config.quota_window_size_seconds * 1000,
        )
        self.topic_metadata = TopicMetadata()
        self.fenced_visibility = FencedBrokerVisibility()
        replicas.image_listeners.append(self._on_image)
        self.caches: dict[str, Any] = {}
        """Caches that API files keep between requests, by a name of their own."""
        self.recompression_threads = RecompressionThreads()
        self._background = TaskGroup(report_failure)

    def _events_driver(self, metadata: MetadataSource) -> EventsDriver:
        # Imported only here: most clusters write no events of their metadata.
        from kvorum.broker.events.driver import EventsDriver

        return EventsDriver(self, metadata)

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
        await self.groups.stop()
        await self.transactions.stop()
        await self.transaction_driver.stop()
        if self.events is not None:
            await self.events.stop()
        await self._background.stop()
        self.recompression_threads.stop()

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
        ids = self.image().active_broker_ids()
        others = [i for i in ids if i != self.broker_id]
        if self.controller.is_lost and others:
            return next((i for i in others if i > self.broker_id), others[0])
        if self.broker_id in ids and not self.quotas.binds_mutations:
            return self.broker_id
        return ids[0] if ids else -1


@dataclass(slots=True, kw_only=True)
class RequestContext:
    """One request. slot: the place of its answer (hot handlers fill it themselves)."""

    services: Services
    api_version: int
    correlation_id: int
    client_id: str | None
    listener: str
    slot: Slot = field(repr=False)
    is_exempt: bool = False
    """True for requests of brokers, to which client quotas do not apply."""
    began_ms: int = -1
    """Start of the time that this broker has spent on the request and not counted yet; -1 if there
    is none, or if no request quota is set."""

    def answer(self, api: Api, values: Mapping[str, Any] | bytes) -> None:
        """Fill the slot. values: the answer's fields, or its encoded body; an encoded body has no
        throttle time."""
        try:
            self._answer(api, values)
        except (struct.error, ArithmeticError, MemoryError, TypeError, ValueError) as error:
            # The request was carried out. An answer that cannot be encoded (longer than a frame,
            # for example) closes this client's connection, and no other.
            self.slot.connection.fail_answer(api.name, error)

    def _answer(self, api: Api, values: Mapping[str, Any] | bytes) -> None:
        connection = self.slot.connection
        if self.began_ms >= 0:
            self.count_time(connection.now_ms())
        version = self.api_version
        if isinstance(values, bytes):
            body: bytes | bytearray = values
        else:
            code = values.get("error_code")
            if code:
                self.services.metrics.note_error(api.key, int(code))
            muted_ms = connection.muted_ms
            body = encode_response(
                api.name, version, {**values, "throttle_time": muted_ms} if muted_ms else values
            )
        # KIP-511: a client that does not know the served versions yet must be able to read that
        # answer.
        is_flexible = version >= api.first_flexible and api.key != API_VERSIONS_KEY
        head = response_head(self.correlation_id, len(body), is_flexible=is_flexible)
        self.slot.fill((head, body))

    def pause(self, kind: QuotaKind, amount: float) -> int:
        """Count `amount`, and the time spent, against the client's quotas. Returns the pause in ms
        for the answer: during it, the client's connection is not read from (KIP-219)."""
        quotas, connection = self.services.quotas, self.slot.connection
        if quotas.is_active and not self.is_exempt:
            now_ms = connection.now_ms()
            connection.mute(quotas.throttle_ms(kind, self.user, self.client_id, amount, now_ms))
            self.count_time(now_ms)
        return connection.muted_ms

    def count_time(self, now_ms: int) -> None:
        """Count the time spent on this request until now (request_percentage, KIP-124).

        Times are whole milliseconds: a request of a tenth of a millisecond counts as one in a tenth
        of all cases.
        """
        if self.began_ms >= 0 and not self.is_exempt:
            percent = (now_ms - self.began_ms) / 10
            self.began_ms = now_ms
            throttle_ms = self.services.quotas.throttle_ms(
                QuotaKind.REQUEST, self.user, self.client_id, percent, now_ms
            )
            self.slot.connection.mute(throttle_ms)

    # --- access ------------------------------------------------------------------------------

    @property
    def has_access_control(self) -> bool:
        """False if every client may do everything."""
        return self.services.authorizer is not None

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """True if the client may perform the operation on the resource. The audit log notes the
        check."""
        authorizer = self.services.authorizer
        if authorizer is None:
            return True
        user, host = self.user, self.slot.connection.address
        is_allowed = authorizer.is_allowed(user, host, operation, resource_type, name)
        audit = self.services.audit
        if audit.notes(is_allowed):
            audit.note_access(user, host, operation, resource_type, name, is_allowed=is_allowed)
        return is_allowed

    def shows(
        self,
        resource_type: ResourceType,
        name: str,
        operation: AclOperation = AclOperation.DESCRIBE,
    ) -> bool:
        """True if the client may know of the resource. For lists: the audit log does not note the
        resources that were left out."""
        authorizer = self.services.authorizer
        return authorizer is None or authorizer.is_allowed(
            self.user, self.slot.connection.address, operation, resource_type, name
        )

    def allows_on_cluster(self, operation: AclOperation) -> bool:
        """As `allows`, for the cluster."""
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def may_write_somewhere(self) -> bool:
        """True if there may be a topic that the client may write to."""
        authorizer = self.services.authorizer
        return authorizer is None or authorizer.is_allowed_on_any(
            self.user, self.slot.connection.address, AclOperation.WRITE, ResourceType.TOPIC
        )

    def allows_transactional_id(self, operation: AclOperation, name: str) -> bool:
        """As `allows`, for a transactional id."""
        return self.allows(operation, ResourceType.TRANSACTIONAL_ID, name)

    def shows_cluster_to(self, operation: AclOperation) -> bool:
        """As `allows_on_cluster`, without a note in the audit log: False refuses nothing yet, since
        a permission on another resource would do as well."""
        authorizer = self.services.authorizer
        return authorizer is None or authorizer.is_allowed(
            self.user, self.slot.connection.address, operation, ResourceType.CLUSTER, CLUSTER_NAME
        )

    def allows_topic(self, operation: AclOperation, name: str) -> bool:
        """As `allows`, for a topic."""
        return self.allows(operation, ResourceType.TOPIC, name)

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """The operations that the client may perform on the resource, as bits (KIP-430)."""
        found: Iterable[AclOperation] = OPERATIONS_OF[resource_type]
        authorizer = self.services.authorizer
        if authorizer is not None:
            found = authorizer.operations(
                self.user, self.slot.connection.address, resource_type, name, found
            )
        return operation_bits(*found)

    async def ask_controller(
        self,
        call: ControllerCall[Request, Reply],
        request: Request,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        *,
        needs: AclOperation,
    ) -> Reply | Rejected:
        """The controller's reply, for a client that may perform the operation on the cluster."""
        if not self.allows_on_cluster(needs):
            return CLUSTER_REFUSED
        return await self.services.controller.request(call, request, timeout_ms)

    @property
    def user(self) -> str:
        """The client's user: of its SASL login or its TLS certificate, or ANONYMOUS."""
        return self.slot.connection.user

    @property
    def came_by_token(self) -> bool:
        """True if the client has logged in with a delegation token."""
        authentication = self.slot.connection.authentication
        return authentication is not None and authentication.is_token

    @property
    def may_ask_about_tokens(self) -> bool:
        """True if the client is authenticated, and not by a delegation token: with a token, a
        client must not create tokens that live longer."""
        if self.slot.connection.authentication is None:
            return self.user != ANONYMOUS
        return not self.came_by_token

    @property
    def client_host(self) -> str:
        """The client's address as Kafka writes it in a member's metadata: `/127.0.0.1`."""
        return f"/{self.slot.connection.address}"
