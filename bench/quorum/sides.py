"""One round of each side: a fresh cluster, a warm-up, every figure once, and the stop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.cluster import BenchFailed
from bench.figures import percentile
from bench.processes import cpu_percent_over, resident_mb
from bench.quorum.client import (
    VALUE_BYTES,
    Commits,
    StoreClient,
    await_equal,
    run_writers,
)
from bench.quorum.etcd import EtcdCluster, Puts
from bench.quorum.gaps import ETCD_ERRORS, BlackHoles, EtcdPutter, PutLoad
from bench.quorum.members import MEMBERS, StoreCluster
from kvorum.chaos.live.host.toxiproxy import ToxiproxyError
from kvorum.runtime.errors import ConfigError, KvorumError

WRITERS = 500
CONNECTIONS = 100
FIGURE_ERRORS = (KvorumError, OSError)
"""The errors that fail a figure without ending the run."""

_VALUE = b"k" * VALUE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The sizes of all loads, the same for both sides."""

    warm_sequential: int
    warm_concurrent: int
    sequential: int
    concurrent: int
    kills: int
    hangs: int
    idle_s: float


FULL = Load(
    warm_sequential=1_000,
    warm_concurrent=20_000,
    sequential=3_000,
    concurrent=50_000,
    kills=3,
    hangs=2,
    idle_s=10.0,
)
QUICK = Load(
    warm_sequential=200,
    warm_concurrent=5_000,
    sequential=500,
    concurrent=10_000,
    kills=1,
    hangs=1,
    idle_s=2.0,
)


@dataclass(slots=True)
class Record:
    """The results of a side's rounds so far. failures: group to the first reason."""

    samples: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    failures: dict[str, str] = field(default_factory=dict)

    def add(self, key: str, value: float) -> None:
        self.samples[key].append(value)

    @contextlib.contextmanager
    def attempt(self, group: str, last_words: Callable[[], str]) -> Iterator[None]:
        """Run a group of figures; an error is recorded and the run continues."""
        try:
            yield
        except FIGURE_ERRORS as error:
            self.failures.setdefault(group, str(error))
            print(f"  {group} FAILED: {error}\n{last_words()}", flush=True)


async def kvorum_round(directory: Path, port: int, load: Load, record: Record) -> None:
    """Commits, gaps and idle CPU of the store."""
    cluster = StoreCluster(directory=directory / "store", port=port)
    try:
        cluster.start()
        with record.attempt("commits", cluster.last_words):
            acknowledged = await _kvorum_commits(cluster, load, record)
            with record.attempt("idle", cluster.last_words):
                await _idle([cluster.pid(member) for member in MEMBERS], load, record)
            with record.attempt("gaps", cluster.last_words):
                await _kvorum_gaps(cluster, load, record, acknowledged)
    finally:
        cluster.stop()
    with record.attempt("vanish", cluster.last_words):
        await _kvorum_vanish(directory, port + 10, record)


async def _kvorum_commits(cluster: StoreCluster, load: Load, record: Record) -> int:
    """Returns the number of acknowledged values, which every member has by then."""
    async with StoreClient(cluster.addresses) as client:
        await run_writers([client], writers=1, commits=load.warm_sequential)
        await run_writers([client], writers=WRITERS, commits=load.warm_concurrent)
        commits = await run_writers([client], writers=1, commits=load.sequential)
        _note(record, "sequential", commits)
        commits = await run_writers([client], writers=WRITERS, commits=load.concurrent)
        _note(record, "stream", commits)
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(StoreClient(cluster.addresses))
            for _ in range(CONNECTIONS)
        ]
        await run_writers(clients, writers=WRITERS, commits=load.warm_concurrent)
        commits = await run_writers(clients, writers=WRITERS, commits=load.concurrent)
        _note(record, "connections", commits)
    acknowledged = load.warm_sequential + 2 * load.warm_concurrent
    acknowledged += load.sequential + 2 * load.concurrent
    await await_equal(cluster.addresses, acknowledged=acknowledged)
    return acknowledged


async def _kvorum_gaps(
    cluster: StoreCluster, load: Load, record: Record, acknowledged: int
) -> None:
    faults = [(signal.SIGKILL, "kill_s")] * load.kills + [(signal.SIGSTOP, "hang_s")] * load.hangs
    for number, key in faults:
        async with StoreClient(cluster.addresses) as client:
            victims: list[int] = []
            strike = functools.partial(_strike_leader, cluster, client, number, victims)
            async with PutLoad(functools.partial(client.append, _VALUE)) as puts:
                record.add(key, await puts.gap_s(strike))
            acknowledged += len(puts.successes)
        if number == signal.SIGKILL:
            cluster.start_member(victims[0])
        else:
            cluster.strike(victims[0], signal.SIGCONT)
        await await_equal(cluster.addresses, acknowledged=acknowledged)


