"""The callers of a controller: the table of methods, the guard, and its place in the server."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from kvorum.launch.config.properties import controller_config
from kvorum.metadata.access.authorizer import Authorizer
from kvorum.metadata.access.services import ACCESS_OF
from kvorum.metadata.image.acl import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.metadata.image.records import AccessControlEntry
from kvorum.metadata.rpc.guard import ControllerGuard
from kvorum.rpc import admin_pb2, controller_pb2, raft_pb2
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.http2.rpc import RpcServer, open_channel
from tests.polling import until
from tests.test_runtime.http2_peers import free_port

VOTE = "/kvorum.rpc.Raft/Vote"
HOST = "10.0.0.1"


def test_every_method_of_the_services_has_its_access_and_no_other() -> None:
    methods = {
        f"/{service.full_name}/{method.name}"
        for module in (raft_pb2, controller_pb2, admin_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert methods == set(ACCESS_OF)
    assert all(ACCESS_OF.values())


def image_with(
    *operations: AclOperation, user: str = "alice", of: ClusterImage = EMPTY_IMAGE
) -> ClusterImage:
    delta = Delta(of)
    for at, operation in enumerate(operations):
        acl = Acl(
            resource_type=ResourceType.CLUSTER,
            resource_name=CLUSTER_NAME,
            pattern_type=PatternType.LITERAL,
            principal=f"User:{user}",
            host="*",
            operation=operation,
            permission=Permission.ALLOW,
        )
        delta.replay(AccessControlEntry.of(bytes([at + 1] * 16), acl))
    return delta.apply(end_offset=of.end_offset + 1, epoch=1)


def guard_with(*operations: AclOperation) -> ControllerGuard:
    guard = ControllerGuard(Authorizer(super_users=["User:CN=broker-101"]))
    guard.update(image_with(*operations))
    return guard


@pytest.mark.parametrize("path", sorted(ACCESS_OF))
def test_a_stranger_may_call_nothing_and_a_node_everything(path: str) -> None:
    guard = guard_with()
    told = guard.refusal(path, "ANONYMOUS", HOST)
    assert told is not None and path in told
    assert "User:ANONYMOUS from 10.0.0.1, who may not " in told
    assert guard.refusal(path, "CN=broker-101", HOST) is None
    assert guard_with(AclOperation.CLUSTER_ACTION).refusal(path, "alice", HOST) is None


@pytest.mark.parametrize(
    ("operation", "allowed", "refused"),
    [
        (AclOperation.DESCRIBE, ["Admin/DescribeQuorum", "Admin/ListReassignments"],
         ["Admin/CreateTopics", "Admin/ReadMetadataLog", "Raft/Vote", "Raft/AddVoter"]),
        (AclOperation.CREATE, ["Admin/CreateTopics"], ["Admin/DeleteTopics"]),
        (AclOperation.ALTER_CONFIGS, ["Admin/AlterClientQuotas"], ["Admin/AlterConfigs"]),
        (AclOperation.ALTER, ["Admin/DeleteTopics", "Admin/CreateAcls", "Raft/AddVoter"],
         ["Raft/BeginQuorumEpoch", "Controller/RegisterBroker", "Admin/ReadMetadataLog"]),
    ],
)  # fmt: skip
def test_operators_have_what_their_acls_give(
    operation: AclOperation, allowed: list[str], refused: list[str]
) -> None:
    guard = guard_with(operation)
    for method in allowed:
        assert guard.refusal(f"/kvorum.rpc.{method}", "alice", HOST) is None
        assert guard.refusal(f"/kvorum.rpc.{method}", "bob", HOST) is not None
    for method in refused:
        assert guard.refusal(f"/kvorum.rpc.{method}", "alice", HOST) is not None


def test_a_refusal_names_what_a_person_or_a_node_lacks() -> None:
    guard = guard_with()
    of_person = guard.refusal("/kvorum.rpc.Raft/AddVoter", "eve", HOST)
    assert of_person is not None and "CLUSTER_ACTION" not in of_person
    assert "needs the operation ALTER on the cluster by an ACL" in of_person
    for path, operations in ACCESS_OF.items():
        told = guard.refusal(path, "eve", HOST)
        assert told is not None and f"may not {operations[-1].name} the cluster; " in told
        of_nodes = operations == (AclOperation.CLUSTER_ACTION,)
        assert ("controllers and brokers must be super.users, or have" in told) == of_nodes


def test_a_method_without_a_rule_is_refused() -> None:
    assert guard_with().refusal("/kvorum.rpc.Admin/New", "CN=broker-101", HOST) is not None


def test_the_guard_follows_the_image() -> None:
    guard = ControllerGuard(Authorizer())
    image = image_with(AclOperation.CLUSTER_ACTION)
    assert guard.update(image)
    assert guard.refusal(VOTE, "alice", HOST) is None
    assert not guard.update(image)
    assert guard.update(EMPTY_IMAGE)
    assert guard.refusal(VOTE, "alice", HOST) is not None


def test_a_refused_call_ends_before_its_message_is_read() -> None:
    read: list[bytes] = []
    refusing = True

    def parse(message: bytes) -> bytes:
        read.append(message)
        return message

    async def answer(request: bytes, _: Any) -> bytes:
        return request

    async def chat(_: Any, context: Any) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            await context.write(message)

    def guard(path: str, user: str, host: str) -> str | None:
        return f"{path} {user} {host}" if refusing else None

    async def case() -> None:
        nonlocal refusing
        server = RpcServer(guard=guard)
        handlers = {
            "answer": grpc.unary_unary_rpc_method_handler(answer, request_deserializer=parse),
            "chat": grpc.stream_stream_rpc_method_handler(chat, request_deserializer=parse),
        }
        server.add_registered_method_handlers("s", handlers)
        address = f"127.0.0.1:{free_port()}"
        await server.listen(address)
        channel = open_channel(address)
        call = channel.unary_unary("/s/answer")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(b"x", timeout=10)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert refused.value.details() == "/s/answer ANONYMOUS 127.0.0.1"
        assert read == []
        refusing = False
        assert await call(b"y", timeout=10) == b"y"
        stream = channel.stream_stream("/s/chat")()
        await stream.write(b"z")
        assert await stream.read() == b"z"
        # The ACLs change: a conversation under way ends, too.
        refusing = True
        server.check_conversations()
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            async with asyncio.timeout(10):
                await stream.read()
        assert ended.value.code() is grpc.StatusCode.PERMISSION_DENIED
        await channel.close()
        await server.stop(0)
        await until(lambda: not server._server.connections, "the server has no connections")

    asyncio.run(case())


def test_an_authorizer_without_certificates_is_refused_at_the_start() -> None:
    properties = {
        "node.id": 1,
        "cluster.id": "H8cXxonAvNgrLxjJFXJs9g",
        "listeners": "CONTROLLER://h:1",
        "controller.quorum.voters": "1@h:1",
        "log.dirs": "/nowhere",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    }
    with pytest.raises(ConfigError, match="every node is User:ANONYMOUS"):
        controller_config(properties)
    assert controller_config({**properties, "super.users": "User:ANONYMOUS"})[0].access is not None
