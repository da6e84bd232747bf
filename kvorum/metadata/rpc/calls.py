"""The table of calls to the active controller: request, reply and service of each.

A new call needs a line here, its messages in proto/, its dataclasses in `metadata.requests`, and
its decision in `metadata.controller.decide`. Brokers, the command line and the controllers'
services send, serve and convert calls by this table.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kvorum.metadata.requests import acl_requests as acl
from kvorum.metadata.requests import config_requests as config
from kvorum.metadata.requests import controller_requests as r
from kvorum.metadata.requests import directory_requests as directory
from kvorum.metadata.requests import scram_requests as scram
from kvorum.metadata.requests import token_requests as token
from kvorum.rpc import admin_pb2, controller_pb2
from kvorum.runtime.errors import ErrorCode, Rejected, error_code_of
from kvorum.runtime.message_mapper import ByHand, MessageMapper, items_converters

Request = TypeVar("Request")
Reply = TypeVar("Reply")

ENVELOPE = ("status", "leader_id", "end_offset")
"""Fields of every reply: the refusal, the leader, and the end of the metadata log that holds the
outcome."""


@dataclass(frozen=True, slots=True)
class _Service:
    name: str
    messages: Any
    """The generated module with the service's messages."""


_ADMIN = _Service("kvorum.rpc.Admin", admin_pb2)
_CONTROLLER = _Service("kvorum.rpc.Controller", controller_pb2)


@dataclass(frozen=True, eq=False)
class ControllerCall(Generic[Request, Reply]):
    """One call.

    name: of the gRPC method; its messages are <name>Request and <name>Reply.
    request, reply: dataclasses; a reply may also be a tuple of them, one for each item of the
        request.
    is_for_client: a client waits for the reply, so the caller gives up early if there is no leader.
        The broker's own calls are repeated until they succeed, because no client would repeat them.
    by_hand: fields of the request whose two forms differ in more than their types.
    """

    service: _Service
    name: str
    request: type[Request]
    reply: type[Reply]
    is_for_client: bool = True
    by_hand: Mapping[str, ByHand] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The HTTP/2 path of the method."""
        return f"/{self.service.name}/{self.name}"

    def encode_request(self, request: Request) -> Any:
        """The protobuf message of a request."""
        return self._request_mapper.encode(request)

    def decode_request(self, message: Any) -> Request:
        """The request in a message. Raises WireError for an unknown number of an enum."""
        return self._request_mapper.decode(message)

    def encode_reply(self, reply: Reply | Rejected, leader_id: int, end_offset: int) -> Any:
        """The message of a reply or a refusal. leader_id: the leader that this node knows.

        end_offset: of the metadata that this node has committed; omitted if the message has no such
            field.
        """
        envelope: dict[str, Any] = {"leader_id": leader_id}
        if isinstance(reply, Rejected):
            envelope["status"] = {"code": reply.code, "message": reply.message}
            return self._reply_class(**envelope)
        envelope["status"] = {}
        if "end_offset" in self._reply_class.DESCRIPTOR.fields_by_name:
            envelope["end_offset"] = end_offset
        return self._reply_class(**envelope, **self._reply_converters[0](reply))

    def decode_reply(self, message: Any) -> Reply | Rejected:
        """The reply in a message, or the refusal."""
        if message.status.code != ErrorCode.NONE:
            return Rejected(error_code_of(message.status.code), message.status.message)
        reply: Reply = self._reply_converters[1](message)
        return reply

    def method(self, channel: Any) -> Callable[..., Any]:
        """The callable for this call on a channel of Kvorum's or grpc's: message and timeout to the
        reply's message."""
        callable_: Callable[..., Any] = channel.unary_unary(
            self.path,
            request_serializer=self._request_class.SerializeToString,
            response_deserializer=self._reply_class.FromString,
        )
        return callable_

    @property
    def _request_class(self) -> Any:
        return getattr(self.service.messages, f"{self.name}Request")

    @property
    def _reply_class(self) -> Any:
        return getattr(self.service.messages, f"{self.name}Reply")

    @functools.cached_property
    def _request_mapper(self) -> MessageMapper[Request]:
        return MessageMapper(self.request, self._request_class, by_hand=self.by_hand)

    @functools.cached_property
    def _reply_converters(self) -> tuple[Callable[[Any], dict[str, Any]], Callable[[Any], Any]]:
        """The conversions from a reply to the fields of its message, without ENVELOPE, and back."""
        fields = [f for f in self._reply_class.DESCRIPTOR.fields if f.name not in ENVELOPE]
        if typing.get_origin(self.reply) is tuple:
            (items,) = fields
            encode, decode = items_converters(typing.get_args(self.reply)[0], items)
            return lambda reply: {items.name: encode(reply)}, lambda message: decode(
                getattr(message, items.name)
            )
        mapper = MessageMapper(self.reply, self._reply_class, apart=ENVELOPE)
        return mapper.to_dict, mapper.decode


def _by_directory(replicas: Iterable[directory.ReplicaDirectory]) -> list[dict[str, Any]]:
    grouped: dict[bytes, dict[bytes, list[int]]] = {}
    for replica in replicas:
        topics = grouped.setdefault(replica.directory_id, {})
        topics.setdefault(replica.topic_id, []).append(replica.partition_id)
    return [
        {
            "directory_id": directory_id,
            "topics": [
                {"topic_id": topic_id, "partition_ids": partition_ids}
                for topic_id, partition_ids in topics.items()
            ],
        }
        for directory_id, topics in grouped.items()
    ]


def _of_directories(messages: Iterable[Any]) -> tuple[directory.ReplicaDirectory, ...]:
    return tuple(
        directory.ReplicaDirectory(
            topic_id=topic.topic_id, partition_id=partition_id, directory_id=each.directory_id
        )
        for each in messages
        for topic in each.topics
        for partition_id in topic.partition_ids
    )