def _strike_leader(
    cluster: StoreCluster, client: StoreClient, number: signal.Signals, victims: list[int]
) -> None:
    victims.append(client.leader_id)
    cluster.strike(victims[0], number)


async def _kvorum_vanish(directory: Path, port: int, record: Record) -> None:
    listeners = StoreCluster(directory=directory, port=port).addresses
    try:
        holes = BlackHoles(
            listeners=listeners, port=port + 20, log_file=str(directory / "toxiproxy.log")
        )
        with holes.running():
            cluster = StoreCluster(directory=directory / "store", port=port, links=holes.peer_links)
            try:
                cluster.start()
                async with StoreClient(holes.client_addresses) as client:
                    async with PutLoad(lambda: client.append(_VALUE)) as puts:
                        gap_s = await puts.gap_s(lambda: holes.swallow(client.leader_id))
                    record.add("vanish_s", gap_s)
                holes.heal()
                await await_equal(cluster.addresses, acknowledged=len(puts.successes))
            finally:
                cluster.stop()
    except (ToxiproxyError, ConfigError) as error:
        raise BenchFailed(f"no black hole: {error}") from error


async def etcd_round(directory: Path, port: int, load: Load, record: Record) -> None:
    """The same figures of etcd, except that of vanishing packets: its members give one address to
    all peers."""
    cluster = EtcdCluster(directory=directory / "etcd", port=port)
    try:
        await asyncio.to_thread(cluster.start)
        with record.attempt("commits", cluster.last_words):
            await asyncio.to_thread(_etcd_commits, cluster, load, record)
            with record.attempt("idle", cluster.last_words):
                await _idle([cluster.pid(member) for member in MEMBERS], load, record)
            with record.attempt("gaps", cluster.last_words):
                await _etcd_gaps(cluster, load, record)
    finally:
        await asyncio.to_thread(cluster.stop)


def _etcd_commits(cluster: EtcdCluster, load: Load, record: Record) -> None:
    def put(clients: int, connections: int, total: int) -> Puts:
        return cluster.put(
            clients=clients, connections=connections, total=total, value_bytes=VALUE_BYTES
        )

    put(1, 1, load.warm_sequential)
    put(WRITERS, CONNECTIONS, load.warm_concurrent)
    for key, puts in (
        ("sequential", put(1, 1, load.sequential)),
        ("connections", put(WRITERS, CONNECTIONS, load.concurrent)),
    ):
        record.add(f"{key}_per_s", puts.per_second)
        record.add(f"{key}_p50_ms", puts.p50_ms)
        record.add(f"{key}_p99_ms", puts.p99_ms)


async def _etcd_gaps(cluster: EtcdCluster, load: Load, record: Record) -> None:
    faults = [(signal.SIGKILL, "kill_s")] * load.kills + [(signal.SIGSTOP, "hang_s")] * load.hangs
    for number, key in faults:
        victim = await asyncio.to_thread(cluster.leader_id)
        putter = EtcdPutter(cluster.addresses.values(), _VALUE)
        try:
            async with PutLoad(putter.put, errors=ETCD_ERRORS) as puts:
                gap_s = await puts.gap_s(functools.partial(cluster.strike, victim, number))
                record.add(key, gap_s)
        finally:
            await putter.close()
        if number == signal.SIGKILL:
            cluster.start_member(victim)
        else:
            cluster.strike(victim, signal.SIGCONT)
        await asyncio.to_thread(cluster.await_healthy)


async def _idle(pids: list[int], load: Load, record: Record) -> None:
    idle = await asyncio.to_thread(cpu_percent_over, pids, load.idle_s)
    record.add("idle_percent", max(idle.values()))
    record.add("resident_mb", max(resident_mb(pid) for pid in pids))


def _note(record: Record, key: str, commits: Commits) -> None:
    record.add(f"{key}_per_s", commits.per_second)
    record.add(f"{key}_p50_ms", percentile(commits.latencies_ms, 50))
    record.add(f"{key}_p99_ms", percentile(commits.latencies_ms, 99))
