"""Client quotas: whose quota binds, how long the pause is, and that clients are held to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.network.connection import ANONYMOUS
from kvorum.broker.network.connection_limits import ConnectionLimits, parse_overrides
from kvorum.broker.quotas.client_quotas import ClientQuotas, QuotaKind, RateWindow
from kvorum.metadata.configs.quotas import IP
from kvorum.metadata.image.records import ClientQuota, QuotaEntity
from tests.polling import eventually
from tests.test_broker.harness import DEADLINE_S, Harness
from tests.test_broker.raw_client import RawClient, fetch_values

USER = ("user", ANONYMOUS)
ANY_USER = ("user", None)
CLIENT = ("client-id", "app")
ANY_CLIENT = ("client-id", None)

#: The most particular first.
IN_ORDER: list[QuotaEntity] = [
    (CLIENT, USER), (ANY_CLIENT, USER), (USER,), (CLIENT, ANY_USER), (ANY_CLIENT, ANY_USER),
    (ANY_USER,), (CLIENT,), (ANY_CLIENT,),
]  # fmt: skip


def quotas_of(rates: dict[QuotaEntity, float], key: str = "producer_byte_rate") -> ClientQuotas:
    quotas = ClientQuotas()
    quotas.update({entity: {key: rate} for entity, rate in rates.items()})
    return quotas


@given(st.sets(st.integers(0, 7), min_size=1))
def test_the_most_particular_entity_binds(given_ones: set[int]) -> None:
    quotas = quotas_of({IN_ORDER[at]: 100.0 + at for at in given_ones})
    limit = quotas.limit(QuotaKind.PRODUCE, ANONYMOUS, "app")
    assert limit is not None
    assert limit.bound == 100.0 + min(given_ones)


def test_without_a_quota_of_its_kind_nobody_pauses() -> None:
    quotas = quotas_of({(ANY_CLIENT,): 1.0}, key="consumer_byte_rate")
    assert quotas.throttle_ms(QuotaKind.PRODUCE, ANONYMOUS, "app", 10**9, 0) == 0
    assert not quotas.binds_requests
    quotas.update({((("ip", None)),): {"connection_creation_rate": 1.0}})
    assert not quotas.is_active


def test_each_client_of_a_default_has_a_window_of_its_own() -> None:
    quotas = quotas_of({(ANY_CLIENT,): 1000.0})
    assert quotas.throttle_ms(QuotaKind.PRODUCE, ANONYMOUS, "greedy", 100_000, 0) > 0
    assert quotas.throttle_ms(QuotaKind.PRODUCE, ANONYMOUS, "modest", 100, 0) == 0


def test_all_clients_of_a_user_share_the_users_window() -> None:
    quotas = quotas_of({(USER,): 1000.0})
    assert quotas.throttle_ms(QuotaKind.PRODUCE, ANONYMOUS, "one", 10_000, 0) == 0
    assert quotas.throttle_ms(QuotaKind.PRODUCE, ANONYMOUS, "two", 10_000, 0) == 10_000


def test_the_pause_is_what_brings_the_rate_down_to_the_bound() -> None:
    """(observed - bound) / bound * window: twice the bound over ten seconds is ten more."""
    quotas = quotas_of({(CLIENT,): 1000.0})
    assert quotas.throttle_ms(QuotaKind.PRODUCE, ANONYMOUS, "app", 10_000, 0) == 0
    assert quotas.throttle_ms(QuotaKind.PRODUCE, ANONYMOUS, "app", 10_000, 5_000) == 10_000
    # After eleven seconds the first ten thousand bytes are out of the window.
    assert quotas.throttle_ms(QuotaKind.PRODUCE, ANONYMOUS, "app", 0, 11_000) == 0


@given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 5_000)), max_size=40))
def test_a_client_that_obeys_its_pauses_keeps_its_rate(uses: list[tuple[int, int]]) -> None:
    """Over any run, the usage before the last step is at most the bound times the time, plus the
    ten seconds' worth that a fresh window allows."""
    quotas, bound, now_ms, used = quotas_of({(CLIENT,): 1000.0}), 1.0, 0, 0
    for idle_ms, amount in uses:
        now_ms += idle_ms
        assert used <= bound * now_ms + 10_000 + 5_000
        used += amount
        now_ms += quotas.throttle_ms(QuotaKind.PRODUCE, ANONYMOUS, "app", amount, now_ms)


