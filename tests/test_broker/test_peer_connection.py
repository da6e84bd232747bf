"""Connections between brokers: TLS, the login, and the pitfalls of both."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.network.peer_connection import LinkRefused, PeerConnector, PeerSocket
from kvorum.broker.network.peer_security import PeerSecurity
from kvorum.broker.sasl.core.authentication import Authentication
from kvorum.broker.sasl.core.mechanisms import SaslSettings, authenticator
from kvorum.launch.cluster.add_scram import parse_add_scram
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.runtime.certificates import TlsCaller, TlsListener
from kvorum.runtime.principals import PrincipalRules
from kvorum.runtime.sockets import connect_tcp
from kvorum.runtime.tls import TlsSettings
from kvorum.storage.format.batch import build_batch
from tests.certificates import Authority
from tests.polling import eventually, until
from tests.test_broker.harness import Cluster, Harness, SecureLinks
from tests.test_broker.raw_client import RawClient, produce_values

Make = Callable[[], Authentication]
LARGE = b"v" * 900_000


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def settings(authority: Authority, **more: Any) -> TlsSettings:
    return TlsSettings(
        what="the brokers",
        keystore=str(authority.server("broker.pem")),
        truststore=str(authority.file),
        **more,
    )


def plain(session_ms: int = 0) -> Make:
    sasl = SaslSettings(
        mechanisms=("PLAIN",), plain_users={"node": "secret"}, session_ms={"PLAIN": session_ms}
    )
    return authenticator(sasl, lambda: EMPTY_IMAGE, random.Random(1))


def scram() -> Make:
    delta = Delta(EMPTY_IMAGE)
    text = "SCRAM-SHA-512=[name=node,password=secret]"
    delta.replay_all(parse_add_scram([text], ask=str, rng=random.Random(1)))
    image = delta.apply(end_offset=1, epoch=1)
    sasl = SaslSettings(mechanisms=("SCRAM-SHA-512",))
    return authenticator(sasl, lambda: image, random.Random(1))


def connector(
    tls: TlsSettings | None, mechanism: str = "", password: str = "secret", broker_id: int = 1
) -> PeerConnector:
    security = PeerSecurity(tls=tls, mechanism=mechanism, user="node", password=password)
    caller = None if tls is None else TlsCaller(tls)
    return PeerConnector(security, caller, broker_id=broker_id, rng=random.Random(broker_id))


def links(tls: TlsSettings | None, mechanism: str = "", make: Make | None = None) -> SecureLinks:
    listener = None
    if tls is not None:
        required = dataclasses.replace(tls, client_auth="required")
        listener = TlsListener(required, PrincipalRules())
    return SecureLinks(
        connect=lambda broker_id: connector(tls, mechanism, broker_id=broker_id),
        authenticate=make,
        tls=listener,
    )


@contextmanager
def running(folder: Path, made: SecureLinks) -> Iterator[Harness]:
    harness = Harness(folder, count=2, links=made)
    try:
        yield harness
    finally:
        harness.close()


def produce(harness: Harness, value: bytes) -> KioError:
    client = RawClient(harness.cluster.brokers[1].port)
    batch = bytes(build_batch([(None, value)], timestamp_ms=1_000))
    answer = client.call("produce", 9, produce_values("t", batch, acks=-1))
    client.close()
    error: KioError = answer.responses[0].partition_responses[0].error_code
    return error


def replicated(harness: Harness, *values: bytes) -> None:
    """Produce with acks=all to a partition of both brokers."""
    if "t" not in harness.cluster.controller.image.topic_ids:
        harness.call(lambda: harness.cluster.controller.create("t", [(1, 2)]))
    eventually(lambda: len(harness.cluster.replica(1, "t").core.isr_state.isr) == 2, "in sync")
    for value in values:
        assert produce(harness, value) is KioError.none


def fetcher_socket(harness: Harness) -> Any:
    fetchers = harness.cluster.brokers[2].manager.fetchers
    return fetchers._by_leader[1]._sock


@pytest.mark.parametrize("kind", ["tls", "sasl", "both", "scram"])
def test_a_follower_fetches_over_a_secure_link(
    kind: str, authority: Authority, tmp_path: Path
) -> None:
    tls = None if kind == "sasl" else settings(authority)
    made = {
        "tls": links(tls),
        "sasl": links(None, "PLAIN", plain()),
        "both": links(tls, "PLAIN", plain()),
        "scram": links(tls, "SCRAM-SHA-512", scram()),
    }[kind]
    with running(tmp_path / "data", made) as harness:
        replicated(harness, b"small", LARGE, b"small", *([LARGE] * 4))
        assert isinstance(fetcher_socket(harness), PeerSocket)


def test_a_follower_logs_in_again_on_its_connection(authority: Authority, tmp_path: Path) -> None:
    made = links(settings(authority), "PLAIN", plain(session_ms=1_300))
    with running(tmp_path / "data", made) as harness:
        replicated(harness, b"first")
        sock = fetcher_socket(harness)
        dues = {sock.login_due_s}

        def has_logged_in(times: int) -> bool:
            dues.add(sock.login_due_s)
            replicated(harness, b"more")
            return len(dues) > times

        eventually(lambda: has_logged_in(3), "three logins")
        # The leader would have closed the connection at the end of the first session.
        assert fetcher_socket(harness) is sock


@asynccontextmanager
async def listening(
    tls: TlsListener | None, make: Make | None, folder: Path
) -> AsyncIterator[tuple[str, int]]:
    """The address of a broker's secure listener, on this loop."""
    cluster = Cluster(
        folder,
        count=1,
        links=SecureLinks(connect=lambda _: connector(None), authenticate=make, tls=tls),
    )
    await cluster.start()
    try:
        yield ("127.0.0.1", cluster.peer_ports[1])
    finally:
        await cluster.stop()


