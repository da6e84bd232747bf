"""Calls over TLS that tell who the caller is, for servers under test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.certificates import Authority
from tests.test_runtime.http2_peers import GRPCIO_OPTIONS, method


async def who(_: bytes, context: Any) -> bytes:
    """The caller as the server sees it."""
    return f"{context.user} {context.host}".encode()


async def echo(request: bytes, _: Any) -> bytes:
    return request


HANDLERS = {
    "who": grpc.unary_unary_rpc_method_handler(who),
    "echo": grpc.unary_unary_rpc_method_handler(echo),
}


async def ask_who(channel: Any) -> str:
    told: bytes = await channel.unary_unary(method("who"))(b"", timeout=10)
    return told.decode()


async def refusal(channel: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await ask_who(channel)
    assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
    return str(failed.value.details())


def grpcio_channel(authority: Authority, address: str, file: Path | None) -> Any:
    pem = None if file is None else file.read_bytes()
    credentials = grpc.ssl_channel_credentials(authority.file.read_bytes(), pem, pem)
    return grpc.aio.secure_channel(address, credentials, options=GRPCIO_OPTIONS)
