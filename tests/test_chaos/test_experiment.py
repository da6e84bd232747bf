from __future__ import annotations

import json
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvorum import chaos
from kvorum.chaos.experiment_file.canonical import to_toolkit
from kvorum.chaos.experiment_file.experiment import load_experiment, parse_experiment
from kvorum.chaos.experiment_file.possible_targets import NodeNames
from kvorum.chaos.experiment_file.stated_promises import Promises
from kvorum.chaos.experiment_file.steps import PROBES, Action, Probe
from kvorum.chaos.faults import CutLink, KillNode
from kvorum.chaos.live.nemesis import Nemesis
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
  - type: probe
    name: look
    provider: {type: kvorum, func: live_brokers}
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
    assert step.background
    look = experiment.method[1]
    assert (look.pause_before_ms, look.pause_after_ms) == (500, 1000)
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
    assert len(lines) == 7
    expected = {
        "bad.yaml:1: titel: unknown key; did you mean 'title'?",
        "bad.yaml:4: configuration.topic.replication_factor: 3 needs as many brokers; the "
        "cluster has 2",
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
         "module: must be kvorum.chaos.toolkit, got None"),
        ("title: a\nmethod: [{type: action, name: a, provider: {type: http, func: kill}}]",
         "type: must be python, got 'http'"),
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


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parse_experiment("bad.yaml", textwrap.dedent(text))
    return str(refused.value).splitlines()


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "x.yaml").write_bytes(b"title: t\n\xff")
    with pytest.raises(ConfigError, match=r"x\.yaml is not UTF-8, see byte 9"):
        load_experiment(str(tmp_path / "x.yaml"))


def test_a_short_step_is_the_same_as_a_long_one():
    short = """
        title: t
        steady-state-hypothesis:
          probes:
            - active_controllers: 1
        method:
          - kill: {target: "leader:orders/0", duration_ms: 300}
            background: true
          - heal:
            pauses: {before: 1}
          - name: look
            live_brokers: [2, 3]
          - storm:
              count: 2
              faults:
                - pause: {target: one, duration_ms: 5}
    """
    long = """
        title: t
        controls: [{name: kvorum, provider: {type: python, module: kvorum.chaos.toolkit.control}}]
        steady-state-hypothesis:
          probes:
            - {type: probe, name: active_controllers, tolerance: 1, provider: {type: python,
               module: kvorum.chaos.toolkit, func: active_controllers}}
        method:
          - {type: action, name: "kill leader:orders/0", background: true,
             provider: {type: python, module: kvorum.chaos.toolkit, func: kill,
                        arguments: {target: "leader:orders/0", duration_ms: 300}}}
          - {type: action, name: heal, pauses: {before: 1}, provider: {type: python,
             module: kvorum.chaos.toolkit, func: heal}}
          - {type: probe, name: look, tolerance: {type: range, range: [2, 3]}, provider: {
             type: python, module: kvorum.chaos.toolkit, func: live_brokers}}
          - {type: action, name: storm, provider: {type: python, module: kvorum.chaos.toolkit,
             func: storm, arguments: {count: 2, faults: [
               {func: pause, arguments: {target: one, duration_ms: 5}}]}}}
    """
    read = parse_experiment("x.yaml", textwrap.dedent(short))
    assert read == parse_experiment("x.yaml", textwrap.dedent(long))
    assert [step.name for step in read.method] == [
        "kill leader:orders/0", "heal", "look", "storm-1", "storm-2",
    ]  # fmt: skip


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_the_canonical_form_is_the_same_experiment(path):
    text = path.read_text()
    long = to_toolkit(str(path), text, PROBES)
    assert parse_experiment("x.yaml", long) == parse_experiment("x.yaml", text)
    assert to_toolkit("x.yaml", long, PROBES) == long