def run(case: Coroutine[Any, Any, None]) -> None:
    asyncio.run(case)


def test_a_client_that_resets_its_connection_before_it_is_accepted_harms_nobody(
    authority: Authority, tmp_path: Path
) -> None:
    async def case() -> None:
        tls = settings(authority)
        failures: list[Any] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context))
        listener = TlsListener(tls, PrincipalRules())
        async with listening(listener, plain(), tmp_path) as address:
            for data in (b"", b"\x16\x03\x01"):
                # The loop runs nothing else meanwhile, so the broker accepts a dead connection.
                with socket.create_connection(address) as stranger:
                    stranger.sendall(data)
                    stranger.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )
                await asyncio.sleep(0)
                (await connector(tls, "PLAIN")(loop, address)).close()
        assert failures == []

    run(case())


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("password", "login as node: "),
        ("mechanism", "UNSUPPORTED_SASL_MECHANISM; the broker offers PLAIN"),
        ("no certificate", "the other side asks for a certificate"),
        ("unknown CA", "certificate is not accepted"),
    ],
)
def test_a_refusal_is_said_once_and_tried_again_later(
    bad: str,
    said: str,
    authority: Authority,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("kvorum.broker.network.peer_connection.BACKOFF_FIRST_MS", 0)
    other = Authority(tmp_path / "other")

    async def case() -> None:
        loop = asyncio.get_running_loop()
        tls = settings(authority)
        listener = TlsListener(dataclasses.replace(tls, client_auth="required"), PrincipalRules())
        mine = {
            "password": lambda: connector(tls, "PLAIN", "wrong"),
            "mechanism": lambda: connector(tls, "SCRAM-SHA-256"),
            "no certificate": lambda: connector(dataclasses.replace(tls, keystore=""), "PLAIN"),
            "unknown CA": lambda: connector(
                dataclasses.replace(tls, truststore=str(other.file)), "PLAIN"
            ),
        }[bad]()
        async with listening(listener, plain(), tmp_path / "data") as address:
            for _ in range(3):
                with pytest.raises(LinkRefused, match=said):
                    await mine(loop, address)
            told = [r for r in caplog.records if "no link to the broker" in r.getMessage()]
            assert len(told) == 1 and said in told[0].getMessage()
            assert "wrong" not in caplog.text
            # The cause of the refusal is removed.
            mine.security = PeerSecurity(tls=tls, mechanism="PLAIN", user="node", password="secret")
            mine._tls = TlsCaller(tls)
            opened: list[PeerSocket] = []

            async def is_let_in() -> bool:
                try:
                    opened.append(await mine(loop, address))
                except LinkRefused:
                    return False
                return True

            await until(is_let_in, "the link is made")
            assert "lets this one in now" in caplog.text
            opened[0].close()

    run(case())


def test_a_broker_that_refused_is_left_alone_for_a_while(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine may need the usual while to close a listener.
    monkeypatch.setattr("kvorum.broker.network.peer_connection.BACKOFF_FIRST_MS", 60_000)

    async def case() -> None:
        loop = asyncio.get_running_loop()
        tls = settings(authority)
        mine = connector(tls, "PLAIN", "wrong")
        async with listening(TlsListener(tls, PrincipalRules()), plain(), tmp_path) as address:
            with pytest.raises(LinkRefused, match="login as node"):
                await mine(loop, address)
        # Nobody listens there any more, and nobody was asked.
        with pytest.raises(LinkRefused, match="login as node"):
            await mine(loop, address)

    run(case())


def test_a_stalled_handshake_holds_up_nobody_and_ends(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvorum.broker.network.peer_connection.CONNECT_TIMEOUT_MS", 200)

    async def case() -> None:
        loop = asyncio.get_running_loop()
        taken: list[Any] = []
        silent = await asyncio.start_server(lambda *pair: taken.append(pair), "127.0.0.1", 0)
        address = silent.sockets[0].getsockname()
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = loop.create_task(count())
        with pytest.raises(TimeoutError):
            await connector(settings(authority))(loop, address)
        assert turns > 100
        counting.cancel()
        await until(lambda: bool(taken), "the connection was there")
        for _, writer in taken:
            writer.close()
        silent.close()

    run(case())


def test_bytes_that_are_decrypted_already_are_found(authority: Authority, tmp_path: Path) -> None:
    """A read smaller than a record leaves the rest where `select` does not see it."""

    async def case() -> None:
        loop = asyncio.get_running_loop()
        tls = settings(authority)
        listener = TlsListener(tls, PrincipalRules())

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"x" * 10_000)
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=listener.context)
        address = server.sockets[0].getsockname()
        made = connector(tls)
        sock = await _shaken(made, loop, address)
        buffer = memoryview(bytearray(4_000))
        count = 0

        def read() -> bool:
            nonlocal count
            try:
                count = sock.recv_into(buffer)
            except BlockingIOError:
                return False
            return True

        await until(read, "the first bytes")
        assert count == 4_000 and sock.pending() == 6_000
        sock.close()
        server.close()

    run(case())


async def _shaken(
    made: PeerConnector, loop: asyncio.AbstractEventLoop, address: tuple[str, int]
) -> PeerSocket:
    assert made._tls is not None
    plain_sock = await connect_tcp(loop, address)
    sock = PeerSocket(
        made._tls.context.wrap_socket(
            plain_sock, server_hostname=address[0], do_handshake_on_connect=False
        ),
        made,
    )
    await sock.shake_hands(loop)
    return sock
