from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from kvorum import chaos
from kvorum.chaos.experiment.scenario import Action, load_experiment, parse_experiment
from kvorum.chaos.faults import CutLink, KillNode
from kvorum.runtime.errors import ConfigError

EXPERIMENTS = sorted((Path(chaos.__file__).parent / "experiments").glob("*.yaml"))

SMALL = """\
title: small
configuration:
  brokers: 3
  settings: {broker.session.timeout.ms: 3000, unclean.leader.election.enable: false}
steady-state-hypothesis:
  title: fine
  probes:
    - {type: probe, name: led, tolerance: {type: range, range: [0, 1]},
       provider: {type: kvorum, func: offline_partitions}}
method:
  - type: action
    name: cut
    background: true
    provider:
      type: kvorum
      func: cut
      arguments: {source: active-controller, destination: standby-controller, duration_ms: 100}
    pauses: {before: 0.5, after: 1}
"""


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_shipped_experiment_is_valid(path):
    experiment = load_experiment(str(path))
    assert experiment.method
    assert experiment.steady_state


def test_first_light_holds_the_five_faults():
    path = next(path for path in EXPERIMENTS if path.stem == "first-light")
    kinds = [type(step.fault).__name__ for step in load_experiment(str(path)).method]
    assert kinds == ["CutLink", "NetworkPartition", "Latency", "KillNode", "KillNode"]


def test_experiment_is_read_whole():
    experiment = parse_experiment("x.yaml", SMALL)
    step = experiment.method[0]
    assert isinstance(step, Action)
    assert isinstance(step.fault, CutLink)
    assert (step.pause_before_ms, step.pause_after_ms, step.background) == (500, 1000, True)
    assert experiment.steady_state[0].tolerance.accepts(1)
    assert not experiment.steady_state[0].tolerance.accepts(2)
    assert experiment.configuration.settings == (
        ("broker.session.timeout.ms", "3000"),
        ("unclean.leader.election.enable", "false"),
    )
    assert experiment.configuration.topic.min_insync_replicas == 2


def test_json_is_read_like_yaml():
    import yaml

    text = json.dumps(yaml.safe_load(SMALL), indent=2)
    assert parse_experiment("x.json", text) == parse_experiment("x.yaml", SMALL)


def test_seed_given_takes_the_place_of_the_files_own():
    assert parse_experiment("x.yaml", SMALL).configuration.seed == 1
    assert parse_experiment("x.yaml", SMALL, seed=9).configuration.seed == 9


def test_fault_of_the_simulator_in_an_experiment_is_refused_by_name():
    text = """
        version: 1.0.0
        title: t
        method:
          - name: dark
            type: action
            provider: {type: kvorum, func: cut_power, arguments: {target: brokers}}
    """
    with pytest.raises(ConfigError, match="func: 'cut_power' can only be simulated"):
        parse_experiment("bad.yaml", textwrap.dedent(text))


def test_all_problems_come_at_once_with_their_lines():
    text = """\
titel: wrong key
configuration:
  brokers: 2
  topic: {replication_factor: 3}
  workload: {records_per_second: fast}
steady-state-hypothesis:
  probes:
    - {type: probe, name: p, provider: {type: kvorum, func: offline_partitons}}
method:
  - type: action
    name: a
    provider:
      type: kvorum
      func: kil
  - type: action
    name: b
    provider:
      type: kvorum
      func: kill
      arguments: {target: activ-controller}
    pauses: {after: -1}
"""
    with pytest.raises(ConfigError) as refused:
        parse_experiment("bad.yaml", text)
    lines = str(refused.value).splitlines()
    expected = {
        "bad.yaml:1: titel: unknown key; did you mean 'title'?",
        "bad.yaml:1: needs the key 'title'",
        "bad.yaml:4: configuration.topic.replication_factor: 3 needs as many brokers",
        "bad.yaml:5: configuration.workload.records_per_second: must be a whole number, got 'fast'",
        "bad.yaml:14: method.0.provider.func: unknown action 'kil'; did you mean 'kill'?",
        "bad.yaml:21: method.1.pauses.after: must lie between 0 and 3600, got -1",
    }
    assert expected <= set(lines)
    assert any("offline_partitions" in line and line.startswith("bad.yaml:8") for line in lines)
    assert any("bad.yaml:20: method.1.provider.arguments.target" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "an experiment is a mapping"),
        ("title: [", "bad.yaml:1"),
        ("title: a\ntitle: b\nmethod: []", "given twice"),
        ("title: a\nmethod: []", "needs at least one action"),
        ("title: a\nmethod: [{type: action, name: a, provider: {type: python, func: kill}}]",
         "must be kvorum"),
        (SMALL.replace("tolerance: {type: range, range: [0, 1]},", ""), "needs a tolerance"),
        (SMALL + "rollbacks:\n  - {type: probe, name: x, provider: {type: kvorum, "
         "func: live_brokers}}\n", "rollbacks hold actions only"),
    ],
)  # fmt: skip
def test_bad_file_is_refused(text, words):
    with pytest.raises(ConfigError, match=words):
        parse_experiment("bad.yaml", text)


def test_storm_is_decided_by_the_seed():
    path = next(path for path in EXPERIMENTS if path.stem == "kill-storm")
    first, again, other = (load_experiment(str(path), seed=seed).method for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len(first) == 20
    assert any(isinstance(step.fault, KillNode) for step in first)
    assert all(1500 <= step.pause_before_ms <= 4000 for step in first)