@given(st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 1_000)), max_size=60))
def test_a_window_is_the_sum_of_what_its_samples_hold(uses: list[tuple[int, int]]) -> None:
    window, now_ms, samples = RateWindow(11, 1_000), 0, []
    for idle_ms, amount in uses:
        now_ms += idle_ms
        if not samples or now_ms - samples[-1][0] >= 1_000:
            samples.append([now_ms, 0])
        samples[-1][1] += amount
        window.record(amount, now_ms)
        kept = sum(used for start, used in samples if start > now_ms - 11_000)
        assert window.rate(now_ms) * window.width_ms(now_ms) == pytest.approx(kept * 1000)
        assert 10_000 <= window.width_ms(now_ms) <= 11_000


# --- connections -----------------------------------------------------------------------------


def test_an_address_has_so_many_connections_and_may_come_back_when_one_ends() -> None:
    limits = ConnectionLimits(parse_overrides("10.0.0.1:1, [::1]:0"))
    assert limits.refusal("10.0.0.2", 2, 0) is None
    assert limits.refusal("10.0.0.2", 2, 0) is None
    assert limits.refusal("10.0.0.2", 2, 0) == "10.0.0.2 has 2 connections already"
    limits.closed("10.0.0.2")
    assert limits.refusal("10.0.0.2", 2, 0) is None
    assert limits.refusal("10.0.0.1", 2, 0) is None
    assert limits.refusal("10.0.0.1", 2, 0) == "10.0.0.1 has 1 connections already"
    assert limits.refusal("::1", 2, 0) == "::1 has 0 connections already"


def test_connections_come_no_faster_than_their_quota() -> None:
    limits = ConnectionLimits({})
    limits.update({(("ip", None),): {"connection_creation_rate": 2.0},
                   (("ip", "10.0.0.9"),): {"connection_creation_rate": 1000.0}})  # fmt: skip
    taken = sum(limits.refusal("10.0.0.1", 10**6, 0) is None for _ in range(100))
    assert taken == 20  # ten seconds' worth at once, as for every quota
    assert limits.refusal("10.0.0.1", 10**6, 0) == "10.0.0.1 makes more than 2 connections a second"
    assert limits.refusal("10.0.0.9", 10**6, 0) is None
    assert limits.refusal("10.0.0.1", 10**6, 11_000) is None


def test_a_change_of_other_quotas_gives_an_address_no_fresh_start() -> None:
    limits = ConnectionLimits({}, samples_max=11, sample_ms=1_000)
    rates = {((IP, None),): {"connection_creation_rate": 0.3}}
    limits.update(rates)
    taken = [limits.refusal("10.0.0.1", 100, 0) is None for _ in range(4)]
    assert taken == [True, True, True, False]
    limits.update({**rates, (("client-id", "a"),): {"producer_byte_rate": 1.0}})
    assert limits.refusal("10.0.0.1", 100, 0) is not None


@pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.1:x", ":3"])
def test_overrides_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not address:count"):
        parse_overrides(text)


# --- a broker --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    config = BrokerConfig(max_connections_per_ip=40)
    harness = Harness(tmp_path_factory.mktemp("quotas"), count=1, config=config)
    yield harness
    harness.close()


@pytest.fixture
def topic(harness: Harness, tmp_path: Path) -> str:
    name = f"quotas-{tmp_path.name[:40]}"
    harness.call(lambda: harness.cluster.controller.create(name, [(1,)]))
    return name


@pytest.fixture
def bind(harness: Harness) -> Iterator[object]:
    """Sets a quota of any client, and takes all of them away at the end."""
    bound: list[tuple[QuotaEntity, str]] = []
    commit = harness.cluster.controller.commit

    def set_quota(entity: QuotaEntity, key: str, value: float) -> None:
        bound.append((entity, key))
        harness.call(lambda: commit(ClientQuota(entity, key, value)))

    yield set_quota
    for entity, key in bound:
        harness.call(lambda e=entity, k=key: commit(ClientQuota(e, k, None)))