def test_a_problem_of_a_short_step_names_the_place_where_it_is_written():
    found = problems_of("""\
        title: t
        method:
          - kill:
              targt: one
          - kil: {target: one}
          - kill: {target: one}
            pause: {target: one}
          - name: nothing
          - kill: {target: one}
            backgroud: true
        """)
    assert found == [
        "bad.yaml:4: method.0.kill.targt: unknown argument 'targt'; did you mean 'target'?",
        "bad.yaml:5: method.1.kil: unknown action 'kil'; did you mean 'kill'?",
        "bad.yaml:6: method.2: is one step, but names kill and pause; write them as steps of "
        "their own",
        "bad.yaml:8: method.3: must be an action or a probe, got only name",
        "bad.yaml:9: method.4: has 'backgroud'; did you mean 'background'?",
    ]


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("kil: {target: one}", "faults.0.kil: unknown action 'kil'; did you mean 'kill'?"),
        ("kill: {target: ones}", "storm.faults.0.kill.target: unknown target 'ones'; did you mean"),
        ("kill: {}", "faults.0.kill: kill needs the argument 'target'"),
        ("{func: cut_power, arguments: {target: one}}", "can only be simulated"),
        ("", "faults: needs at least one fault to draw from"),
    ],
)
def test_one_bad_fault_in_a_storm_is_one_problem(fault, problem):
    faults = f"[{{{fault}}}]" if fault and not fault.startswith("{") else f"[{fault}]"
    found = problems_of(f"title: t\nmethod:\n  - storm: {{count: 3, faults: {faults}}}\n")
    assert len(found) == 1
    assert problem in found[0]


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ("kill: {target: broker-105}", "target: no node is named 'broker-105' in this cluster"),
        ("kill: {target: 'leader:orders/9'}", "orders has the partitions 0 to 5, not 9"),
        ("kill: {target: 'leader:order/0'}", "not 'order'; did you mean 'orders'?"),
        ("kill: {target: 'leader:prices/0'}", "not 'prices'; the load's topic is 'orders'"),
        ("kill: {target: clients}", "clients are no node that kill can hit"),
        ("isolate: {target: all, away_from: all}", "away_from: all without all is nobody"),
        ("isolate: {target: brokers, away_from: 'one:brokers'}", "one:brokers without brokers"),
        ("cut: {source: broker-101, destination: broker-101}", "broker-101 has no link to itself"),
        ("cut: {source: clients, destination: controllers}", "clients connect to brokers only"),
        ("cut: {source: active-controller, destination: clients}", "active-controller is none"),
    ],
)
def test_a_target_that_cannot_exist_is_refused(step, problem):
    found = problems_of(f"title: t\nmethod:\n  - {step}\n")
    assert len(found) == 1
    assert found[0].startswith("bad.yaml:3: method.0.")
    assert problem in found[0]


@pytest.mark.parametrize(
    ("size", "target", "problem"),
    [
        ("controllers: 1", "majority:controllers", "a majority of 1 is all of controllers"),
        ("controllers: 2", "minority:controllers", "a minority of 2 is nobody"),
        ("controllers: 1", "standby-controller", "needs a second controller"),
        ("topic: {replication_factor: 1}", "follower:orders/0", "a replication_factor of 2"),
        ("topic: {name: prices}", "leader:orders/0", "the load's topic is 'prices'"),
    ],
)
def test_a_target_that_a_cluster_of_this_size_cannot_have_is_refused(size, target, problem):
    found = problems_of(
        f"title: t\nconfiguration:\n  {size}\nmethod:\n  - kill: {{target: '{target}'}}\n"
    )
    assert len(found) == 1
    assert problem in found[0]


def test_targets_of_a_cluster_that_runs_already_are_judged_by_its_nodes():
    text = "title: t\nmethod:\n  - kill: {target: broker-7}\n"
    nodes = NodeNames(controllers=("controller-1",), brokers=("broker-7",))
    assert parse_experiment("x.yaml", text, nodes=nodes).method
    assert "broker-101, broker-102" in problems_of(text)[0]


def test_promises_are_read_and_what_is_not_promised_is_none():
    text = "title: t\nconfiguration:\n  promises: {isr_shrinks_at_least: 1, latency_p99_ms: 50}\n"
    promises = parse_experiment("x.yaml", text + "method:\n  - heal:\n").configuration.promises
    assert promises == Promises(isr_shrinks_at_least=1, latency_p99_ms=50)
    assert promises.longest_silence_ms is None


