"""The arguments of an API handler: the broker's parts and the request's header."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kvorum.broker.api.services import Services
from kvorum.broker.controller_channel.controller_api import REQUEST_TIMEOUT_MS
from kvorum.broker.metadata_answers.authorized_operations import operation_bits
from kvorum.broker.network.connection import ANONYMOUS, Slot
from kvorum.broker.quotas.client_quotas import QuotaKind
from kvorum.broker.quotas.mutation_quota import MutationCharge
from kvorum.metadata.image.acl import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    AclOperation,
    ResourceType,
)
from kvorum.metadata.rpc.calls import ControllerCall, Reply, Request
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.framing import API_VERSIONS_KEY, response_head
from kvorum.wire.kio_codec import encode_response, read_request
from kvorum.wire.versions import Api

CLUSTER_REFUSED = Rejected(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
"""The refusal of a client that may not perform the operation on the cluster; Kafka's words."""

TOPIC_REFUSED = Rejected(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")


class ItemOutcome(Protocol):
    """The controller's result for one item of a request."""

    @property
    def error(self) -> ErrorCode: ...

    @property
    def message(self) -> str: ...


def error_fields(item: ItemOutcome) -> dict[str, Any]:
    """error_code and error_message of one item's result; no message without an error."""
    is_done = item.error == ErrorCode.NONE
    return {"error_code": item.error, "error_message": None if is_done else item.message}


def refusal_fields(refused: Rejected | ErrorCode | None) -> dict[str, Any]:
    """error_code and error_message of a refusal; NONE and null without one."""
    if isinstance(refused, Rejected):
        return {"error_code": refused.code, "error_message": refused.message}
    return {"error_code": ErrorCode.NONE if refused is None else refused, "error_message": None}


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

    def answer(self, api: Api, values: Mapping[str, Any] | bytes | tuple[bytes, ...]) -> None:
        """Fill the slot. values: the answer's fields, or its encoded body, also in pieces; an
        encoded body has no throttle time."""
        try:
            self._answer(api, values)
        except (struct.error, ArithmeticError, MemoryError, TypeError, ValueError) as error:
            # The request was carried out. An answer that cannot be encoded (longer than a frame,
            # for example) closes this client's connection, and no other.
            self.slot.connection.fail_answer(api.name, error)

    def _answer(self, api: Api, values: Mapping[str, Any] | bytes | tuple[bytes, ...]) -> None:
        connection = self.slot.connection
        if self.began_ms >= 0:
            self.count_time(connection.now_ms())
        version = self.api_version
        body: Sequence[bytes | bytearray]
        if isinstance(values, bytes):
            body = (values,)
        elif isinstance(values, tuple):
            body = values
        else:
            code = values.get("error_code")
            if code:
                self.services.metrics.note_error(api.key, int(code))
            muted_ms = connection.muted_ms
            fields = {**values, "throttle_time": muted_ms} if muted_ms else values
            body = (encode_response(api.name, version, fields),)
        # KIP-511: a client that does not know the served versions yet must be able to read that
        # answer.
        is_flexible = version >= api.first_flexible and api.key != API_VERSIONS_KEY
        size = sum(map(len, body))
        head = response_head(self.correlation_id, size, is_flexible=is_flexible)
        self.slot.fill((head, *body))

    def pause(self, kind: QuotaKind, amount: float) -> int:
        """Count `amount`, and the time spent, against the client's quotas. Returns the pause in ms
        for the answer: during it, the client's connection is not read from (KIP-219)."""
        quotas, connection = self.services.quotas, self.slot.connection
        if quotas.is_active and not self.is_exempt:
            now_ms = connection.now_ms()
            connection.mute(quotas.throttle_ms(kind, self.user, self.client_id, amount, now_ms))
            self.count_time(now_ms)
        return connection.muted_ms

    def mutation_charge(self, strict_version: int) -> MutationCharge:
        """The charge for partitions that are created or deleted. strict_version: the API's first
        version whose clients know THROTTLING_QUOTA_EXCEEDED."""
        services = self.services
        return MutationCharge(
            services.mutations,
            self.user,
            self.client_id,
            services.now_ms,
            is_strict=self.api_version >= strict_version,
        )

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

    # --- parsing -----------------------------------------------------------------------------

    @property
    def request_items_max(self) -> int:
        return self.services.config.kvorum_request_items_max

    def read_request(self, name: str, body: memoryview) -> Any:
        """The kio entity of the request's body. Raises WireError."""
        return read_request(name, self.api_version, body, items_max=self.request_items_max)

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

    def may_follow_as(self, broker_id: int) -> bool:
        """True if the client may fetch as the follower of this id: it needs CLUSTER_ACTION and,
        where the principals of brokers are known, that of this broker. A false follower could have
        records acknowledged that no replica holds."""
        if not self.allows_on_cluster(AclOperation.CLUSTER_ACTION):
            return False
        nodes = self.services.node_principals
        if nodes is None or self.user == nodes.broker(broker_id):
            return True
        audit = self.services.audit
        if audit.notes(is_allowed=False):
            audit.note_access(
                self.user, self.slot.connection.address, AclOperation.CLUSTER_ACTION,
                ResourceType.CLUSTER, CLUSTER_NAME, is_allowed=False,
                reason=f"a fetch as broker {broker_id}, who is User:{nodes.broker(broker_id)}",
            )  # fmt: skip
        return False

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
