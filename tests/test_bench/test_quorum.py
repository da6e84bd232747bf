"""The quorum's benchmark: the code under its figures, and the store over one member."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from bench.cluster import BenchFailed
from bench.quorum import protocol
from bench.quorum.client import StoreClient, await_equal, run_writers
from bench.quorum.etcd import read_report
from bench.quorum.figures import ETCD, FIGURES, HEADINGS, KVORUM, markdown, rows
from bench.quorum.gaps import CLIENT, BlackHoles, EtcdPutter, PutLoad, _sized
from bench.quorum.members import MEMBERS, StoreCluster
from bench.quorum.partitions import _topic_sizes
from bench.quorum.pauses import image_of, watched
from bench.quorum.protocol import Answer, Outcome, Status
from tests.live.cluster import Ports

ETCD_REPORT = """
Summary:
  Total:\t2.6793 secs.
  Slowest:\t0.0138 secs.
  Requests/sec:\t746.4633

Response time histogram:
  0.0003 [1]\t|
  0.0017 [1899]\t|∎∎∎∎
  0.0030 [100]\t|∎

Latency distribution:
  10% in 0.0006 secs.
  50% in 0.0012 secs.
  99% in 0.0031 secs.
  99.9% in 0.0066 secs.
"""


def test_values_and_outcomes_come_through_the_wire():
    assert protocol.decode_values(protocol.encode_values([7, 9], [b"a", b"b"])) == (
        [7, 9],
        [b"a", b"b"],
    )
    answer = Answer(epoch=3, leader_id=2, outcomes=[Outcome(ids=[7, 9], base_offset=40)])
    assert protocol.decode_answer(protocol.encode_answer(answer)) == answer
    status = Status(epoch=3, leader_id=-1, count=5, end_offset=8)
    assert protocol.decode_status(protocol.encode_status(status)) == status


def test_figures_of_etcd_are_read_from_its_report():
    puts = read_report(ETCD_REPORT, total=2_000)
    assert (puts.per_second, puts.p50_ms, puts.p99_ms) == (746.4633, 1.2, 3.1)


def test_a_report_of_etcd_with_errors_or_missing_answers_is_no_figure():
    with pytest.raises(BenchFailed, match="answered 2000 of 3000"):
        read_report(ETCD_REPORT, total=3_000)
    with pytest.raises(BenchFailed, match="answered"):
        read_report(ETCD_REPORT + "\nError distribution:\n  [3]\ttimeout\n", total=2_000)
    with pytest.raises(BenchFailed, match="no figures"):
        read_report("killed", total=1)


def test_lengths_above_127_take_two_bytes():
    assert _sized(b"abc") == b"\x03abc"
    assert _sized(b"k" * 200)[:2] == b"\xc8\x01"


def test_a_figure_that_failed_once_is_missed_though_its_median_is_good():
    samples = {KVORUM: {"kill_s": [0.1, 0.1], "hang_s": [2.0]}, ETCD: {"kill_s": [1.0]}}
    good = {row[0]: row for row in rows(samples, {})}
    kill, hang = (next(f.title for f in FIGURES if f.key == key) for key in ("kill_s", "hang_s"))
    assert good[kill][2:] == ("1.00", "0.10 (0.10-0.10)", "0.10x", "≤ 0.3", "met")
    assert good[hang][-1] == "missed"
    failed = {row[0]: row for row in rows(samples, {(KVORUM, "gaps"): "no leader"})}
    assert failed[kill][-1] == "missed"
    assert "failed once or more" in failed[kill][3]
    etcd_failed = {row[0]: row for row in rows(samples, {(ETCD, "gaps"): "no leader"})}
    assert etcd_failed[kill][-1] == "met"


def test_markdown_names_machine_method_and_failures():
    text = markdown(
        machine={"cores": "2"},
        method=["a rule"],
        table=rows({KVORUM: {"kill_s": [0.1]}}, {}),
        failures={(ETCD, "start"): "no port"},
    )
    assert all(heading in text for heading in HEADINGS if heading)
    assert "- etcd, start: no port" in text
    assert "| cores | 2 |" in text
    assert "- a rule" in text


def test_keys_of_figures_are_unique():
    keys = [figure.key for figure in FIGURES]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("partitions", "sizes"), [(10, [10]), (2_500, [1_000, 1_000, 500]), (1_000, [1_000])]
)
def test_partitions_are_spread_over_topics_of_a_thousand(partitions, sizes):
    assert _topic_sizes(partitions) == sizes


def test_every_link_of_a_member_has_a_proxy_of_its_own():
    holes = BlackHoles(listeners={m: f"127.0.0.1:{m}" for m in MEMBERS}, port=1, log_file="")
    assert len(holes.peer_links) == 6
    assert set(holes.client_addresses) == set(MEMBERS)
    addresses = [*holes.peer_links.values(), *holes.client_addresses.values()]
    assert len(set(addresses)) == 9
    assert CLIENT not in {str(source) for source, _ in holes.peer_links}


def test_image_has_the_partitions_asked_for_and_leaders_on_every_broker():
    image = image_of(1_500)
    partitions = [p for topic in image.topics.values() for p in topic.partitions.values()]
    assert len(partitions) == 1_500
    assert {p.leader for p in partitions} == {101, 102, 103}
    assert len(image.active_broker_ids()) == 3


async def _block() -> str:
    until = time.perf_counter() + 0.05
    while time.perf_counter() < until:
        pass
    return "done"


def test_a_pause_of_the_loop_is_seen():
    result, took_s, pause_ms = asyncio.run(watched(_block()))
    assert result == "done"
    assert took_s >= 0.05
    assert pause_ms >= 40


async def _gap_of_a_silent_put(silence_s: float) -> tuple[float, PutLoad]:
    """The gap that is measured if puts fail for a while after the fault."""
    silent_until = 0.0

    async def put() -> None:
        if time.monotonic() < silent_until:
            raise BenchFailed("silent")

    def strike() -> None:
        nonlocal silent_until
        silent_until = time.monotonic() + silence_s

    async with PutLoad(put, errors=(BenchFailed,)) as load:
        return await load.gap_s(strike), load


def test_gap_is_the_silence_after_the_fault(monkeypatch):
    for name, seconds in (("WATCHED_S", 0.6), ("STEADY_BEFORE_S", 0.1), ("_STEADY_S", 0.2)):
        monkeypatch.setattr(f"bench.quorum.gaps.{name}", seconds)
    gap_s, load = asyncio.run(_gap_of_a_silent_put(0.4))
    assert gap_s >= 0.39
    assert set(load.refusals) == {"silent"}


def test_a_put_that_fails_unexpectedly_ends_the_run():
    async def put() -> None:
        raise ValueError("a bug")

    async def run() -> None:
        async with PutLoad(put) as load:
            await load.gap_s(lambda: None)

    with pytest.raises(ValueError, match="a bug"):
        asyncio.run(run())


@pytest.fixture
def ports():
    ports = Ports()
    yield ports
    ports.close()


@pytest.mark.live
def test_store_commits_on_every_member_and_outlives_its_leader(tmp_path, ports):
    asyncio.run(_store_story(StoreCluster(directory=tmp_path / "store", port=ports.broker)))


async def _store_story(cluster: StoreCluster) -> None:
    cluster.start()
    try:
        async with StoreClient(cluster.addresses) as client:
            commits = await run_writers([client], writers=20, commits=300)
            assert len(commits.latencies_ms) == 300
            await await_equal(cluster.addresses, acknowledged=300)
            leader_id = client.leader_id
            cluster.strike(leader_id, signal.SIGKILL)
            assert await asyncio.wait_for(client.append(b"after"), 30) > 300
            assert client.leader_id != leader_id
        cluster.start_member(leader_id)
        await await_equal(cluster.addresses, acknowledged=301)
    finally:
        cluster.stop()


@pytest.mark.live
def test_members_that_lack_an_acknowledged_value_are_found_out(tmp_path, ports, monkeypatch):
    monkeypatch.setattr("bench.quorum.client._EQUAL_TIMEOUT_S", 0.5)
    cluster = StoreCluster(directory=tmp_path / "store", port=ports.broker)

    async def story() -> None:
        async with StoreClient(cluster.addresses) as client:
            await client.append(b"one")
        await await_equal(cluster.addresses, acknowledged=2)

    cluster.start()
    try:
        with pytest.raises(BenchFailed, match="2 values were acknowledged"):
            asyncio.run(story())
    finally:
        cluster.stop()


def test_etcd_is_asked_at_its_members_in_turn():
    async def story() -> list[int]:
        putter = EtcdPutter(["127.0.0.1:1", "127.0.0.1:2"], b"v")
        asked: list[int] = []

        def target(number):
            async def put(message, timeout):
                asked.append(number)
                assert message.startswith(b"\x0a\x08")

            return put

        putter._puts = [target(0), target(1)]
        for _ in range(4):
            await putter.put()
        await putter.close()
        return asked

    assert asyncio.run(story()) == [1, 0, 1, 0]
