"""The cost of consumer groups and transactions: joins, commits, heartbeats, transactions."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench.cluster import BenchFailed
from bench.raw import RawClient, request_body

JOIN_MEMBERS = 100
IDLE_GROUPS = 50
IDLE_MEMBERS = 4
HEARTBEAT_INTERVAL_S = 3.0
"""The default of Java's consumer."""
COMMIT_GROUPS = 50
COMMIT_CONNECTIONS = 10
COMMITS_IN_FLIGHT = 500
REBALANCE_TIMEOUT_MS = 60_000
SESSION_TIMEOUT_MS = 45_000
COORDINATOR_TIMEOUT_S = 60.0
_RETRY_S = 0.2
_GROUPS_TRIED_MAX = 5_000

_JOIN, _SYNC, _HEARTBEAT, _FIND, _COMMIT = 5, 3, 3, 2, 7
"""The last versions without tagged fields."""
_ILLEGAL_GENERATION, _UNKNOWN_MEMBER_ID, _REBALANCE_IN_PROGRESS = 22, 25, 27
_MEMBER_ID_REQUIRED = 79
_NO_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member of a stable group, on a connection of its own."""

    client: RawClient
    group_id: str
    member_id: str
    generation_id: int
    answered_at: float
    """When its JoinGroup was answered, on the monotonic clock."""
    synced_at: float
    """When its SyncGroup was answered."""
    is_settled: bool
    """False if SyncGroup was refused because the group rebalances again."""


def join_seconds(bootstrap: str) -> tuple[float, float]:
    """A hundred members join an empty group at once. Returns the seconds from the first request to
    the last assignment, and from the first JoinGroup answer (the end of the initial delay) to the
    last assignment."""
    return asyncio.run(_join_seconds(bootstrap))


async def _join_seconds(bootstrap: str) -> tuple[float, float]:
    group_id = "bench-join"
    address = await coordinator_of(bootstrap, group_id)
    clients = [await RawClient.open(address) for _ in range(JOIN_MEMBERS)]
    began = time.monotonic()
    members = await _join_all(clients, group_id)
    ended = max(member.synced_at for member in members)
    for client in clients:
        client.close()
    return ended - began, ended - min(member.answered_at for member in members)


def idle_group_percent(bootstrap: str, seconds: float, cpu_s: Callable[[], float]) -> float:
    """CPU of the brokers for 50 groups of 4 members that only send heartbeats, in per cent of a
    core. cpu_s: returns the CPU time of the brokers so far."""
    return asyncio.run(_idle_group_percent(bootstrap, seconds, cpu_s))


async def _idle_group_percent(bootstrap: str, seconds: float, cpu_s: Callable[[], float]) -> float:
    group_ids = [f"bench-idle-{i}" for i in range(IDLE_GROUPS)]
    addresses = [await coordinator_of(bootstrap, group_id) for group_id in group_ids]
    before = await _cpu_over(seconds, cpu_s)
    clients = [[await RawClient.open(at) for _ in range(IDLE_MEMBERS)] for at in addresses]
    groups = await asyncio.gather(*map(_join_all, clients, group_ids))
    members = [member for group in groups for member in group]
    beats = [
        asyncio.create_task(_beat(member, HEARTBEAT_INTERVAL_S * i / len(members)))
        for i, member in enumerate(members)
    ]
    try:
        await asyncio.sleep(HEARTBEAT_INTERVAL_S)
        during = await _cpu_over(seconds, cpu_s)
        for beat in beats:
            if beat.done():
                beat.result()  # raises if a member failed: its missing heartbeats cost no CPU
    finally:
        for beat in beats:
            beat.cancel()
        await asyncio.gather(*beats, return_exceptions=True)
        for member in members:
            member.client.close()
    return during - before


async def _cpu_over(seconds: float, cpu_s: Callable[[], float]) -> float:
    used, began = cpu_s(), time.monotonic()
    await asyncio.sleep(seconds)
    return (cpu_s() - used) / (time.monotonic() - began) * 100


async def _beat(member: Member, after_s: float) -> None:
    await asyncio.sleep(after_s)
    while True:
        _require(await _heartbeat(member), "heartbeat")
        await asyncio.sleep(HEARTBEAT_INTERVAL_S)


async def _heartbeat(member: Member) -> Any:
    return await member.client.call(
        "heartbeat",
        _HEARTBEAT,
        {
            "group_id": member.group_id,
            "generation_id": member.generation_id,
            "member_id": member.member_id,
            "group_instance_id": None,
        },
    )


def commits_per_second(bootstrap: str, topic: str, commits: int) -> float:
    """Offset commits per second on one broker: one partition each, from many groups, 500 in
    flight."""
    return asyncio.run(_commits_per_second(bootstrap, topic, commits))


async def _commits_per_second(bootstrap: str, topic: str, commits: int) -> float:
    address, group_ids = await _groups_of_one_broker(bootstrap)
    clients = [await RawClient.open(address) for _ in range(COMMIT_CONNECTIONS)]
    share = commits // COMMIT_CONNECTIONS
    window = COMMITS_IN_FLIGHT // COMMIT_CONNECTIONS

    async def load(client: RawClient, number: int) -> None:
        requests = _commit_requests(topic, group_ids, share, number)
        for request in (next(requests) for _ in range(window)):
            client.send(request)
        for _ in range(share):
            answer = await client.receive()
            (error,) = struct.unpack(">h", answer[-2:])
            if error:
                raise BenchFailed(f"an offset commit was answered with error {error}")
            with contextlib.suppress(StopIteration):
                client.send(next(requests))

    began = time.monotonic()
    await asyncio.gather(*(load(client, i) for i, client in enumerate(clients)))
    seconds = time.monotonic() - began
    for client in clients:
        client.close()
    return share * COMMIT_CONNECTIONS / seconds


def _commit_requests(
    topic: str, group_ids: Sequence[str], count: int, number: int
) -> Iterator[tuple[int, int, bytes]]:
    """Requests that are encoded before they are sent, since real clients have a processor of their
    own."""
    return iter(
        [
            request_body(
                "offset_commit",
                _COMMIT,
                {
                    "group_id": group_ids[(i + number) % len(group_ids)],
                    "generation_id_or_member_epoch": -1,
                    "member_id": "",
                    "group_instance_id": None,
                    "topics": [
                        {
                            "name": topic,
                            "partitions": [
                                {
                                    "partition_index": number % 3,
                                    "committed_offset": i,
                                    "committed_leader_epoch": -1,
                                    "committed_metadata": "",
                                }
                            ],
                        }
                    ],
                },
            )
            for i in range(count)
        ]
    )


async def _groups_of_one_broker(bootstrap: str) -> tuple[str, list[str]]:
    found: dict[str, list[str]] = {}
    for i in range(_GROUPS_TRIED_MAX):
        group_id = f"bench-commit-{i}"
        address = await coordinator_of(bootstrap, group_id)
        found.setdefault(address, []).append(group_id)
        if len(found[address]) == COMMIT_GROUPS:
            return address, found[address]
    raise BenchFailed(f"no broker coordinates {COMMIT_GROUPS} of {_GROUPS_TRIED_MAX} groups")


async def coordinator_of(bootstrap: str, group_id: str) -> str:
    """The coordinator's host:port; waits until the topic exists and has a leader."""
    deadline = time.monotonic() + COORDINATOR_TIMEOUT_S
    client = await RawClient.open(bootstrap.partition(",")[0])
    try:
        while True:
            answer = await client.call("find_coordinator", _FIND, {"key": group_id, "key_type": 0})
            if not int(answer.error_code):
                return f"{answer.host}:{answer.port}"
            if time.monotonic() > deadline:
                raise BenchFailed(f"no coordinator of {group_id}: {answer.error_code.name}")
            await asyncio.sleep(_RETRY_S)
    finally:
        client.close()


