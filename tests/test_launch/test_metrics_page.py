"""The page of metrics: its lines, its slices, and the table that it is made of."""

from __future__ import annotations

import asyncio
import math
import random
import re
from collections.abc import Iterator
from functools import cache
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bench.observed import Observed
from kvorum.launch.metrics.page import SLICE_STEPS_MAX, lines, send_slices
from kvorum.launch.metrics.raft_view import RaftView
from kvorum.launch.metrics.row import HISTOGRAM, KAFKA, OWN, number
from kvorum.launch.metrics.rows import ROWS
from kvorum.launch.metrics.views import ControllerView, NodeView
from kvorum.metadata.controller.core.controller import Controller, ControllerConfig
from kvorum.raft.core.states import Leader
from kvorum.raft.model.progress import ReplicaProgress
from kvorum.raft.node.follower_clocks import FollowerClocks
from kvorum.runtime.certificates import CertificateWatch, TlsCaller, TlsListener
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.principals import PrincipalRules
from kvorum.runtime.tls import TlsSettings
from tests.certificates import Authority

BROKER = ROWS["broker"]
MANY = 100_000


@cache
def many() -> Observed:
    return Observed(MANY)


def text(observed: Observed, *names: str) -> str:
    return "".join(line for line in lines(BROKER, observed.view(), names) if line is not None)


def values(page: str) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
            name = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert name not in found
            found[name] = sample.value
    return found


def observed_with_work() -> Observed:
    observed = Observed(3)
    metrics = observed.registry.metrics
    produce = metrics.of_api(0, "produce")
    fetch = metrics.of_api(1, "fetch")
    produce.requests, fetch.requests, metrics.follower_fetch.requests = 5, 9, 7
    for took_s in (0.002, 0.002, 0.2):
        produce.total_s.observe(took_s)
    metrics.note_error(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    metrics.topics[bytes(16)].messages_in = 40
    metrics.departed.messages_in = 2
    metrics.listener("PLAINTEXT").made = 3
    metrics.listener("PLAINTEXT").closed = 1
    return observed


def test_the_page_by_our_names() -> None:
    page = values(text(observed_with_work(), OWN))
    assert page["kvorum_requests_total{api=Produce}"] == 5
    assert page["kvorum_requests_total{api=FetchConsumer}"] == 2
    assert page["kvorum_requests_total{api=FetchFollower}"] == 7
    assert page["kvorum_request_errors_total{api=Produce,error=NOT_ENOUGH_REPLICAS}"] == 1
    assert page["kvorum_request_seconds_bucket{api=Produce,le=0.001}"] == 0
    assert page["kvorum_request_seconds_bucket{api=Produce,le=0.0025}"] == 2
    assert page["kvorum_request_seconds_bucket{api=Produce,le=+Inf}"] == 3
    assert page["kvorum_request_seconds_count{api=Produce}"] == 3
    assert page["kvorum_request_seconds_sum{api=Produce}"] == pytest.approx(0.204)
    assert page["kvorum_topic_messages_in_total{topic=t-0}"] == 40
    assert page["kvorum_broker_messages_in_total"] == 42
    assert page["kvorum_broker_connections{listener=PLAINTEXT}"] == 2
    assert page["kvorum_broker_replicas"] == page["kvorum_broker_replicas_led"] == 3
    assert page["kvorum_partition_in_sync_replicas{partition=2,topic=t-0}"] == 2
    assert not [name for name in page if not name.startswith(("kvorum_", "process_"))]


def test_the_page_by_the_names_of_the_jmx_exporter() -> None:
    page = values(text(observed_with_work(), KAFKA))
    total = "kafka_network_requestmetrics_totaltimems"
    assert 1.0 <= page[f"{total}{{quantile=0.50,request=Produce}}"] <= 2.5
    assert 100 <= page[f"{total}{{quantile=0.99,request=Produce}}"] <= 250
    assert page[f"{total}_count{{request=Produce}}"] == 3
    assert page["kafka_network_requestmetrics_requests_total{request=FetchFollower}"] == 7
    assert page["kafka_server_brokertopicmetrics_messagesin_total"] == 42
    assert page["kafka_server_brokertopicmetrics_messagesin_total{topic=t-0}"] == 40
    listener = "{listener=PLAINTEXT,networkProcessor=0}"
    assert page[f"kafka_server_socket_server_metrics_connection_count{listener}"] == 2
    assert page["kafka_server_raftmetrics_current_state{current_state=unattached}"] == 1
    assert page["kafka_log_log_size{partition=0,topic=t-0}"] == 0
    assert not [name for name in page if not name.startswith(("kafka_", "process_"))]


def test_both_sets_of_names_stand_on_one_page() -> None:
    observed = observed_with_work()
    both = values(text(observed, OWN, KAFKA))
    for names in (OWN, KAFKA):
        assert set(values(text(observed, names))) <= set(both)


@pytest.mark.parametrize("names", [(OWN,), (KAFKA,), (OWN, KAFKA)])
def test_each_family_has_its_lines_together_behind_its_type(names: tuple[str, ...]) -> None:
    seen: list[str] = []
    for line in text(observed_with_work(), *names).splitlines():
        if line.startswith("# TYPE "):
            seen.append(line.split(" ")[2])
        elif not line.startswith("#"):
            family = re.match(r"\w+", line)[0]
            assert seen[-1] in (family, re.sub(r"_(bucket|sum|count)$", "", family))
    assert len(seen) == len(set(seen))


async def slices(steps: Iterator[str | None]) -> list[int]:
    """Lines of each slice, with a clock that stands still."""
    found: list[int] = []

    async def send(part: bytes) -> None:
        found.append(part.count(b"\n"))

    await send_slices(steps, send, clock_s=lambda: 0.0)
    return found


def test_no_slice_of_a_hundred_thousand_partitions_has_more_than_its_steps() -> None:
    turns = 0

    async def run() -> list[int]:
        nonlocal turns
        is_over = False

        async def count_turns() -> None:
            nonlocal turns
            while not is_over:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_turns())
        found = await slices(lines(BROKER, many().view(), (OWN,)))
        is_over = True
        await counting
        return found

    found = asyncio.run(run())
    # Two lines more in the last step of a histogram, and two lines in a family's head.
    assert max(found) <= 2 * SLICE_STEPS_MAX
    assert sum(found) > 9 * MANY
    # The sums and each per-partition family iterate over all partitions, with pauses.
    assert turns >= 11 * MANY / SLICE_STEPS_MAX