@pytest.mark.parametrize(
    ("promises", "problem"),
    [
        ("{latency_p99: 5}", "unknown key; did you mean 'latency_p99_ms'?"),
        ("{unavailable_ms: -1}", "must lie between 0 and"),
        ("{isr_shrinks_at_least: 3, isr_shrinks_at_most: 2}", "3 is more than isr_shrinks_at_most"),
        ("{longest_silence_ms: 3, longest_partition_silence_ms: 2}", "less than longest_silence"),
    ],
)
def test_bad_promises_are_refused(promises, problem):
    found = problems_of(f"title: t\nconfiguration:\n  promises: {promises}\nmethod:\n  - heal:\n")
    assert len(found) == 1
    assert problem in found[0]


def test_two_numbers_of_a_tolerance_are_bounds_as_in_chaos_toolkit():
    def tolerance_of(value: str):
        text = f"title: t\nmethod:\n  - live_brokers: {value}\n"
        return parse_experiment("x.yaml", text).method[0].tolerance

    assert tolerance_of("[1, 3]").accepts(2)
    assert not tolerance_of("[1, 3, 5]").accepts(2)


def test_a_control_of_another_module_is_refused():
    text = "title: t\ncontrols: [{name: x, provider: {type: python, module: other}}]\n"
    found = problems_of(text + "method:\n  - heal:\n")
    assert found == [
        "bad.yaml:2: controls.0: the only control is the module kvorum.chaos.toolkit.control, got "
        "'other'; run other controls with Chaos Toolkit itself"
    ]


STEADY = "title: t\nsteady-state-hypothesis: {probes: [PROBE]}\nmethod:\n  - heal:\n"
PROVIDER = "title: t\nmethod:\n  - {type: action, name: a, provider: PROVIDER}\n"


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (
            STEADY.replace("PROBE", "{activ_controllers: 1}"),
            "probes.0.activ_controllers: unknown probe 'activ_controllers'; did you mean "
            "'active_controllers'?",
        ),
        (STEADY.replace("PROBE", "{foo: 1}"), "unknown probe 'foo'; known: active_controllers, "),
        (STEADY.replace("PROBE", "{heal: }"), "a steady state holds probes only"),
        (STEADY.replace("PROBE", "{active_controllers: many}"), "must be a number, the two bounds"),
        (PROVIDER.replace("PROVIDER", "{type: process, path: /bin/true}"), "got 'process'; run"),
        (
            PROVIDER.replace("PROVIDER", "{type: python, module: chaosk8s, func: kill_pod}"),
            "module: must be kvorum.chaos.toolkit, got 'chaosk8s'",
        ),
        (PROVIDER.replace("PROVIDER", "{type: kvorum, func: live_brokers}"), "is a probe, not an"),
        ("title: t\nmethod:\n  - live_broker:\n", "did you mean 'live_brokers'?"),
    ],
)
def test_one_cause_is_one_sentence_that_names_what_was_meant(text, refusal):
    (found,) = problems_of(text)
    assert refusal in found


def test_a_probe_of_the_method_may_have_an_empty_mapping():
    text = "title: t\nmethod:\n  - acknowledged_per_second: {}\n"
    (probe,) = parse_experiment("x.yaml", text).method
    assert isinstance(probe, Probe) and probe.tolerance is None


class AskedProbes:
    """Probes that note what they are asked."""

    def __init__(self) -> None:
        self.asked: list[Probe] = []

    def measure(self, probe: Probe) -> SimpleNamespace:
        self.asked.append(probe)
        return SimpleNamespace(name=probe.name, value=300.0)


def test_a_probe_of_the_method_only_measures():
    text = "title: t\nmethod:\n  - acknowledged_per_second: 5\n"
    probes = AskedProbes()
    injector = SimpleNamespace(active=list)
    nemesis = Nemesis(injector=injector, probes=probes, progress=print, check=lambda: None)
    nemesis.run(parse_experiment("x.yaml", text).method)
    assert [probe.tolerance for probe in probes.asked] == [None]


@pytest.mark.parametrize("seed", [-4, 2**63])
def test_a_seed_out_of_range_is_refused_as_in_a_file(seed):
    with pytest.raises(ConfigError, match=f"the seed {seed} must lie between 0 and"):
        parse_experiment("x.yaml", SMALL, seed=seed)
