"""Callers of a controller's port that send cheap frames without an end, or long chains of
certificates: the server hangs up on them, and serves all others meanwhile."""

from __future__ import annotations

import asyncio
import datetime
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kvorum.metadata.access.authorizer import Authorizer
from kvorum.metadata.rpc.guard import ControllerGuard
from kvorum.runtime.http2 import floods, frames, headers
from kvorum.runtime.http2.connection import STREAMS_MAX
from kvorum.runtime.http2.floods import Flood
from kvorum.runtime.http2.frames import ProtocolError
from kvorum.runtime.http2.rpc import open_channel, rpc_listener
from kvorum.runtime.http2.server import Server
from kvorum.runtime.http2.tls import ALPN
from kvorum.runtime.principals import PrincipalRules
from kvorum.runtime.tls import TlsSettings
from tests.certificates import Authority
from tests.polling import until
from tests.test_runtime.http2_by_hand import REQUEST, ByHand, client_by_hand
from tests.test_runtime.http2_peers import free_port, run

SERVICE = "kvorum.rpc.Raft"
BLOCK = headers.encode(((":path", f"/{SERVICE}/Vote"), *REQUEST))
CALM = frames.ENHANCE_YOUR_CALM
LIMIT = floods.REFUSALS_PER_SECOND_MAX
"""One call more is sent: what came behind it would reset the connection, goodbye and all."""


@pytest.fixture
def long_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the second of the flood counters ten minutes long, because a busy machine may need long
    to read what these tests send."""
    monkeypatch.setattr(floods, "_SECOND_MS", 600_000)


class Served:
    """A server whose guard refuses all but super users, and one without a guard."""

    def __init__(self) -> None:
        self.begun = 0

    async def vote(self, request: bytes, _: Any) -> bytes:
        self.begun += 1
        return request

    @asynccontextmanager
    async def server(self, *, is_guarded: bool) -> AsyncIterator[tuple[str, Server]]:
        guard = ControllerGuard(Authorizer()).refusal if is_guarded else None
        server = Server(guard=guard)
        handler = grpc.unary_unary_rpc_method_handler(self.vote)
        server.add_handlers(SERVICE, {"Vote": handler})
        port = free_port()
        await server.listen("127.0.0.1", port)
        try:
            yield f"127.0.0.1:{port}", server
        finally:
            await server.stop(0)
            await until(lambda: not server.connections, "the server has no connections")


def call(stream_id: int) -> bytes:
    return frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream_id, BLOCK)


async def goodbye(client: ByHand) -> tuple[int, str]:
    farewell = await client.until(frames.GOAWAY)
    await client.until_over()
    return int.from_bytes(farewell.payload[4:8], "big"), farewell.payload[8:].decode()


async def refused(address: str) -> grpc.StatusCode:
    channel = open_channel(address)
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await channel.unary_unary(f"/{SERVICE}/Vote")(b"", timeout=10)
    await channel.close()
    code: grpc.StatusCode = failed.value.code()
    return code


def test_calls_that_are_refused_again_and_again_end_the_connection(
    caplog: pytest.LogCaptureFixture, long_second: None
) -> None:
    """A caller with a certificate and without rights. Bug: 15,000 calls fit into one read, and held
    the loop of a controller for half a second."""
    served = Served()

    async def case() -> None:
        async with served.server(is_guarded=True) as (address, server):
            async with client_by_hand(address) as client:
                client.send(*(call(2 * number + 1) for number in range(LIMIT + 1)))
                code, words = await goodbye(client)
                assert code == CALM and "refused calls" in words
                answered = [f for f in client.passed if f.kind == frames.HEADERS]
                assert len(answered) <= floods.REFUSALS_PER_SECOND_MAX + 1
            assert await refused(address) is grpc.StatusCode.PERMISSION_DENIED
            assert served.begun == 0
            await until(lambda: not server.connections, "they are closed")

    with caplog.at_level(logging.WARNING, logger="kvorum.rpc"):
        run(case())
    assert len([r for r in caplog.records if r.name == "kvorum.rpc"]) <= 22


@pytest.mark.parametrize("path", ["/kvorum.rpc.Raft/Nothing", ""])
def test_calls_of_unknown_methods_end_it_too(path: str, long_second: None) -> None:
    async def case() -> None:
        async with (
            Served().server(is_guarded=False) as (address, _),
            client_by_hand(address) as client,
        ):
            for number in range(LIMIT + 1):
                client.call(2 * number + 1, path, flags=frames.END_STREAM)
            assert (await goodbye(client))[0] == CALM

    run(case())


def test_settings_without_an_end_close_the_connection(long_second: None) -> None:
    """Each SETTINGS frame changes the windows of all streams. Bug: 17,000 frames, with a thousand
    calls open, held the loop for two seconds, long enough for a controller to lose its
    leadership."""

    async def case() -> None:
        async with (
            Served().server(is_guarded=False) as (address, _),
            client_by_hand(address) as client,
        ):
            for number in range(STREAMS_MAX):
                client.head(2 * number + 1, BLOCK)
            for number in range(floods.SETTINGS_PER_SECOND_MAX):
                client.settings(initial_window_size=70_000 + number % 2)
            code, words = await goodbye(client)
            assert code == CALM and "SETTINGS" in words
            acks = [f for f in client.passed if f.kind == frames.SETTINGS and f.flags]
            assert len(acks) <= floods.SETTINGS_PER_SECOND_MAX

    run(case())


def test_streams_that_are_opened_and_reset_leave_nothing() -> None:
    served = Served()

    async def case() -> None:
        async with (
            served.server(is_guarded=False) as (address, server),
            client_by_hand(address) as client,
        ):
            for number in range(5_000):
                client.head(2 * number + 1, BLOCK)
                client.send(frames.rst_stream(2 * number + 1, frames.CANCEL))
            # Streams beyond the limit were refused, because a cancelled stream counts until its
            # handler has ended.
            await client.until(frames.RST_STREAM)
            client.send(call(10_001))
            (connection,) = server.connections
            await until(lambda: not connection.streams and not connection.calls, "all ended")
            assert len(server._calls) == 0

    run(case())


def test_a_flood_is_counted_by_the_second() -> None:
    flood = Flood(2, "things")
    for now_ms in (1_000, 1_999, 2_000, 2_999):
        flood.count(now_ms)
    with pytest.raises(ProtocolError, match="more than 2 things within a second"):
        flood.count(2_999)
    flood.count(3_000)


# --- over TLS --------------------------------------------------------------------------------


def chained(authority: Authority, length: int, target: Path) -> Path:
    """A client's key and certificate, with this many CAs between it and the authority."""
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    issuer, signer = authority._ca.certificate.subject, authority._ca.key
    chain: list[bytes] = []
    for number in range(length + 1):
        key = ec.generate_private_key(ec.SECP256R1())
        is_ca = number < length
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"link {number}")])
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .sign(signer, hashes.SHA256())
        )
        chain.insert(0, made.public_bytes(serialization.Encoding.PEM))
        issuer, signer = name, key
    pem = signer.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    target.write_bytes(pem + b"".join(chain))
    return target


