"""gRPC over TLS, with grpcio at either end: good and bad certificates, and who is at the other
end."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from kvorum.runtime.http2.rpc import (
    USUAL_PATIENCE,
    Channel,
    Patience,
    RpcServer,
    open_channel,
    rpc_caller,
    rpc_listener,
)
from kvorum.runtime.principals import PrincipalRules
from kvorum.runtime.tls import TlsSettings
from tests.certificates import Authority
from tests.polling import until
from tests.test_runtime.http2_peers import GRPCIO_OPTIONS, SERVICE, free_port, method, run
from tests.test_runtime.rpc_callers import HANDLERS, ask_who, echo, grpcio_channel, refusal

Code = grpc.StatusCode
RULES = PrincipalRules("RULE:^CN=(.*?),.*$/$1/L,DEFAULT")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def of_server(authority: Authority, file: Path, client_auth: str = "required") -> TlsSettings:
    return TlsSettings(
        what="the server", keystore=str(file), truststore=str(authority.file),
        client_auth=client_auth,
    )  # fmt: skip


def of_client(authority: Authority, file: Path | None = None, **more: Any) -> TlsSettings:
    keystore = str(file or "")
    return TlsSettings(what="the client", keystore=keystore, truststore=str(authority.file), **more)


@asynccontextmanager
async def serving(
    settings: TlsSettings | None, patience: Patience = USUAL_PATIENCE
) -> AsyncIterator[tuple[str, Any]]:
    """(address, TlsListener) of a server; None settings: in clear text."""
    tls = None if settings is None else rpc_listener(settings, RULES)
    server = RpcServer(patience, tls)
    server.add_registered_method_handlers(SERVICE, HANDLERS)
    address = f"127.0.0.1:{free_port()}"
    await server.listen(address)
    try:
        yield address, tls
    finally:
        await server.stop(0)
        await until(lambda: not server._server.connections, "the server has no connections")


@asynccontextmanager
async def calling(address: str, settings: TlsSettings | None) -> AsyncIterator[Channel]:
    tls = None if settings is None else rpc_caller(settings)
    channel = open_channel(address, tls=tls)
    try:
        yield channel
    finally:
        await channel.close()
        await until(lambda: not channel.connections, "the channel has no connections")


@pytest.mark.parametrize("kind", ["ours", "grpcio"])
def test_a_caller_is_the_user_of_its_certificate(kind: str, authority: Authority) -> None:
    async def case() -> None:
        mine = authority.client("Broker-101")
        async with serving(of_server(authority, authority.server("s.pem"))) as (address, _):
            if kind == "ours":
                async with calling(address, of_client(authority, mine)) as channel:
                    assert await ask_who(channel) == "broker-101 127.0.0.1"
                    large = b"y" * 3_000_000
                    assert await channel.unary_unary(method("echo"))(large) == large
            else:
                theirs = grpcio_channel(authority, address, mine)
                assert await ask_who(theirs) == "broker-101 127.0.0.1"
                await theirs.close()

    run(case())


def test_a_caller_without_certificate_is_anonymous(authority: Authority) -> None:
    async def case() -> None:
        settings = of_server(authority, authority.server("s.pem"), "requested")
        async with serving(settings) as (address, _), calling(address, of_client(authority)) as one:
            assert await ask_who(one) == "ANONYMOUS 127.0.0.1"
        async with serving(None) as (address, _), calling(address, None) as channel:
            assert await ask_who(channel) == "ANONYMOUS 127.0.0.1"

    run(case())


def test_a_server_of_grpcio_is_called_over_tls(authority: Authority) -> None:
    async def case() -> None:
        pem = authority.server("s.pem").read_bytes()
        server = grpc.aio.server(options=GRPCIO_OPTIONS)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, HANDLERS_OF_GRPCIO),)
        )
        credentials = grpc.ssl_server_credentials(
            [(pem, pem)], authority.file.read_bytes(), require_client_auth=True
        )
        address = f"127.0.0.1:{free_port()}"
        server.add_secure_port(address, credentials)
        await server.start()
        async with calling(address, of_client(authority, authority.client("Alice"))) as channel:
            assert await channel.unary_unary(method("echo"))(b"x" * 200_000) == b"x" * 200_000
        async with calling(address, of_client(authority)) as channel:
            assert address in await refusal(channel)
        await server.stop(0)

    run(case())


HANDLERS_OF_GRPCIO = {"echo": grpc.unary_unary_rpc_method_handler(echo)}


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("no certificate", "the other side asks for a certificate"),
        ("unknown CA here", "certificate is not accepted: self-signed certificate"),
        ("unknown CA there", "the other side does not know the CA of this side's certificate"),
        ("expired", "certificate has expired"),
        ("other name", "certificate is not valid for '127.0.0.1'"),
        ("plain client", "the other side speaks TLS"),
        ("plain server", "the other side does not speak TLS"),
    ],
)
def test_a_bad_handshake_names_its_reason(
    bad: str, words: str, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = Authority(tmp_path / "other")
    caplog.set_level(logging.WARNING, "kvorum.rpc")

    async def case() -> None:
        file = authority.server("s.pem", is_expired=bad == "expired")
        if bad == "other name":
            file = authority.node("Somebody", hosts=("elsewhere.example.org",))
        theirs = None if bad == "plain server" else of_server(authority, file)
        mine: TlsSettings | None = of_client(authority, authority.client("Alice"))
        if bad == "no certificate":
            mine = of_client(authority)
        elif bad == "unknown CA here":
            mine = of_client(other, authority.client("Alice"))
        elif bad == "unknown CA there":
            mine = of_client(authority, other.client("Alice"))
        elif bad == "plain client":
            mine = None
        async with serving(theirs) as (address, _), calling(address, mine) as channel:
            told = await refusal(channel)
            assert address in told and words in told
            await until(lambda: "127.0.0.1:" in caplog.text, "the server has a line")

    run(case())


def test_the_check_of_the_name_can_be_switched_off(authority: Authority) -> None:
    async def case() -> None:
        elsewhere = authority.node("Somebody", hosts=("elsewhere.example.org",))
        async with serving(of_server(authority, elsewhere)) as (address, _):
            settings = of_client(authority, authority.client("Alice"), checks_name=False)
            async with calling(address, settings) as channel:
                assert await ask_who(channel) == "alice 127.0.0.1"

    run(case())


def test_a_peer_without_alpn_is_refused(authority: Authority) -> None:
    def connect(address: str) -> bytes:
        context = ssl.create_default_context(cafile=str(authority.file))
        context.load_cert_chain(str(authority.client("Alice")))
        host, port = address.split(":")
        with (
            socket.create_connection((host, int(port))) as sock,
            context.wrap_socket(sock, server_hostname=host) as wrapped,
        ):
            try:
                return wrapped.recv(100)
            except ConnectionResetError:
                return b""

    async def case() -> None:
        async with serving(of_server(authority, authority.server("s.pem"))) as (address, _):
            assert await asyncio.to_thread(connect, address) == b""

    run(case())


def test_stalled_handshakes_end_and_hold_nobody_up(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "kvorum.rpc")

    async def case() -> None:
        settings = of_server(authority, authority.server("s.pem"))
        async with serving(settings, Patience(connect_ms=300)) as (address, _):
            host, port = address.split(":")
            stalled = [await asyncio.open_connection(host, int(port)) for _ in range(50)]
            async with calling(address, of_client(authority, authority.client("Alice"))) as channel:
                assert await ask_who(channel) == "alice 127.0.0.1"
            for reader, writer in stalled:
                assert await reader.read(1) == b""
                writer.close()
        assert "no TLS handshake within 0.3 s" in caplog.text
        # One line each would be a way to fill the disk.
        assert caplog.text.count("no TLS handshake") <= 20

    run(case())


def test_more_handshakes_than_the_limit_end_the_oldest(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvorum.runtime.http2.tls.HANDSHAKES_MAX", 3)

    async def case() -> None:
        settings = of_server(authority, authority.server("s.pem"))
        async with serving(settings, Patience(connect_ms=3_600_000)) as (address, _):
            host, port = address.split(":")
            stalled = [await asyncio.open_connection(host, int(port)) for _ in range(4)]
            assert await stalled[0][0].read(1) == b""
            for _, writer in stalled:
                writer.close()

    run(case())


def test_new_certificates_are_used_by_new_connections(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")

    async def case() -> None:
        file = authority.server("s.pem")
        mine = of_client(authority, authority.client("Alice"))
        # A listener takes no certificate of a CA that is not in its own truststore.
        both = tmp_path / "both.pem"
        both.write_text(authority.file.read_text() + other.file.read_text())
        settings = dataclasses.replace(of_server(authority, file), truststore=str(both))
        async with serving(settings) as (address, tls), calling(address, mine) as first:
            assert await ask_who(first) == "alice 127.0.0.1"
            other.server("new.pem").replace(file)
            tls.refresh()
            assert await ask_who(first) == "alice 127.0.0.1"
            async with calling(address, mine) as second:
                assert "certificate is not accepted" in await refusal(second)
            file.write_text("no certificate")
            tls.refresh()
            trusting = TlsSettings(
                what="the client", keystore=mine.keystore, truststore=str(other.file)
            )
            async with calling(address, trusting) as third:
                assert await ask_who(third) == "alice 127.0.0.1"

    run(case())
