"""A host with several addresses: a server listens on all, and a client tries all."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from kvorum.runtime.sockets import connect_tcp, listening_sockets


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


def both(monkeypatch: pytest.MonkeyPatch, loop: asyncio.AbstractEventLoop, *hosts: str) -> None:
    """The name `two.test` has these addresses, in this order."""
    real = loop.getaddrinfo

    async def found(host: str, port: int, **more: Any) -> list[Any]:
        asked = hosts if host == "two.test" else (host,)
        return [one for h in asked for one in await real(h, port, **more)]

    monkeypatch.setattr(loop, "getaddrinfo", found)


def test_the_second_address_is_tried_when_the_first_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def case() -> None:
        loop = asyncio.get_running_loop()
        both(monkeypatch, loop, "127.0.0.2", "127.0.0.1")
        listening = await listening_sockets(loop, "127.0.0.1", 0, backlog=5)
        port = listening[0].getsockname()[1]
        sock = await connect_tcp(loop, ("two.test", port))
        assert sock.getpeername() == ("127.0.0.1", port)
        sock.close()
        listening[0].close()
        with pytest.raises(ConnectionRefusedError):
            await connect_tcp(loop, ("two.test", port))

    asyncio.run(case())


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
def test_a_name_with_both_families_is_listened_on_under_one_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def case() -> None:
        loop = asyncio.get_running_loop()
        both(monkeypatch, loop, "::1", "127.0.0.1")
        listening = await listening_sockets(loop, "two.test", 0, backlog=5)
        ports = {sock.getsockname()[1] for sock in listening}
        assert len(listening) == 2 and len(ports) == 1
        for host in ("::1", "127.0.0.1"):
            sock = await connect_tcp(loop, (host, ports.copy().pop()))
            sock.close()
        for sock in listening:
            sock.close()

    asyncio.run(case())


def test_an_address_of_another_machine_is_left_out_if_there_are_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def case() -> None:
        loop = asyncio.get_running_loop()
        both(monkeypatch, loop, "192.0.2.1", "127.0.0.1")
        listening = await listening_sockets(loop, "two.test", 0, backlog=5)
        assert [sock.getsockname()[0] for sock in listening] == ["127.0.0.1"]
        listening[0].close()
        with pytest.raises(OSError, match="assign requested address"):
            await listening_sockets(loop, "192.0.2.1", 0, backlog=5)

    asyncio.run(case())
