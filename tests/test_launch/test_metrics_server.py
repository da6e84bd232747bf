"""The HTTP server of a node: the requests that it refuses, and its configuration."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import Any

import pytest

from kvorum.launch.config.properties import broker_config
from kvorum.launch.metrics.server import CONNECTIONS_MAX, HEAD_BYTES_MAX, MetricsServer, Send
from kvorum.runtime.certificates import TlsListener
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.principals import PrincipalRules
from kvorum.runtime.tls import TlsSettings
from tests.certificates import Authority
from tests.live.http import ask
from tests.polling import DEADLINE_S


async def page(send: Send) -> None:
    await send(b"page\n")


def made() -> MetricsServer:
    return MetricsServer({}, {"/metrics": page})


def properties(folder) -> dict[str, Any]:
    return {
        "node.id": 101, "cluster.id": "AAAAAAAAAAAAAAAAAAAAAQ",
        "listeners": "PLAINTEXT://127.0.0.1:9092", "log.dirs": str(folder),
        "controller.quorum.voters": "1@127.0.0.1:9093",
    }  # fmt: skip


def test_a_page_over_tls_has_the_certificate_of_now(tmp_path) -> None:
    authority = Authority(tmp_path)
    keystore = authority.server("node.pem")
    settings = TlsSettings(what="the listener METRICS", keystore=str(keystore))
    tls = TlsListener(settings, PrincipalRules())
    client = ssl.create_default_context(cafile=str(authority.file))

    def scraped(port: int) -> tuple[bytes, int]:
        """The answer, and the number of the certificate that came with it."""
        with (
            socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as plain,
            client.wrap_socket(plain, server_hostname="127.0.0.1") as peer,
        ):
            peer.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            found = peer.getpeercert()
            return b"".join(iter(lambda: peer.recv(4096), b"")), int(found["serialNumber"], 16)

    async def run() -> None:
        server = made()
        port = await server.start("127.0.0.1", 0, tls)
        try:
            answer, first = await asyncio.to_thread(scraped, port)
            assert answer.endswith(b"page\n")
            authority.server("node.pem")
            tls.refresh()
            assert (await asyncio.to_thread(scraped, port))[1] != first
            # Clear text on a TLS port gets no answer, and disturbs no other scrape.
            with contextlib.suppress(ConnectionResetError):
                said = await asyncio.to_thread(ask, port, b"GET /metrics HTTP/1.1\r\n\r\n")
                assert b"page" not in said
            assert (await asyncio.to_thread(scraped, port))[0].endswith(b"page\n")
        finally:
            await server.stop()

    asyncio.run(run())


def test_a_listener_over_tls_needs_the_nodes_certificate(tmp_path) -> None:
    given = properties(tmp_path) | {"metrics.listener": "HTTPS://127.0.0.1:9404"}
    with pytest.raises(ConfigError, match="the listener METRICS needs a certificate"):
        broker_config(given)
    keystore = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/etc/kvorum/node.pem"}
    made_of, *_ = broker_config(given | keystore)
    assert made_of.metrics_tls is not None and made_of.metrics == ("127.0.0.1", 9404)
    assert broker_config(properties(tmp_path) | keystore)[0].metrics_tls is None


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
        (b"\x00\x00\x00\x12garbage\r\n\r\n", b"400 Bad Request"),
        (b"GET /metrics HTTP/1.1\r\n", b""),
        (b"GET /metrics HTTP/1.1\r\nA: " + b"b" * 2 * HEAD_BYTES_MAX + b"\r\n\r\n", b""),
        (b"HEAD /metrics?x=1 HTTP/1.0\r\n\r\n", b"200 OK"),
    ],
)
def test_what_is_no_scrape_is_answered_in_words_or_closed(
    request_bytes: bytes, status: bytes
) -> None:
    async def run() -> bytes:
        server = made()
        port = await server.start("127.0.0.1", 0)
        try:
            return await asyncio.to_thread(ask, port, request_bytes)
        except ConnectionResetError:
            return b""
        finally:
            await server.stop()

    answer = asyncio.run(run())
    assert answer.split(b"\r\n")[0] == (b"HTTP/1.1 " + status if status else b"")
    assert b"page" not in answer


def test_only_so_many_may_scrape_at_a_time() -> None:
    async def run() -> int:
        server = made()
        port = await server.start("127.0.0.1", 0)
        pairs = [
            await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX + 1)
        ]
        closed = await asyncio.wait_for(pairs[-1][0].read(), DEADLINE_S)
        for _, writer in pairs:
            writer.close()
        await server.stop()
        return len(closed)

    assert asyncio.run(run()) == 0


@pytest.mark.parametrize("text", ["9100", "HTTP://nowhere", "PLAINTEXT://127.0.0.1:1"])
def test_a_listener_that_is_none_is_refused(text: str, tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"metrics\.listener"):
        broker_config({**properties(tmp_path), "metrics.listener": text})


@pytest.mark.parametrize("text", ["", "jmx", "kvorum,", "kafka,kafka"])
def test_unknown_sets_of_names_are_refused(text: str, tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"metrics\.names=.* must be kvorum, kafka, or both"):
        broker_config({**properties(tmp_path), "metrics.names": text})


def test_both_sets_of_names_are_accepted(tmp_path) -> None:
    config, _ = broker_config({**properties(tmp_path), "metrics.names": "kvorum, kafka"})
    assert config.metrics_names == ("kvorum", "kafka")


def test_a_port_in_use_is_refused_with_its_address() -> None:
    async def run() -> str:
        first, second = made(), made()
        port = await first.start("127.0.0.1", 0)
        try:
            with pytest.raises(ConfigError) as refused:
                await second.start("127.0.0.1", port)
        finally:
            await first.stop()
        return str(refused.value).replace(str(port), "PORT")

    assert asyncio.run(run()) == (
        "metrics.listener: cannot listen on 127.0.0.1:PORT: Address already in use; give this "
        "node an address of its own"
    )


def test_a_page_of_any_length_comes_in_chunks() -> None:
    async def run() -> bytes:
        server = made()
        port = await server.start("127.0.0.1", 0)
        try:
            return await asyncio.to_thread(ask, port, b"GET /metrics HTTP/1.1\r\n\r\n")
        finally:
            await server.stop()

    head, _, body = asyncio.run(run()).partition(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in head
    assert body == b"5\r\npage\n\r\n0\r\n\r\n"
