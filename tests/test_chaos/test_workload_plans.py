from __future__ import annotations

from types import SimpleNamespace

import pytest

from kvorum.chaos.experiment_file.experiment import parse_experiment
from kvorum.chaos.experiment_file.workloads import (
    WORKLOADS,
    KeyedPlan,
    build_workload,
    workload_name,
)
from kvorum.chaos.workloads.keyed import partition_of
from kvorum.chaos.workloads.open import topics_of
from kvorum.chaos.workloads.record_values import offset_of
from kvorum.runtime.errors import ConfigError

EXPERIMENT = """
title: workloads
configuration:
  topic: {{partitions: 5}}
  workloads: {workloads}
method:
  - {{type: action, name: heal, provider: {{type: kvorum, func: heal}}}}
"""


def parsed(workloads: str):
    return parse_experiment("x.yaml", EXPERIMENT.format(workloads=workloads)).configuration


def test_every_kind_has_defaults_and_keeps_its_name():
    for name in WORKLOADS:
        assert workload_name(build_workload(name, {})) == name


def test_an_experiment_lists_workloads_in_order():
    configuration = parsed("[{keyed: {keys: 7}}, {group: {protocol: consumer}}, {topics: }]")
    assert [workload_name(plan) for plan in configuration.workloads] == ["keyed", "group", "topics"]
    assert configuration.workloads[0] == KeyedPlan(keys=7)


def test_a_copy_has_as_many_partitions_as_its_source():
    needs = topics_of(parsed("[{transactional_copy: {}}, {transactions: {partitions: 2}}]"))
    assert [(need.name, need.partitions) for need in needs] == [("copies", 5), ("ledger", 2)]


def test_a_key_stays_in_one_partition():
    assert {partition_of(key, 3) for key in range(100)} == {0, 1, 2}
    assert partition_of(42, 3) == partition_of(42, 3)


@pytest.mark.parametrize(
    ("workloads", "sentence"),
    [
        ("[{keyd: {}}]", "x.yaml:5: configuration.workloads.0.keyd: unknown workload 'keyd'; did "),
        ("[{keyed: {key: 3}}]", "unknown argument 'key' of keyed; did you mean 'keys'?"),
        ("[{keyed: {keys: 0}}]", "keys of keyed must lie between 1 and 100000, got 0"),
        ("[{keyed: {keys: many}}]", "keys of keyed must be a whole number, got 'many'"),
        ("[{group: {protocol: new}}]", "protocol of group is one of classic, consumer, got 'new'"),
        ("[{keyed: {topic: orders}}]", "the topic 'orders' has a load already"),
        ("[{keyed: {}}, {keyed: {}}]", "the topic 'prices' has a load already"),
        ("[keyed]", "must be one kind with its arguments, of: keyed,"),
        ("[{keyed: 3}]", "must be a mapping of arguments"),
    ],
)
def test_a_bad_workload_is_one_sentence_with_its_line(workloads, sentence):
    with pytest.raises(ConfigError) as refused:
        parsed(workloads)
    (line,) = str(refused.value).splitlines()
    assert line.startswith("x.yaml:5: ") and sentence in line


def test_a_retry_that_the_log_had_already_is_acknowledged_without_an_offset():
    # librdkafka gives None after DUPLICATE_SEQUENCE_NUMBER.
    assert offset_of(SimpleNamespace(offset=lambda: None)) == -1
    assert offset_of(SimpleNamespace(offset=lambda: 7)) == 7
