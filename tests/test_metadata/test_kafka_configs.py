"""Every config of Apache Kafka 4.4 is obeyed, taken with a reason, or refused with a reason."""

from __future__ import annotations

import fnmatch
import pathlib
import re
from typing import NamedTuple

import pytest

from kvorum.launch.config.kafka_properties import unbound
from kvorum.launch.config.property_classes import BROKER_NAMES, CONTROLLER_NAMES
from kvorum.metadata.configs.config_keys import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    broker_config_problem,
    broker_key,
    broker_value_problem,
    ignored_config,
    topic_config_problem,
)
from kvorum.metadata.configs.kafka_keys import kafka_keys
from kvorum.metadata.configs.model import ConfigKey, ConfigType, Update
from kvorum.runtime.errors import ConfigError

FILE = pathlib.Path(__file__).parent.parent / "golden" / "kafka_configs_4_4.tsv"
OTHER_VALUES = {
    ConfigType.BOOLEAN: "true",
    ConfigType.INT: "1",
    ConfigType.LONG: "1",
    ConfigType.LIST: "other",
    ConfigType.CLASS: "other.Class",
    ConfigType.STRING: "other.Class",
}


class Row(NamedTuple):
    """default: as the file has it, `<null>` for none and `<required>` for a name without one."""

    kind: str
    name: str
    type: str
    default: str
    bounds: str
    update: str
    verdict: str

    @property
    def default_value(self) -> str | None:
        return None if self.default in ("<null>", "<required>") else self.default


DYNAMIC = {key.name for key in BROKER_CONFIGS.values() if key.update is not Update.READ_ONLY}

ROWS = [
    Row(*line.split("\t"))
    for line in FILE.read_text().splitlines()
    if line and not line.startswith("#")
]


def of(kind: str, verdict: str) -> list[Row]:
    return [row for row in ROWS if (row.kind, row.verdict) == (kind, verdict)]


def test_the_file_has_all_names_of_kafka_and_each_once():
    names = [(row.kind, row.name) for row in ROWS]
    assert len(set(names)) == len(names) == 379 + 38


def test_no_name_has_two_places():
    assert not set(kafka_keys()) & (set(BROKER_CONFIGS) | BROKER_NAMES)
    brokers = {row.name for row in ROWS if row.kind == "broker"}
    assert set(kafka_keys()) <= brokers | CONTROLLER_NAMES


@pytest.mark.parametrize("name", sorted((CONTROLLER_NAMES | BROKER_NAMES) - DYNAMIC))
def test_properties_read_at_the_start_cannot_be_set_at_run_time(name: str):
    """As an unknown name it would be stored, but never read."""
    problem = broker_config_problem(name, "1", "101")
    assert problem is not None
    assert f"{name} is read-only" in problem.message


@pytest.mark.parametrize("row", of("broker", "obeyed"), ids=lambda row: row.name)
def test_names_that_are_obeyed_are_bound_by_brokers_or_controllers(row: Row):
    assert row.name in BROKER_NAMES | CONTROLLER_NAMES


@pytest.mark.parametrize("row", of("broker", "ignored"), ids=lambda row: row.name)
def test_names_that_change_nothing_are_taken_with_a_line_for_the_log(row: Row):
    key = broker_key(row.name)
    assert key is not None and key.served is None
    assert (key.type.name, key.default) == (row.type, row.default_value)
    value = row.default_value or ("1" if key.type in (ConfigType.INT, ConfigType.LONG) else "x")
    assert broker_value_problem(row.name, value) is None
    line = ignored_config(row.name, value)
    assert line is not None and row.name in line and key.ignored in line
    assert key.type is not ConfigType.PASSWORD or "hidden" in line


def test_the_documentation_names_each_config_that_changes_nothing():
    text = (pathlib.Path(__file__).parents[2] / "docs" / "configs.md").read_text()
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    shown = [(re.findall("`([^`]+)`", row[0]), row[1]) for row in rows]
    for key in kafka_keys().values():
        if key.ignored:
            assert any(
                key.ignored in reason and any(fnmatch.fnmatch(key.name, name) for name in names)
                for names, reason in shown
            ), key.name


