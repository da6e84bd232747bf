from __future__ import annotations

import random
from dataclasses import MISSING, fields, is_dataclass

import pytest

from kvorum.chaos import faults
from kvorum.chaos.experiment_file.faults import build_fault, why_not_live
from kvorum.chaos.faults import (
    FAULTS,
    LIVE_FAULTS,
    SIMULATED_FAULTS,
    CutLink,
    FailDisk,
    FillDisk,
    KillNode,
    NetworkPartition,
    StepClock,
)
from kvorum.chaos.sim.kernel.schedule import from_json
from kvorum.chaos.targets import (
    PartitionView,
    Target,
    TargetView,
    UnresolvableTarget,
    parse_target,
    resolve,
)
from kvorum.runtime.errors import ConfigError

VIEW = TargetView(
    controllers=("controller-1", "controller-2", "controller-3"),
    brokers=("broker-101", "broker-102", "broker-103"),
    killed=frozenset({"broker-103"}),
    active_controller="controller-2",
    partitions={
        ("orders", 0): PartitionView(
            leader="broker-102",
            replicas=("broker-102", "broker-103", "broker-101"),
            isr=("broker-101", "broker-102"),
        ),
        ("orders", 1): PartitionView(leader=None, replicas=("broker-103",), isr=("broker-103",)),
    },
)


def resolved(text: str, seed: int = 1) -> tuple[str, ...]:
    return resolve(parse_target(text), VIEW, random.Random(seed))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("broker-101", ("broker-101",)),
        ("active-controller", ("controller-2",)),
        ("standby-controllers", ("controller-1", "controller-3")),
        ("controllers", VIEW.controllers),
        ("leader:orders/0", ("broker-102",)),
        ("follower:orders/0", ("broker-101",)),
        ("killed", ("broker-103",)),
        ("clients", ("clients",)),
    ],
)
def test_target_resolves_to_names(text, names):
    assert resolved(text) == names


def test_shares_have_their_sizes_and_follow_the_seed():
    assert len(resolved("majority:controllers")) == 2
    assert len(resolved("minority:controllers")) == 1
    assert len(resolved("one")) == 1
    assert {resolved("one:controllers", seed) for seed in range(40)} == {
        (name,) for name in VIEW.controllers
    }
    assert resolved("majority:brokers", 7) == resolved("majority:brokers", 7)


def test_one_never_picks_a_killed_node():
    assert all(resolved("one:brokers", seed) != ("broker-103",) for seed in range(40))


@pytest.mark.parametrize("text", ["paused", "leader:orders/1", "leader:nope/0", "broker-999"])
def test_target_that_nobody_fits_is_refused(text):
    with pytest.raises(UnresolvableTarget):
        resolved(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("activ-controller", "did you mean active-controller"),
        ("leader", "leader:TOPIC/PARTITION"),
        ("leader:orders", "leader:TOPIC/PARTITION"),
        ("one:voters", "scope"),
        ("brokers:3", "nothing may follow"),
    ],
)
def test_bad_target_is_refused_with_a_hint(text, words):
    with pytest.raises(ValueError, match=words):
        parse_target(text)


def test_target_text_reads_back():
    for text in ("one:brokers", "leader:a.b/3", "controller-1", "active-controller"):
        assert parse_target(text).text() == text


def test_fault_is_built_from_arguments():
    fault = build_fault("kill", {"target": "one:brokers", "duration_ms": 500})
    assert fault == KillNode(target=parse_target("one:brokers"), duration_ms=500)
    assert fault.func == "kill"


def test_every_class_of_fault_is_found_by_its_name():
    classes = {kind for kind in vars(faults).values() if isinstance(kind, type)}
    named = {kind.func: kind for kind in classes if is_dataclass(kind) and kind is not Target}
    assert named == FAULTS
    assert not set(LIVE_FAULTS) & set(SIMULATED_FAULTS)


@pytest.mark.parametrize("name", SIMULATED_FAULTS)
def test_fault_of_the_simulator_is_refused_to_experiments_by_name(name):
    assert name not in LIVE_FAULTS
    assert f"{name!r} can only be simulated" in why_not_live(name)


def test_every_problem_of_a_fault_is_reported_at_once():
    problems = build_fault("latency", {"sourc": "brokers", "latency_ms": -1, "both_ways": 3})
    assert isinstance(problems, list)
    text = " | ".join(problem.message for problem in problems)
    assert "did you mean 'source'?" in text
    assert "latency_ms must lie between" in text
    assert "both_ways must be true or false" in text
    assert "needs the argument 'destination'" in text


@pytest.mark.parametrize("toxicity", [0, 101, -1, 50.0, True])
def test_a_toxicity_is_a_whole_per_cent_of_the_connections(toxicity):
    ends = {"source": "clients", "destination": "brokers"}
    problems = build_fault("cut", {**ends, "toxicity": toxicity})
    assert isinstance(problems, list)
    assert [problem.key for problem in problems] == ["toxicity"]
    half = build_fault("cut", {**ends, "toxicity": 50})
    assert half.text() == "cut clients -> brokers toxicity=50"
    assert build_fault("cut", {**ends, "toxicity": 100}) == build_fault("cut", ends)


def test_the_simulator_refuses_a_share_of_the_connections():
    whole = {"at_ms": 1, "kind": "cut", "source": "all", "destination": "all", "duration_ms": 5}
    assert from_json(whole).fault.toxicity == 100
    with pytest.raises(ConfigError, match="toxicity must be 100, got 50"):
        from_json({**whole, "toxicity": 50})


def test_every_fault_describes_itself():
    ends = {"source": "brokers", "destination": "controllers"}
    some = {
        "target": "brokers", "away_from": "controllers", "latency_ms": 1, "slice_bytes": 1,
        "kilobytes_per_second": 1, "limit_bytes": 1, "delay_ms": 1, **ends,
    }  # fmt: skip
    for name, kind in LIVE_FAULTS.items():
        wanted = {key: some[key] for key in some if key in kind.__dataclass_fields__}
        needed = [f.name for f in fields(kind) if f.default is MISSING and f.name not in wanted]
        wanted |= dict.fromkeys(needed, 1)
        fault = build_fault(name, wanted)
        assert not isinstance(fault, list), fault
        assert fault.text().startswith(name)
    full = FillDisk(target=parse_target("one:brokers"), room_bytes=9, duration_ms=5)
    assert full.text() == "fill_disk one:brokers room_bytes=9"
    failing = FailDisk(target=parse_target("controller-1"), duration_ms=5)
    assert failing.text() == "fail_disk controller-1 operation=sync error=EIO"
    stepped = StepClock(target=parse_target("all"), step_ms=-5)
    assert stepped.text() == "step_clock all step_ms=-5"
    one_way = CutLink(source=parse_target("brokers"), destination=parse_target("controllers"))
    assert one_way.text() == "cut brokers -> controllers"
    apart = NetworkPartition(target=parse_target("brokers"), away_from=parse_target("controllers"))
    assert apart.text() == "isolate brokers from controllers"