def test_a_slice_ends_by_the_clock_too() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.0006
        return now

    async def run() -> int:
        sent = 0

        async def send(part: bytes) -> None:
            nonlocal sent
            sent += 1

        await send_slices(iter(["x\n"] * 400), send, clock_s=clock)
        return sent

    assert asyncio.run(run()) >= 8


def test_a_topic_that_is_deleted_meanwhile_is_left_out() -> None:
    observed = Observed(3_000)
    steps = lines(BROKER, observed.view(), (OWN,))
    page = []
    for step in steps:
        page.append(step or "")
        if step is not None and step.startswith("kvorum_partition_replicas{"):
            break
    observed.delete(2)
    page += [step or "" for step in steps]
    found = values("".join(page))
    assert "kvorum_partition_log_bytes{partition=0,topic=t-1}" in found
    assert "kvorum_partition_log_bytes{partition=0,topic=t-2}" not in found


@pytest.mark.parametrize("role", sorted(ROWS))
def test_rows_have_one_name_each_and_a_type_that_fits(role: str) -> None:
    named = [row.name for row in ROWS[role] if row.name]
    assert len(named) == len(set(named))
    for row in ROWS[role]:
        assert row.name or row.exported
        assert bool(row.mbean) == bool(row.exported)
        assert row.help.endswith(".")
        if row.name:
            assert re.fullmatch(r"(kvorum|process)_[a-z_]+", row.name)
            assert (row.kind == "counter") == row.name.endswith("_total")
            assert row.kind != HISTOGRAM or row.name.endswith("_seconds")


def controller_view() -> NodeView:
    observed = Observed(3)
    controller = Controller(ControllerConfig(), cluster_id="c", rng=random.Random(1))
    controller.note_committed(observed.registry.image)
    return ControllerView(observed.raft, controller, observed.watch, 0.0, 2.5)


def test_a_controller_counts_the_partitions_of_its_image() -> None:
    page = values(
        "".join(line or "" for line in lines(ROWS["controller"], controller_view(), (OWN, KAFKA)))
    )
    assert page["kvorum_metadata_partitions"] == 3
    assert page["kvorum_controller_is_active"] == 0
    assert page["kafka_controller_kafkacontroller_globalpartitioncount"] == 3
    assert page["kafka_controller_kafkacontroller_lastappliedrecordlagms"] == 2_500
    assert page["kvorum_metadata_age_seconds"] == 2.5


def test_each_certificate_of_a_listener_and_of_calls_to_one_has_its_end(tmp_path) -> None:
    authority = Authority(tmp_path)
    settings = TlsSettings(
        what="the listener CLIENTS",
        listener="CLIENTS",
        keystore=str(authority.server("node.pem")),
    )
    bare = TlsSettings(what="calls to CONTROLLER", listener="CONTROLLER")
    view = controller_view()
    view.certificates = CertificateWatch()
    listener = TlsListener(settings, PrincipalRules())
    view.certificates.watched += [listener, TlsCaller(settings), TlsCaller(bare)]
    page = values("".join(line or "" for line in lines(ROWS["controller"], view, (OWN,))))
    assert listener.shown is not None
    name = "kvorum_certificate_end_time_seconds"
    assert {key: value for key, value in page.items() if key.startswith(name)} == {
        f"{name}{{listener=CLIENTS,side={side}}}": listener.shown.ends_s
        for side in ("server", "client")
    }


@pytest.mark.parametrize("role", sorted(ROWS))
def test_every_source_can_be_read(role: str) -> None:
    view = observed_with_work().view() if role == "broker" else controller_view()
    for _ in view.prepare():
        pass
    for row in ROWS[role]:
        for found in view.scopes[row.scope]():
            if found is not None:
                attrgetter(row.source)(found[1])


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (True, "1"),
        (7, "7"),
        (0.5, "0.5"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_are_written_as_prometheus_reads_them(value: float, written: str) -> None:
    assert number(value) == written


def test_a_node_that_has_fetched_under_two_directory_ids_has_one_series():
    """Its disk was lost, or a second process had its id: the one that fetched last counts."""
    keys = [(101, bytes([n]) * 16) for n in (1, 2, 3)]
    progress = {
        key: ReplicaProgress(101, key[1], end_offset=at, last_fetch_ms=at)
        for key, at in zip(keys, (5, 9, 7), strict=True)
    }
    role = Leader(leader_id=1, epoch_start_offset=0, elected_at_ms=0, voters={}, observers=progress)
    core: Any = SimpleNamespace(role=role, log=SimpleNamespace(end_offset=10))
    clocks = FollowerClocks()
    clocks.note(101, 997, 1_000)
    node: Any = SimpleNamespace(core=core, servicer=SimpleNamespace(clocks=clocks))
    view = object.__new__(RaftView)
    view._core, view._node, view.log_end_offset = core, node, 10
    ((labels, item),) = view.followers()
    assert (labels, item.lag_records, item.clock_ahead_s) == (("101",), 1, -0.003)
