"""A node sends in its own name alone: the table of senders, the rule, and its place in the
server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from kvorum.metadata.access.audit import AuditLog
from kvorum.metadata.access.authorizer import Authorizer
from kvorum.metadata.access.nodes import SENDER_OF, NodePrincipals
from kvorum.metadata.rpc.guard import ControllerGuard
from kvorum.rpc import controller_pb2, raft_pb2
from kvorum.runtime.http2.rpc import RpcServer, open_channel
from tests.test_runtime.http2_peers import free_port

NODES = NodePrincipals(controllers="controller-{id}", brokers="CN=broker-{id},O=Example")
HOST = "10.0.0.1"
OF_ADMINISTRATORS = {"AddVoter", "RemoveVoter"}
METHODS = {
    f"/{service.full_name}/{method.name}": method
    for module in (raft_pb2, controller_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if method.name not in OF_ADMINISTRATORS
}
FETCHES = {"/kvorum.rpc.Raft/Fetch", "/kvorum.rpc.Raft/FetchSnapshot"}
FIELDS = ("candidate_id", "leader_id", "replica_id", "controller_id", "broker_id")


def message_of(path: str, node_id: int) -> Any:
    """A message that says it comes from this node."""
    message = METHODS[path].input_type._concrete_class()
    name = next((name for name in FIELDS if name in message.DESCRIPTOR.fields_by_name), None)
    if name is None:
        message.voter.node_id = node_id
    else:
        setattr(message, name, node_id)
    return message


def test_every_method_between_nodes_names_its_sender() -> None:
    assert set(SENDER_OF) == set(METHODS)


@pytest.mark.parametrize("path", sorted(SENDER_OF))
def test_a_node_may_send_in_its_own_name_and_in_no_other(path: str) -> None:
    controller, broker = "controller-7", "CN=broker-7,O=Example"
    is_of_brokers = METHODS[path].input_type.fields_by_name.get("broker_id") is not None
    may_send = {broker} if is_of_brokers else {controller}
    if path in FETCHES:
        may_send = {broker, controller}
    for user in (
        controller, broker, "controller-70", "CN=broker-71,O=Example", "controller-{id}",
        "CN=broker-7", "ANONYMOUS", "admin",
    ):  # fmt: skip
        refusal = NODES.refusal(path, message_of(path, 7), user)
        assert (refusal is None) == (user in may_send), (user, refusal)
        if refusal is not None:
            assert user in refusal
            assert "not node 7" in refusal


@pytest.mark.parametrize("path", sorted(SENDER_OF))
def test_only_a_fetch_may_name_no_sender(path: str) -> None:
    refusal = NODES.refusal(path, message_of(path, -1), "admin")
    assert (refusal is None) == (path in FETCHES)


def test_requests_of_administrators_name_no_sender() -> None:
    message = raft_pb2.AddVoterRequest()
    assert NODES.refusal("/kvorum.rpc.Raft/AddVoter", message, "admin") is None


def test_without_principals_a_guard_lets_every_message_pass() -> None:
    guard = ControllerGuard(Authorizer())
    vote = "/kvorum.rpc.Raft/Vote"
    assert guard.refusal_of_message(vote, message_of(vote, 2), "admin", HOST) is None


def test_a_refused_message_is_audited(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="kvorum.audit")
    guard = ControllerGuard(Authorizer(), AuditLog(), nodes=NODES)
    vote = "/kvorum.rpc.Raft/Vote"
    assert guard.refusal_of_message(vote, message_of(vote, 2), "controller-1", HOST)
    (line,) = caplog.messages
    assert '"principal": "User:controller-1"' in line
    assert vote in line
    assert '"reason": "' in line and "not node 2" in line


def test_a_message_that_is_refused_ends_its_call_and_is_not_carried_out() -> None:
    carried_out: list[bytes] = []

    async def one(request: bytes, _: Any) -> bytes:
        carried_out.append(request)
        return request

    async def read_all(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            carried_out.append(request)
            yield request

    async def listen(_: Any, context: Any) -> None:
        def on_message(message: bytes) -> None:
            carried_out.append(message)
            assert context.try_write(message)

        await context.listen(on_message)

    def guard(path: str, message: Any, user: str, host: str) -> str | None:
        return f"{path} {user} {host}" if message == b"bad" else None

    async def refused(call: Callable[[], Any], path: str) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            async with asyncio.timeout(10):
                await call()
        assert ended.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert ended.value.details() == f"{path} ANONYMOUS 127.0.0.1"

    async def case() -> None:
        server = RpcServer(message_guard=guard)
        handlers = {
            "one": grpc.unary_unary_rpc_method_handler(one),
            "read": grpc.stream_stream_rpc_method_handler(read_all),
            "listen": grpc.stream_stream_rpc_method_handler(listen),
        }
        server.add_registered_method_handlers("s", handlers)
        address = f"127.0.0.1:{free_port()}"
        await server.listen(address)
        channel = open_channel(address)
        call = channel.unary_unary("/s/one")
        assert await call(b"good", timeout=10) == b"good"
        await refused(lambda: call(b"bad", timeout=10), "/s/one")
        for name in ("read", "listen"):
            stream = channel.stream_stream(f"/s/{name}")()
            await stream.write(b"good")
            assert await stream.read() == b"good"
            await stream.write(b"bad")
            await refused(stream.read, f"/s/{name}")
        assert carried_out == [b"good"] * 3
        await channel.close()
        await server.stop(0)

    asyncio.run(case())