CREATE_TOPICS = ControllerCall(_ADMIN, "CreateTopics", r.CreateTopics, tuple[r.CreatedTopic, ...])
DELETE_TOPICS = ControllerCall(_ADMIN, "DeleteTopics", r.DeleteTopics, tuple[r.DeletedTopic, ...])
CREATE_PARTITIONS = ControllerCall(
    _ADMIN, "CreatePartitions", r.CreatePartitions, tuple[r.CreatedPartitions, ...]
)
ALTER_REASSIGNMENTS = ControllerCall(
    _ADMIN, "AlterReassignments", r.AlterReassignments, tuple[r.ReassignedPartition, ...]
)
LIST_REASSIGNMENTS = ControllerCall(
    _ADMIN, "ListReassignments", r.ListReassignments, tuple[r.OngoingReassignment, ...]
)
ELECT_LEADERS = ControllerCall(_ADMIN, "ElectLeaders", r.ElectLeaders, tuple[r.ElectedLeader, ...])
ALTER_CONFIGS = ControllerCall(
    _ADMIN, "AlterConfigs", config.AlterConfigs, tuple[config.AlteredConfigs, ...]
)
ALTER_CLIENT_QUOTAS = ControllerCall(
    _ADMIN, "AlterClientQuotas", config.AlterClientQuotas, tuple[config.AlteredQuota, ...]
)
ALTER_SCRAM_CREDENTIALS = ControllerCall(
    _ADMIN,
    "AlterScramCredentials",
    scram.AlterScramCredentials,
    tuple[scram.AlteredScramUser, ...],
)
CREATE_ACLS = ControllerCall(_ADMIN, "CreateAcls", acl.CreateAcls, tuple[acl.CreatedAcl, ...])
DELETE_ACLS = ControllerCall(_ADMIN, "DeleteAcls", acl.DeleteAcls, tuple[acl.DeletedAcls, ...])
CREATE_DELEGATION_TOKEN = ControllerCall(
    _ADMIN, "CreateDelegationToken", token.CreateDelegationToken, token.CreatedDelegationToken
)
RENEW_DELEGATION_TOKEN = ControllerCall(
    _ADMIN, "RenewDelegationToken", token.RenewDelegationToken, token.TokenExpiration
)
EXPIRE_DELEGATION_TOKEN = ControllerCall(
    _ADMIN, "ExpireDelegationToken", token.ExpireDelegationToken, token.TokenExpiration
)
UPDATE_FEATURES = ControllerCall(
    _ADMIN, "UpdateFeatures", r.UpdateFeatures, tuple[r.UpdatedFeature, ...]
)
UNREGISTER_BROKER = ControllerCall(
    _ADMIN, "UnregisterBroker", r.UnregisterBrokerRequest, r.UnregisteredBroker
)
UNREGISTER_CONTROLLER = ControllerCall(
    _ADMIN, "UnregisterController", r.UnregisterControllerRequest, r.UnregisteredController
)

REGISTER_BROKER = ControllerCall(
    _CONTROLLER,
    "RegisterBroker",
    r.RegisterBrokerRequest,
    r.RegisteredBroker,
    is_for_client=False,
)
ALTER_PARTITION = ControllerCall(
    _CONTROLLER,
    "AlterPartition",
    r.AlterPartition,
    tuple[r.AlteredPartition, ...],
    is_for_client=False,
)
ASSIGN_REPLICAS = ControllerCall(
    _CONTROLLER,
    "AssignReplicas",
    directory.AssignReplicas,
    tuple[directory.RefusedReplica, ...],
    is_for_client=False,
    by_hand={"replicas": ByHand(_by_directory, _of_directories, "directories")},
)
ALLOCATE_PRODUCER_IDS = ControllerCall(
    _CONTROLLER, "AllocateProducerIds", r.AllocateProducerIds, r.ProducerIdBlock
)
REGISTER_CONTROLLER = ControllerCall(
    _CONTROLLER,
    "RegisterController",
    r.RegisterControllerRequest,
    r.RegisteredController,
    is_for_client=False,
)

ADMIN_CALLS: tuple[ControllerCall[Any, Any], ...] = (
    CREATE_TOPICS,
    DELETE_TOPICS,
    CREATE_PARTITIONS,
    ALTER_REASSIGNMENTS,
    LIST_REASSIGNMENTS,
    ELECT_LEADERS,
    ALTER_CONFIGS,
    ALTER_CLIENT_QUOTAS,
    ALTER_SCRAM_CREDENTIALS,
    CREATE_ACLS,
    DELETE_ACLS,
    CREATE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    UPDATE_FEATURES,
    UNREGISTER_BROKER,
    UNREGISTER_CONTROLLER,
)
"""Calls of operators and, through a broker, of Kafka's clients."""

CONTROLLER_CALLS: tuple[ControllerCall[Any, Any], ...] = (
    REGISTER_BROKER,
    ALTER_PARTITION,
    ASSIGN_REPLICAS,
    ALLOCATE_PRODUCER_IDS,
    REGISTER_CONTROLLER,
)
"""Calls of brokers and of the other controllers."""

HEARTBEAT_REQUEST = MessageMapper(r.Heartbeat, controller_pb2.HeartbeatRequest)
"""Heartbeats have a stream of their own, so they are not in the table of calls."""

CONFIG_OPERATION = MessageMapper(config.ConfigOperation, admin_pb2.ConfigOperation)
"""One change of a logger's level. AlterLoggers is not in the table of calls, because each
controller changes its own loggers."""

HEARTBEAT_REPLY = MessageMapper(
    r.HeartbeatReply, controller_pb2.HeartbeatReply, apart=("status", "leader_id")
)