@pytest.mark.parametrize("row", of("broker", "fixed"), ids=lambda row: row.name)
def test_names_that_would_be_a_lie_are_taken_at_the_value_that_changes_nothing(row: Row):
    key = broker_key(row.name)
    assert key is not None and key.served and key.type.name == row.type
    assert all(broker_value_problem(row.name, value) is None for value in key.served)
    if row.default_value is not None:
        assert broker_value_problem(row.name, row.default_value) is None
    problem = broker_value_problem(row.name, OTHER_VALUES[key.type])
    if row.name == "process.roles":
        problem = broker_value_problem(row.name, "broker,controller")
    assert problem is not None
    assert row.name in problem


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.name in kafka_keys()], ids=lambda row: row.name
)
def test_a_running_broker_takes_what_kafkas_takes(row: Row):
    update = {
        "read-only": Update.READ_ONLY,
        "dynamic": Update.DYNAMIC,
        "per-broker": Update.PER_BROKER,
    }[row.update]
    key = kafka_keys()[row.name]
    assert key.update is update
    value = key.default or (key.served or ("1",))[0]
    for resource_name, refusing in (
        ("101", {Update.READ_ONLY}),
        ("", {Update.READ_ONLY, Update.PER_BROKER}),
    ):
        problem = broker_config_problem(row.name, value, resource_name)
        assert (problem is not None) == (update in refusing)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.kind == "topic"], ids=lambda row: row.name
)
def test_topics_have_kafkas_names_types_and_defaults(row: Row):
    key = TOPIC_CONFIGS.get(row.name)
    if row.verdict == "unknown":
        assert key is None
        assert topic_config_problem(row.name, "1") is not None
        return
    assert key is not None
    assert (key.type.name, key.default) == (row.type, row.default_value)
    assert topic_config_problem(row.name, row.default) is None
    assert (row.verdict == "fixed") == (key.served is not None)
    if row.bounds.startswith("[") and row.bounds[1:2].isdigit() and not key.values:
        assert key.low == float(row.bounds[1:].split(",")[0])


def test_topics_have_no_names_of_their_own():
    assert {row.name for row in ROWS if row.kind == "topic"} >= set(TOPIC_CONFIGS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("remote.storage.enable", "true"),
        ("remote.log.copy.disable", "true"),
        ("remote.log.delete.on.disable", "true"),
        ("local.retention.ms", "1000"),
        ("local.retention.bytes", "-1"),
    ],
)
def test_tiers_cannot_be_turned_on(name: str, value: str):
    problem = topic_config_problem(name, value)
    assert problem is not None
    assert "logs have no remote tier" in problem.message


@pytest.mark.parametrize(
    ("name", "value", "is_taken"),
    [
        ("compression.gzip.level", "-1", True),
        ("compression.gzip.level", "0", False),
        ("compression.gzip.level", "9", True),
        ("compression.gzip.level", "10", False),
        ("compression.lz4.level", "0", False),
        ("compression.lz4.level", "17", True),
        ("compression.lz4.level", "18", False),
        ("compression.zstd.level", "-131072", True),
        ("compression.zstd.level", "-131073", False),
        ("compression.zstd.level", "22", True),
        ("compression.zstd.level", "23", False),
    ],
)
def test_levels_of_compression_have_kafkas_bounds(name: str, value: str, is_taken: bool):
    assert (topic_config_problem(name, value) is None) == is_taken
    assert (broker_config_problem(name, value, "") is None) == is_taken


def test_a_plug_ins_config_is_taken_whatever_it_says_and_not_shown():
    assert broker_key("my.plugin.secret") is None
    for resource_name in ("", "101"):
        assert broker_config_problem("my.plugin.secret", "hunter2", resource_name) is None
    line = ignored_config("my.plugin.secret", "hunter2")
    assert line is not None
    assert "my.plugin.secret" in line and "hunter2" not in line


def test_configs_that_are_obeyed_have_no_line_for_the_log():
    assert ignored_config("log.retention.ms", "5") is None
    assert ignored_config("principal.builder.class", "") is None


def test_a_number_may_have_a_value_outside_of_its_bounds():
    key = ConfigKey(
        name="x", type=ConfigType.INT, default="-1", low=1, high=9, also=(-1,), documentation="A."
    )
    assert key.problem("-1") is None
    assert key.problem("0") == "x='0' must lie between 1 and 9 or be -1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ssl.cipher.suites", "TLS_AES_256_GCM_SHA384"),
        ("ssl.protocol", "TLSv1.2"),
        ("ssl.engine.factory.class", "org.example.Engines"),
        ("sasl.server.callback.handler.class", "org.example.Ldap"),
        ("security.providers", "org.example.Fips"),
        ("ssl.trustmanager.algorithm", "Strict"),
    ],
)
def test_a_node_does_not_start_with_a_restriction_that_it_does_not_have(name: str, value: str):
    with pytest.raises(ConfigError, match=re.escape(f"{name}={value!r} is not served")):
        unbound({name: value}, (), (), "broker")
    refused = broker_config_problem(name, value, "101")
    assert refused is not None and name in refused.message
