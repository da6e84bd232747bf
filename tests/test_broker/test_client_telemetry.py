"""KIP-714: the metrics that clients are asked for, the pushes that are accepted, and where the
values appear."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from kio.schema.errors import ErrorCode as KioError
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from kvorum.broker.metrics import client_metrics_page as client_figures
from kvorum.broker.metrics.client_metrics_page import ClientFigures
from kvorum.broker.metrics.client_telemetry import (
    EXPIRY_MS_MIN,
    INSTANCES_MAX,
    TELEMETRY_BYTES_MAX,
    ClientFacts,
    ClientTelemetry,
    Instance,
)
from kvorum.metadata.image.persistent_map import Map
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.compression import Codec, compress
from tests.test_broker.config_calls import alter
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient

ID = b"i" * 16
FACTS = ClientFacts("app-1", "librdkafka", "2.6.0", "10.0.0.1", "4711")


def configs(**subscriptions: dict[str, str]) -> Map:
    return Map({(16, name): Map(values) for name, values in subscriptions.items()})


EVERY_SECOND = configs(s={"metrics": "a.,b.", "interval.ms": "1000"})


def pushed(subscription_id: int, **more: object) -> SimpleNamespace:
    fields = {"terminating": False, "compression_type": 0, "metrics": b"x", **more}
    return SimpleNamespace(subscription_id=subscription_id, **fields)


def asked(telemetry: ClientTelemetry, config: Map, now_ms: int = 0) -> Instance:
    answer = telemetry.ask(ID, FACTS, config, now_ms)
    assert isinstance(answer, Instance)
    return answer


@pytest.mark.parametrize(
    ("match", "is_asked"),
    [
        ("", True),
        ("client_id=app-.*", True),
        ("client_id=app", False),
        (r"client_software_name=librdkafka,client_software_version=2\..*", True),
        ("client_software_name=librdkafka,client_id=other", False),
        (r"client_source_address=10\.0\.0\.1,client_source_port=4711", True),
        ("client_instance_id=aWlpaWlpaWlpaWlpaWlpaQ", True),
    ],
)
def test_a_client_is_asked_for_what_the_subscriptions_that_match_it_name(match, is_asked):
    config = configs(s={"metrics": "a.", "interval.ms": "2000", "match": match})
    answer = asked(ClientTelemetry(), config)
    expected = (("a.",), 2_000) if is_asked else ((), 300_000)
    assert (answer.metrics, answer.interval_ms) == expected


def test_several_subscriptions_add_up_and_the_shortest_interval_holds():
    both = configs(s={"metrics": "b.,a.", "interval.ms": "2000"}, t={"metrics": "c."})
    answer = asked(ClientTelemetry(), both)
    assert (answer.metrics, answer.interval_ms) == (("a.", "b.", "c."), 2_000)
    everything = configs(s={"metrics": "a."}, t={"metrics": "*"})
    assert asked(ClientTelemetry(), everything).metrics == ("*",)


def test_every_broker_gives_an_instance_the_same_subscription_id():
    first, second = (asked(ClientTelemetry(), EVERY_SECOND) for _ in range(2))
    assert first.subscription_id == second.subscription_id
    other = asked(ClientTelemetry(), configs(s={"metrics": "a."}))
    assert other.subscription_id != first.subscription_id


def test_a_question_before_the_interval_is_over_is_throttled():
    telemetry = ClientTelemetry()
    asked(telemetry, EVERY_SECOND, 0)
    early = telemetry.ask(ID, FACTS, EVERY_SECOND, 999)
    assert early is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    asked(telemetry, EVERY_SECOND, 1_000)


def test_the_first_push_may_come_at_any_time_and_the_next_an_interval_later():
    telemetry = ClientTelemetry()
    request = pushed(asked(telemetry, EVERY_SECOND, 0).subscription_id)
    outcomes = [telemetry.push(ID, FACTS, EVERY_SECOND, request, at) for at in (1, 1_000, 1_001)]
    assert isinstance(outcomes[0], Instance)
    assert outcomes[1] is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert isinstance(outcomes[2], Instance)


def test_the_last_push_may_come_early_and_is_the_last():
    telemetry = ClientTelemetry()
    subscription_id = asked(telemetry, EVERY_SECOND, 0).subscription_id
    telemetry.push(ID, FACTS, EVERY_SECOND, pushed(subscription_id), 1)
    last = pushed(subscription_id, terminating=True)
    assert isinstance(telemetry.push(ID, FACTS, EVERY_SECOND, last, 2), Instance)
    after = telemetry.push(ID, FACTS, EVERY_SECOND, pushed(subscription_id), 9_000)
    assert after is ErrorCode.INVALID_REQUEST


def test_a_client_asks_anew_at_once_when_its_subscription_has_changed():
    telemetry = ClientTelemetry()
    request = pushed(asked(telemetry, EVERY_SECOND, 0).subscription_id)
    changed = configs(s={"metrics": "c.", "interval.ms": "1000"})
    refused = telemetry.push(ID, FACTS, changed, request, 1)
    assert refused is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert asked(telemetry, changed, 2).metrics == ("c.",)


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"compression_type": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression_type": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes(TELEMETRY_BYTES_MAX + 1)}, ErrorCode.TELEMETRY_TOO_LARGE),
    ],
)
def test_a_push_that_cannot_be_taken_is_refused(more, error):
    telemetry = ClientTelemetry()
    request = pushed(asked(telemetry, EVERY_SECOND).subscription_id, **more)
    assert telemetry.push(ID, FACTS, EVERY_SECOND, request, 1) is error


@pytest.mark.parametrize("reserved", [bytes(16), bytes(15) + b"\x01"])
def test_a_reserved_id_is_no_instances(reserved):
    refused = ClientTelemetry().push(reserved, FACTS, EVERY_SECOND, pushed(0), 0)
    assert refused is ErrorCode.INVALID_REQUEST


def test_instances_are_bounded_and_forgotten_after_three_intervals():
    telemetry = ClientTelemetry()
    for number in range(INSTANCES_MAX + 1):
        telemetry.ask(number.to_bytes(16, "big"), FACTS, EVERY_SECOND, 0)
    first, second = bytes(16), (1).to_bytes(16, "big")
    assert not telemetry.is_known(first, 0)
    assert telemetry.is_known(second, EXPIRY_MS_MIN - 1)
    assert not telemetry.is_known(second, EXPIRY_MS_MIN)


# --- figures -------------------------------------------------------------------------------------


def otlp(values: dict[str, float], **attributes: str) -> bytes:
    message = MetricsData()
    scope = message.resource_metrics.add().scope_metrics.add()
    for name, value in values.items():
        metric = scope.metrics.add(name=name)
        point = metric.sum.data_points.add(as_double=value)
        for key, text in attributes.items():
            point.attributes.add(key=key).value.string_value = text
    return message.SerializeToString()


def instance(number: int = 0) -> Instance:
    return Instance(instance_id=number.to_bytes(16, "big"), facts=FACTS, configs=Map())


def page(figures: ClientFigures) -> list[str]:
    """The lines of series that Prometheus reads."""
    text = "".join(line for line in figures.lines() if line is not None)
    return [line for line in text.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_push_of_every_codec_is_read(codec: Codec):
    figures = ClientFigures()
    packed = compress(codec, otlp({"org.apache.kafka.x": 2.5}, topic="t"))
    assert figures.take(instance(), codec, packed) is ErrorCode.NONE
    assert page(figures) == [
        'kvorum_client_org_apache_kafka_x{attribute_topic="t",client_id="app-1",'
        'client_instance_id="AAAAAAAAAAAAAAAAAAAAAA"} 2.5'
    ]


def test_a_push_takes_the_place_of_the_one_before():
    figures = ClientFigures()
    figures.take(instance(), 0, otlp({"a": 1, "b": 1}))
    figures.take(instance(), 0, otlp({"a": 2}))
    assert [line.rpartition(" ")[2] for line in page(figures)] == ["2.0"]
    figures.forget(lambda _: False)
    assert page(figures) == []


def test_what_cannot_be_read_is_an_invalid_record():
    figures = ClientFigures()
    assert figures.take(instance(), 0, b"\xff\xff") is ErrorCode.INVALID_RECORD
    assert figures.take(instance(), Codec.ZSTD, b"no zstd") is ErrorCode.INVALID_RECORD
    bomb = compress(Codec.ZSTD, bytes(TELEMETRY_BYTES_MAX + 1))
    assert figures.take(instance(), Codec.ZSTD, bomb) is ErrorCode.TELEMETRY_TOO_LARGE


def test_series_are_bounded_by_instance_and_in_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_figures, "SERIES_OF_INSTANCE_MAX", 3)
    monkeypatch.setattr(client_figures, "SERIES_MAX", 5)
    figures = ClientFigures()
    kept = []
    for number in range(3):
        figures.take(instance(number), 0, otlp({f"m{i}": 1 for i in range(10)}))
        kept.append(len(page(figures)))
    assert kept == [3, 5, 5]


def test_names_and_labels_of_clients_cannot_break_the_page():
    figures = ClientFigures()
    figures.take(instance(), 0, otlp({'a"}\n{b': 1}, **{'k"y': 'v"\n'}))
    (line,) = page(figures)
    assert line.startswith(r'kvorum_client_a____b{attribute_k_y="v\"\n"')


# --- the APIs ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    harness = Harness(tmp_path_factory.mktemp("telemetry"), count=1)
    yield harness
    harness.close()


def advertised(client: RawClient) -> set[int]:
    """Those of the two calls that ApiVersions names."""
    software = {"client_software_name": "test", "client_software_version": "1"}
    return {71, 72} & {api.api_key for api in client.call("api_versions", 3, software).api_keys}


def test_a_client_asks_pushes_and_is_told_of_what_is_wrong(
    harness: Harness, client: RawClient
) -> None:
    assert advertised(client) == set(), "librdkafka logs a line where it sees them"
    alter(client, 16, "s", metrics="org.apache.kafka.", interval_ms="3600000")
    assert advertised(client) == {71, 72}
    told = client.call("get_telemetry_subscriptions", 0, {"client_instance_id": bytes(16)})
    assert told.error_code is KioError.none
    # A push interval is at most five minutes, which is also the default.
    assert told.push_interval.total_seconds() == 300
    assert told.requested_metrics == ("org.apache.kafka.",)
    assert tuple(told.accepted_compression_types) == (4, 3, 1, 2)
    assert told.telemetry_max_bytes == 1 << 20
    assert isinstance(told.client_instance_id, uuid.UUID)
    instance_id = told.client_instance_id.bytes

    def push(subscription_id: int, data: bytes) -> KioError:
        return client.call("push_telemetry", 0, {
            "client_instance_id": instance_id, "subscription_id": subscription_id,
            "terminating": False, "compression_type": 0, "metrics": data,
        }).error_code  # fmt: skip

    assert push(told.subscription_id, otlp({"org.apache.kafka.y": 7})) is KioError.none
    figures = harness.cluster.brokers[1].server.services.client_figures
    (line,) = page(figures)
    assert line.startswith("kvorum_client_org_apache_kafka_y{")
    assert push(told.subscription_id, b"") is KioError.throttling_quota_exceeded
    again = client.call("get_telemetry_subscriptions", 0, {"client_instance_id": instance_id})
    assert again.error_code is KioError.throttling_quota_exceeded
    alter(client, 16, "s", metrics="org.apache.kafka.producer.")
    assert push(told.subscription_id, b"") is KioError.unknown_subscription_id
