"""Certificates that the cluster's own CA signed, with names that nobody foresaw: whatever they
hold, a node closes that connection at most."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kvorum.launch.daemon.process import exception_handler
from kvorum.launch.metrics.server import MetricsServer, Response
from kvorum.runtime import peer_failures
from kvorum.runtime.certificate_names import subject_of
from kvorum.runtime.certificates import TlsListener
from kvorum.runtime.errors import WireError
from kvorum.runtime.http2.rpc import RpcServer, rpc_listener
from kvorum.runtime.principals import PrincipalRules
from kvorum.runtime.tls import TlsSettings
from tests.certificates import Authority
from tests.strange_certificates import (
    ALTERNATIVE_NAME,
    BAD_EMAIL,
    COMMON_NAME,
    UTF8,
    certificate,
    name,
    strange_client,
    tlv,
)
from tests.test_broker.secure_listener import asked_versions, secure_listener
from tests.test_runtime.http2_peers import SERVICE, free_port, method
from tests.test_runtime.rpc_callers import HANDLERS, ask_who, grpcio_channel, refusal

FILES = [HealthCheck.function_scoped_fixture]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def of_server(authority: Authority) -> TlsSettings:
    return TlsSettings(
        what="the server", keystore=str(authority.server("s.pem")),
        truststore=str(authority.file), client_auth="required",
    )  # fmt: skip


@asynccontextmanager
async def node_handler() -> AsyncIterator[list[BaseException]]:
    """The failures that would have ended the node: its own exception handler runs here."""
    failures: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(exception_handler(failures.append))
    yield failures


# The name of a certificate, for any bytes.


@given(st.binary(max_size=300))
def test_bytes_that_are_no_certificate_are_an_error_of_the_peer(data: bytes) -> None:
    with contextlib.suppress(WireError):
        subject_of(data)


VALUES = st.tuples(
    st.sampled_from([COMMON_NAME, "2.5.4.10", "1.2.840.113549.1.9.1", "2.999.1.5", "1.3.6"]),
    st.integers(0, 255),
    st.binary(max_size=40),
)


@given(st.lists(VALUES, max_size=4), st.binary(max_size=4), st.integers(0, 200))
def test_each_name_has_a_text_or_is_refused(
    attributes: list[tuple[str, int, bytes]], rest: bytes, cut: int
) -> None:
    subject = name(*attributes)
    head = tlv(0xA0, tlv(2, b"\2")) + tlv(2, b"\1") + tlv(0x30, b"") * 3
    made = tlv(0x30, tlv(0x30, head + subject + rest))
    with contextlib.suppress(WireError):
        assert isinstance(subject_of(made), str)
    with contextlib.suppress(WireError):
        subject_of(made[:cut])


def test_a_type_of_absurd_length_is_refused() -> None:
    """Read byte by byte into one number, it would hold the event loop up for seconds."""
    head = tlv(0xA0, tlv(2, b"\2")) + tlv(2, b"\1") + tlv(0x30, b"") * 3
    kind = tlv(0x06, b"\xff" * 100_000 + b"\1")
    subject = tlv(0x30, tlv(0x31, tlv(0x30, kind + tlv(UTF8, b"x"))))
    with pytest.raises(WireError, match="100001 bytes is over 256"):
        subject_of(tlv(0x30, tlv(0x30, head + subject)))


def test_a_subject_behind_an_unusual_head_is_found(authority: Authority) -> None:
    der, _ = certificate(authority, name((COMMON_NAME, UTF8, b"alice")))
    assert subject_of(der) == "CN=alice"
    with pytest.raises(WireError, match="the subject of the certificate cannot be read"):
        subject_of(der[:40])


# The three places that take a client's certificate.


def test_a_broker_serves_a_client_whose_alternative_name_is_no_utf_8(
    authority: Authority, tmp_path: Path
) -> None:
    async def case() -> None:
        async with node_handler() as failures, secure_listener(authority, tmp_path) as listener:
            strange = strange_client(authority, tmp_path)
            assert await asked_versions(listener.address, authority, strange)
            assert listener.users() == ["CN=mallory"]
            assert failures == []

    asyncio.run(case())


def test_a_broker_refuses_a_client_whose_name_no_rule_maps(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules = PrincipalRules("RULE:^CN=(broker-[0-9]+)$/$1/")

    async def case() -> None:
        async with (
            node_handler() as failures,
            secure_listener(authority, tmp_path, rules) as listener,
        ):
            assert not await asked_versions(listener.address, authority, authority.client("Eve"))
            assert "matches the certificate's name 'CN=Eve" in caplog.text
            counts = listener.counts()
            assert (counts.authentications, counts.failed_authentications) == (0, 1)
            subject = name((COMMON_NAME, UTF8, b"broker-7"))
            mine = tmp_path / "mine.pem"
            mine.write_bytes(certificate(authority, subject)[1])
            assert await asked_versions(listener.address, authority, mine)
            assert listener.users() == ["broker-7"]
            assert listener.counts().authentications == 1
            assert failures == []

    asyncio.run(case())


def test_a_controller_serves_a_node_whose_alternative_name_is_no_utf_8(
    authority: Authority, tmp_path: Path
) -> None:
    async def case() -> None:
        tls = rpc_listener(of_server(authority), PrincipalRules("RULE:^CN=m(.*)$/m$1/"))
        async with node_handler() as failures, rpc_server(tls) as address:
            strange = strange_client(authority, tmp_path)
            async with channel(address, authority, strange) as one:
                assert await ask_who(one) == "mallory 127.0.0.1"
            async with channel(address, authority, authority.client("Eve")) as one:
                before = peer_failures.PEER_FAILURES.rpc_handshakes
                await refusal(one)
                assert peer_failures.PEER_FAILURES.rpc_handshakes > before
            async with channel(address, authority, strange) as one:
                assert await ask_who(one) == "mallory 127.0.0.1"
            assert failures == []

    asyncio.run(case())


def test_a_page_of_metrics_outlives_such_a_client(authority: Authority, tmp_path: Path) -> None:
    async def case() -> None:
        async with node_handler() as failures:
            server = MetricsServer({"/": lambda _: Response("200 OK", b"page\n")}, {})
            tls = TlsListener(of_server(authority), PrincipalRules())
            port = await server.start("127.0.0.1", 0, tls)
            try:
                for file in (strange_client(authority, tmp_path), authority.client("Ann")):
                    page = await asyncio.to_thread(page_of, port, authority, file)
            finally:
                await server.stop()
            assert page.endswith(b"page\n"), "a client with a usual certificate is served"
            assert failures == []

    asyncio.run(case())


@given(
    subject=st.lists(VALUES, max_size=3),
    alternative=st.one_of(
        st.just(BAD_EMAIL),
        st.binary(max_size=40),
        st.lists(st.tuples(st.integers(0x80, 0x88), st.binary(max_size=20)), max_size=3).map(
            lambda names: tlv(0x30, b"".join(tlv(tag, body) for tag, body in names))
        ),
    ),
    more=st.lists(st.tuples(st.just("1.3.6.1.4.1.1"), st.binary(max_size=30)), max_size=2),
)
@hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=FILES)
def test_no_certificate_ends_a_node(
    tmp_path: Path,
    subject: list[tuple[str, int, bytes]],
    alternative: bytes,
    more: list[tuple[str, bytes]],
) -> None:
    """Against a broker's listener and a controller's; the client may be refused."""
    authority = _authority(tmp_path)
    file = tmp_path / "fuzzed.pem"
    file.write_bytes(
        certificate(authority, name(*subject), [(ALTERNATIVE_NAME, alternative), *more])[1]
    )

    async def case() -> None:
        tls = rpc_listener(of_server(authority), PrincipalRules())
        async with (
            node_handler() as failures,
            secure_listener(authority, tmp_path / "data") as listener,
            rpc_server(tls) as address,
        ):
            before = peer_failures.PEER_FAILURES.count
            with contextlib.suppress(OSError, ssl.SSLError):
                await asked_versions(listener.address, authority, file)
            with contextlib.suppress(Exception):
                async with channel(address, authority, file) as one:
                    await one.unary_unary(method("who"))(b"", timeout=10)
            good = authority.client("Good")
            assert await asked_versions(listener.address, authority, good)
            async with channel(address, authority, good) as one:
                assert (await ask_who(one)).startswith("CN=Good")
            assert failures == []
            assert peer_failures.PEER_FAILURES.count == before, "each fault was foreseen"

    asyncio.run(case())


_AUTHORITIES: dict[Path, Authority] = {}


def _authority(folder: Path) -> Authority:
    if folder not in _AUTHORITIES:
        _AUTHORITIES[folder] = Authority(folder / "ca")
    return _AUTHORITIES[folder]


def page_of(port: int, authority: Authority, file: Path) -> bytes:
    context = ssl.create_default_context(cafile=str(authority.file))
    context.load_cert_chain(str(file))
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as peer,
        ):
            peer.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return b"".join(iter(lambda: peer.recv(4096), b""))
    except OSError:
        return b""


@asynccontextmanager
async def rpc_server(tls: Any) -> AsyncIterator[str]:
    server = RpcServer(tls=tls)
    server.add_registered_method_handlers(SERVICE, HANDLERS)
    address = f"127.0.0.1:{free_port()}"
    await server.listen(address)
    try:
        yield address
    finally:
        await server.stop(0)


@asynccontextmanager
async def channel(address: str, authority: Authority, file: Path) -> AsyncIterator[Any]:
    """From grpcio: Kvorum's own channels refuse to load such a certificate."""
    made = grpcio_channel(authority, address, file)
    try:
        yield made
    finally:
        await made.close()