def test_a_producer_above_its_rate_is_told_and_not_read_from(
    harness: Harness, topic: str, bind: object
) -> None:
    bind((("client-id", "bound"),), "producer_byte_rate", 10_000.0)
    throttles: list[int] = []
    settings = {
        "bootstrap.servers": harness.bootstrap, "client.id": "bound",
        "statistics.interval.ms": 0, "linger.ms": 0,
        "throttle_cb": lambda event: throttles.append(event.throttle_time),
    }  # fmt: skip
    producer = Producer(settings)
    producer.produce(topic, bytes(130_000))
    producer.flush(DEADLINE_S)
    eventually(lambda: producer.poll(0.01) is not None and throttles, "the throttle is told")
    assert 2 <= throttles[0] <= 4  # three seconds above the ten that the window lets through
    muted = [c for c in harness.cluster.brokers[1].server._connections if c.muted_ms]
    assert len(muted) == 1
    # Another client is not slowed down.
    free = Producer({"bootstrap.servers": harness.bootstrap, "client.id": "free"})
    free.produce(topic, b"v")
    assert free.flush(2.0) == 0


def test_what_comes_in_during_the_pause_is_read_after_it(
    harness: Harness, client: RawClient, topic: str, bind: object
) -> None:
    bind((("client-id", None),), "consumer_byte_rate", 10_000.0)
    producer = Producer({"bootstrap.servers": harness.bootstrap, "client.id": "free"})
    producer.produce(topic, bytes(110_000))
    producer.flush(DEADLINE_S)
    first = client.call("fetch", 12, fetch_values(topic, 0))
    assert first.responses[0].partitions[0].records
    throttle_ms = first.throttle_time.total_seconds() * 1000
    assert 500 <= throttle_ms <= 2_000
    port = client.sock.getsockname()[1]
    connections = list(harness.cluster.brokers[1].server._connections)
    (muted,) = [c for c in connections if str(port) in c.peer]
    assert muted.muted_ms > 0
    second = client.call("api_versions", 0, {})
    assert second.error_code is KioError.none
    assert harness.call(lambda: muted.muted_ms) == 0, "answered before the pause was over"


def test_requests_count_by_the_time_they_take(
    harness: Harness, client: RawClient, bind: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = harness.cluster.brokers[1].server
    slow = SlowClock(server.clock)
    monkeypatch.setattr(server, "clock", slow)
    bind((("client-id", None),), "request_percentage", 1.0)
    for connection in server._connections:
        monkeypatch.setattr(connection, "host", replace(connection.host, clock=slow))
    told = client.call("metadata", 9, {"topics": []}).throttle_time.total_seconds()
    assert told > 0


@pytest.mark.parametrize("version", [3, 4])
def test_only_what_brokers_ask_of_each_other_is_bound_by_no_quota(
    harness: Harness, client: RawClient, bind: object, version: int
) -> None:
    server = harness.cluster.brokers[1].server
    asked = (
        {"transactions": []}
        if version == 4
        else {
            "v3_and_below_transactional_id": "t",
            "v3_and_below_producer_id": 1,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [],
        }
    )
    clock, server.clock = server.clock, SlowClock(server.clock)
    try:
        bind((("client-id", None),), "request_percentage", 1.0)
        answer = client.call("add_partitions_to_txn", version, asked)
    finally:
        server.clock = clock
    assert (answer.throttle_time.total_seconds() > 0) is (version == 3)


class SlowClock:
    """A clock that advances by 600 ms at each reading: two readings exceed the longest pause."""

    def __init__(self, clock: object) -> None:
        self._clock = clock
        self._added_ms = 0

    def monotonic_ms(self) -> int:
        self._added_ms += 600
        return self._clock.monotonic_ms() + self._added_ms

    def wall_ms(self) -> int:
        return self._clock.wall_ms()


def test_an_address_with_too_many_connections_is_closed_at_once(harness: Harness) -> None:
    port = harness.cluster.brokers[1].port
    server = harness.cluster.brokers[1].server
    clients = []
    while len(server._connections) < 40:
        clients.append(RawClient(port))
        clients[-1].call("api_versions", 0, {})
    refused = RawClient(port)
    with pytest.raises((ConnectionError, OSError, EOFError)):
        refused.call("api_versions", 0, {})
    refused.close()
    for client in clients:
        client.close()
    eventually(lambda: len(server._connections) < 40, "the others are closed")
    again = RawClient(port)
    assert again.call("api_versions", 0, {}).error_code is KioError.none
    again.close()


def test_one_request_that_takes_many_windows_pauses_its_client_for_one() -> None:
    # A client that is silent for longer loses its session, and its place in its group.
    quotas = ClientQuotas()
    quotas.update({(("client-id", "c"),): {"request_percentage": 1.0}})
    assert quotas.throttle_ms(QuotaKind.REQUEST, ANONYMOUS, "c", 100.0, 0) == 1_000
