"""Loses packets of chosen streams on the loopback interface, by nftables.

One process `nft -i` owns a table (`flags owner`). The kernel removes the table when that process
ends, and it ends with its standard input: a run that is killed outright leaves no rule behind. The
rules drop at the input hook, so a packet was sent and never arrives; TCP sees a loss, and no error.

netem of tc would need a qdisc in front of the whole interface, a band and a filter for each link,
and a clean-up of its own after a killed run; and many kernels are built without it.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence

from kvorum.chaos.live.host.links import Link, ProxyStream
from kvorum.chaos.live.host.processes import NotReached, wait_until
from kvorum.runtime.errors import KvorumError

_SYSTEM_PATH = "/usr/sbin:/sbin:/usr/local/sbin"
_TIMEOUT_MS = 5_000
_CALL_TIMEOUT_S = 10.0
_COUNTER = re.compile(r"counter packets (\d+) ")
_WAY_OUT = "run as root, or with CAP_NET_ADMIN"
_numbers = itertools.count(1)


class PacketFilterFailed(KvorumError):
    """nft did not carry out a command; the message has its own words."""


def rules_of(stream: tuple[Link, ProxyStream], *, loss_percent: int) -> str:
    """The rule that drops a share of the packets of one stream, without its table and chain. Pure.

    Bytes and acknowledgements in that direction are hit alike: both are packets.
    """
    link, direction = stream
    host, _, port = link.listen.rpartition(":")
    end = ("daddr", "dport") if direction is ProxyStream.UPSTREAM else ("saddr", "sport")
    # nft refuses a comparison that always holds.
    draw = f"numgen random mod 100 < {loss_percent} " if loss_percent < 100 else ""
    return f'iifname "lo" ip {end[0]} {host} tcp {end[1]} {port} {draw}counter drop'


@functools.cache
def why_no_packet_loss() -> str | None:
    """The reason why this machine loses no packets on request; None if it does.

    A table like that of a run is made, and removed by the kernel at once.
    """
    nft = _nft()
    if nft is None:
        return f"nft is not on PATH; install nftables, and {_WAY_OUT}"
    probe = Link(source="a", destination="b", listen="127.0.0.1:1", upstream="127.0.0.1:1")
    table = _table_name()
    rule = rules_of((probe, ProxyStream.UPSTREAM), loss_percent=1)
    commands = [_table_command(table), *_chain_commands(table, "probe", [rule])]
    try:
        done = subprocess.run(
            [nft, "-f", "-"],
            input="\n".join(commands),
            capture_output=True,
            text=True,
            timeout=_CALL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{nft} cannot be run: {error}"
    if done.returncode == 0:
        return None
    said = (done.stderr.strip() or f"it ended with {done.returncode}").splitlines()[0]
    return f"{nft} may not drop packets ({said}); {_WAY_OUT}"


class PacketFilter:
    """The rules of one run. The process of nft is started with the first fault. Not thread-safe."""

    def __init__(self) -> None:
        self._table = _table_name()
        self._process: subprocess.Popen[str] | None = None

    def lose(
        self, name: str, streams: Sequence[tuple[Link, ProxyStream]], *, loss_percent: int
    ) -> None:
        """Drop packets of these streams from now on. name: for `lost` and `stop`.

        Raises PacketFilterFailed.
        """
        rules = [rules_of(stream, loss_percent=loss_percent) for stream in streams]
        self._say("; ".join(_chain_commands(self._table, name, rules)))
        try:
            self._await(lambda: len(self._counters(name)) == len(rules), f"the rules of {name}")
        except PacketFilterFailed:
            self._remove(name)
            raise

    def lost(self, name: str) -> int:
        """The packets dropped so far. Raises PacketFilterFailed if the rules are gone."""
        counters = self._counters(name)
        if not counters:
            raise PacketFilterFailed(f"the rules of {name} are gone: {self._last_words()}")
        return sum(counters)

    def stop(self, name: str) -> None:
        """Drop no more of these packets. Raises PacketFilterFailed."""
        self._remove(name)
        self._await(lambda: not self._counters(name), f"the end of {name}")

    def close(self) -> None:
        """End nft, and with it every rule; may be called again."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.communicate()

    def _remove(self, name: str) -> None:
        chain = f"inet {self._table} {name}"
        self._say(f"flush chain {chain}; delete chain {chain}")

    def _say(self, command: str) -> None:
        process = self._process or self._start()
        try:
            if process.stdin is None or process.poll() is not None:
                raise BrokenPipeError("it has ended")
            process.stdin.write(command + "\n")
            process.stdin.flush()
        except OSError as error:
            raise PacketFilterFailed(f"nft takes no command: {error}") from error

    def _start(self) -> subprocess.Popen[str]:
        nft = _nft()
        if nft is None:
            raise PacketFilterFailed(f"nft is not on PATH; install nftables, and {_WAY_OUT}")
        # In a session of its own, Ctrl-C at the terminal does not end it before the run has healed.
        try:
            process = self._process = subprocess.Popen(
                [nft, "-i"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        except OSError as error:
            raise PacketFilterFailed(f"{nft} cannot be run: {error}") from error
        self._say(_table_command(self._table))
        return process

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        try:
            wait_until(condition, timeout_ms=_TIMEOUT_MS, what=what)
        except NotReached as error:
            raise PacketFilterFailed(f"nft: {error}; {self._last_words()}") from error

    def _counters(self, name: str) -> list[int]:
        """The packets that each rule of a chain has dropped; empty without the chain. Raises
        PacketFilterFailed."""
        listed = self._list(["chain", "inet", self._table, name])
        return [int(number) for number in _COUNTER.findall(listed)]

    def _list(self, what: Sequence[str]) -> str:
        """The words of nft; empty for what does not exist. Raises PacketFilterFailed."""
        try:
            done = subprocess.run(
                [_nft() or "nft", "list", *what],
                capture_output=True,
                text=True,
                timeout=_CALL_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            text = f"the rules of {what[-1]} cannot be listed: {error}"
            raise PacketFilterFailed(text) from error
        return done.stdout

    def _last_words(self) -> str:
        process = self._process
        if process is None:
            return "nft was not started"
        code = process.poll()
        return "nft runs still" if code is None else f"nft ended with {code}"


def _nft() -> str | None:
    path = os.pathsep.join([os.environ.get("PATH", ""), _SYSTEM_PATH])
    return shutil.which("nft", path=path)


def _table_name() -> str:
    return f"kvorum_{os.getpid()}_{next(_numbers)}"


def _table_command(table: str) -> str:
    return f"add table inet {table} {{ flags owner; }}"


def _chain_commands(table: str, name: str, rules: Sequence[str]) -> list[str]:
    chain = f"inet {table} {name}"
    return [
        f"add chain {chain} {{ type filter hook input priority 0; policy accept; }}",
        *(f"add rule {chain} {rule}" for rule in rules),
    ]