async def _join_all(clients: Sequence[RawClient], group_id: str) -> list[Member]:
    """Let all clients join, as members of one generation."""
    generations = [_NO_GENERATION] * len(clients)
    async with asyncio.timeout(COORDINATOR_TIMEOUT_S):
        return await asyncio.gather(
            *(_settle(client, group_id, generations, i) for i, client in enumerate(clients))
        )


async def _settle(client: RawClient, group_id: str, generations: list[int], index: int) -> Member:
    """Stay in the group until all members are in one generation: a late member makes all others
    rejoin."""
    member_id = ""
    while True:
        member = await _join(client, group_id, member_id)
        member_id = member.member_id
        generations[index] = member.generation_id if member.is_settled else _NO_GENERATION
        while generations[index] != _NO_GENERATION:
            if all(generation == member.generation_id for generation in generations):
                return member
            await asyncio.sleep(_RETRY_S)
            if int((await _heartbeat(member)).error_code):
                generations[index] = _NO_GENERATION


async def _join(client: RawClient, group_id: str, member_id: str) -> Member:
    joining: dict[str, Any] = {
        "group_id": group_id,
        "session_timeout": SESSION_TIMEOUT_MS,
        "rebalance_timeout": REBALANCE_TIMEOUT_MS,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\x00\x00" + bytes(8)}],
    }
    deadline = time.monotonic() + COORDINATOR_TIMEOUT_S
    while True:
        answer = await client.call("join_group", _JOIN, joining)
        error = int(answer.error_code)
        if error == _MEMBER_ID_REQUIRED:
            joining["member_id"] = answer.member_id
        elif not error:
            break
        elif time.monotonic() > deadline:
            raise BenchFailed(f"{group_id} cannot be joined: {answer.error_code.name}")
        elif error == _UNKNOWN_MEMBER_ID:
            joining["member_id"] = ""
        else:  # the coordinator is loading
            await asyncio.sleep(_RETRY_S)
    answered_at = time.monotonic()
    assignments = [
        {"member_id": member.member_id, "assignment": b"\x00\x00" + bytes(8)}
        for member in answer.members
    ]
    synced = await client.call(
        "sync_group",
        _SYNC,
        {
            "group_id": group_id,
            "generation_id": answer.generation_id,
            "member_id": answer.member_id,
            "group_instance_id": None,
            "assignments": assignments,
        },
    )
    again = (_ILLEGAL_GENERATION, _UNKNOWN_MEMBER_ID, _REBALANCE_IN_PROGRESS)
    is_settled = int(synced.error_code) not in again
    if is_settled:
        _require(synced, "sync")
    return Member(
        client=client,
        group_id=group_id,
        member_id=answer.member_id,
        generation_id=answer.generation_id,
        answered_at=answered_at,
        synced_at=time.monotonic(),
        is_settled=is_settled,
    )


def _require(answer: Any, what: str) -> None:
    if int(answer.error_code):
        raise BenchFailed(f"{what} was answered with {answer.error_code.name}")


def transaction_latencies_ms(
    bootstrap: str, topic: str, *, partitions: int, transactions: int, warm: int
) -> list[float]:
    """Milliseconds from begin to the commit's acknowledgement, for one producer with one
    transaction after the other, of one record to each partition."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": "bench-transactions",
            "linger.ms": 0,
            "log_level": 2,
        }
    )
    producer.init_transactions(COORDINATOR_TIMEOUT_S)
    found = []
    for i in range(warm + transactions):
        began = time.perf_counter()
        producer.begin_transaction()
        for partition in range(partitions):
            producer.produce(topic, b"v" * 100, partition=partition)
        producer.commit_transaction(COORDINATOR_TIMEOUT_S)
        if i >= warm:
            found.append((time.perf_counter() - began) * 1000)
    return found
