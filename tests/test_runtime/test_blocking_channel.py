"""Blocking calls over TLS, as commands make them: like those of grpc.Channel."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from kvorum.runtime.http2.rpc import Channels, RpcServer, rpc_caller, rpc_listener
from kvorum.runtime.principals import PrincipalRules
from kvorum.runtime.tls import TlsSettings
from tests.certificates import Authority
from tests.polling import DEADLINE_S
from tests.test_runtime.http2_peers import SERVICE, WORDS, Service, free_port, method


class Served:
    """The service over TLS, on a loop in a thread of its own."""

    def __init__(self, authority: Authority) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        settings = TlsSettings(what="the server", keystore=str(authority.server("s.pem")))
        self._run(self._start(settings))
        caller = rpc_caller(TlsSettings(what="the test", truststore=str(authority.file)))
        self.channels = Channels(tls=caller)

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result(DEADLINE_S)

    async def _start(self, settings: TlsSettings) -> None:
        self._server = RpcServer(tls=rpc_listener(settings, PrincipalRules()))
        self._server.add_registered_method_handlers(SERVICE, Service().handlers())
        await self._server.listen(self.address)

    def close(self) -> None:
        self._run(self._server.stop(0))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(DEADLINE_S)
        self.loop.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(Authority(Path(tmp_path_factory.mktemp("blocking"))))
    yield made
    made.close()


def test_calls_have_answers_and_refusals(served: Served) -> None:
    with served.channels.open_blocking(served.address) as channel:
        echo = channel.unary_unary(method("echo"))
        assert echo(b"x" * 200_000, timeout=10) == b"x" * 200_000
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary(method("refuse"))(b"", timeout=10)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert refused.value.details() == WORDS
        with pytest.raises(grpc.RpcError) as late:
            channel.unary_unary(method("hang"))(b"", timeout=0.05)
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_streams_are_iterated_and_may_be_left(served: Served) -> None:
    with served.channels.open_blocking(served.address) as channel:
        count = channel.unary_stream(method("count"))
        assert list(count(b"3", timeout=10)) == [b"0", b"1", b"2"]
        with pytest.raises(grpc.RpcError) as ended:
            list(count(b"2 enough", timeout=10))
        assert ended.value.code() is grpc.StatusCode.ABORTED
        large = b"x" * 1_000_000
        for message in channel.unary_stream(method("flood"))(large):
            assert message == large
            break


def test_futures_tell_when_they_are_over(served: Served) -> None:
    with served.channels.open_blocking(served.address) as channel:
        done = threading.Event()
        call = channel.unary_unary(method("refuse")).future(b"", timeout=10)
        call.add_done_callback(lambda _: done.set())
        assert done.wait(DEADLINE_S)
        with pytest.raises(grpc.RpcError, match="FAILED_PRECONDITION"):
            call.result()
        assert call.code() is grpc.StatusCode.FAILED_PRECONDITION
        hanging = channel.unary_unary(method("hang")).future(b"")
        hanging.cancel()
        assert hanging.code() is grpc.StatusCode.CANCELLED


def test_a_server_that_is_not_there_is_an_error_with_its_address(served: Served) -> None:
    address = f"127.0.0.1:{free_port()}"
    with (
        served.channels.open_blocking(address) as channel,
        pytest.raises(grpc.RpcError) as failed,
    ):
        channel.unary_unary(method("echo"))(b"", timeout=10)
    assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
    assert address in failed.value.details()