@asynccontextmanager
async def encrypted(authority: Authority) -> AsyncIterator[tuple[int, Server]]:
    settings = TlsSettings(
        what="the server", keystore=str(authority.node("node")), truststore=str(authority.file),
        client_auth="required",
    )  # fmt: skip
    tls = rpc_listener(settings, PrincipalRules())
    server = Server(tls=tls, guard=ControllerGuard(Authorizer()).refusal)
    handler = grpc.unary_unary_rpc_method_handler(Served().vote)
    server.add_handlers(SERVICE, {"Vote": handler})
    port = free_port()
    await server.listen("127.0.0.1", port)
    try:
        yield port, server
    finally:
        await server.stop(0)
        await until(lambda: not server.connections, "the server has no connections")


def shown(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(certificate)
    context.set_alpn_protocols([ALPN])
    return context


@pytest.mark.parametrize("length", [100, 250])
def test_a_long_chain_of_certificates_is_no_way_in(tmp_path: Path, length: int) -> None:
    """The authority of these tests signs no other CA, so the chain proves nothing."""
    authority = Authority(tmp_path / "ca")
    long = chained(authority, length, tmp_path / "long.pem")
    good = authority.node("good", "good.pem")

    async def said(port: int, certificate: Path) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=shown(certificate))
        try:
            writer.write(frames.PREFACE)
            return await reader.read(9)
        except (ssl.SSLError, ConnectionError):
            return b""
        finally:
            writer.transport.abort()

    async def case() -> None:
        async with encrypted(authority) as (port, _):
            for _ in range(5):
                try:
                    assert await said(port, long) == b""
                except (ssl.SSLError, ConnectionError):
                    continue
            assert await said(port, good) != b""

    run(case())


def test_after_its_goodbye_the_server_hears_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """This holds over TLS too, where TLS records that came with the bad frame wait to be
    decrypted."""
    authority = Authority(tmp_path / "ca")
    file = authority.node("node", "client.pem")

    async def case() -> None:
        async with encrypted(authority) as (port, server):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=shown(file))
            writer.write(frames.PREFACE + frames.settings({}))
            writer.write(frames.frame(frames.PING, 0, 0, b"short") + bytes(200_000))
            while await reader.read(65_536):
                pass
            writer.transport.abort()
            await until(lambda: not server.connections, "it is closed")

    with caplog.at_level(logging.WARNING, logger="kvorum.rpc"):
        run(case())
    assert len([r for r in caplog.records if "broke HTTP/2" in r.getMessage()]) == 1
