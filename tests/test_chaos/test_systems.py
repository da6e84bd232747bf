"""The system under test: capabilities, Kafka's files, and the choice of a system. Pure."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvorum.chaos.experiment_file.experiment import parse_experiment
from kvorum.chaos.experiment_file.steps import Action
from kvorum.chaos.faults import LIVE_FAULTS, CutLink, CutPower, KillNode, Latency, PauseNode
from kvorum.chaos.live.systems import opening
from kvorum.chaos.live.systems.capabilities import (
    KAFKA_CAPABILITIES,
    KVORUM_CAPABILITIES,
    needs_of,
)
from kvorum.chaos.live.systems.kafka_jars import (
    find_library,
    library_version,
    properties_text,
)
from kvorum.chaos.live.systems.kafka_plan import (
    hosts_file,
    plan_kafka_links,
    plan_nodes,
    port_count,
    properties_of,
    refused_settings,
)
from kvorum.chaos.live.systems.limits import SettingsOfKvorum, SystemLimits, lacking
from kvorum.chaos.live.systems.opening import SystemChoice, choose_system
from kvorum.chaos.live.systems.protocol import Capability
from kvorum.chaos.targets import parse_target
from kvorum.runtime.errors import ConfigError, KvorumError

EXPERIMENT = """\
title: x
configuration: {settings: {replica.lag.time.max.ms: 10000}}
method:
  - {type: action, name: k, provider: {type: kvorum, func: kill, arguments: {target: one}}}
  - {type: action, name: p, provider: {type: kvorum, func: pause, arguments: {target: one}}}
"""

SHORT = """\
title: x
configuration: {settings: {replica.lag.time.max.ms: 10000}}
method:
  - kill: {target: one}
  - pause: {target: one}
"""


def choice(*capabilities: Capability) -> SystemChoice:
    return SystemChoice(
        name="attached", version="1", capabilities=frozenset(capabilities), option=""
    )


def action(fault: KillNode | PauseNode | CutLink | Latency) -> Action:
    return Action(name="a", fault=fault)


def test_every_fault_of_an_experiment_is_within_the_capabilities_of_kvorum_and_kafka():
    node, clients = parse_target("all"), parse_target("clients")
    for name, kind in LIVE_FAULTS.items():
        fields = set(kind.__dataclass_fields__)
        ends = {key: node for key in ("target", "away_from", "source") if key in fields}
        if "destination" in fields:
            ends["destination"] = clients
        fault = kind.__new__(kind)
        for key in fields:
            object.__setattr__(fault, key, ends.get(key, 1))
        assert needs_of(fault) <= KVORUM_CAPABILITIES, name
        # Only Kvorum has a command that restarts every node.
        assert needs_of(fault) - {Capability.ROLL} <= KAFKA_CAPABILITIES, name


def test_a_fault_of_the_simulator_alone_is_refused_by_its_name():
    with pytest.raises(KvorumError, match=r"cut_power.*it is simulated only"):
        needs_of(CutPower(target=parse_target("all"), duration_ms=1))


def test_a_fault_outside_the_capabilities_names_itself_the_system_and_who_can():
    kill = KillNode(target=parse_target("one:brokers"), duration_ms=1)
    system = choice(Capability.KILL, Capability.RESTART)
    assert lacking(kill, system) == []
    (problem,) = lacking(PauseNode(target=parse_target("all")), system)
    assert problem == (
        "'pause all' needs SIGSTOP and SIGCONT of a node, which the system attached does not have; "
        "use kvorum or kafka or an attached cluster whose file has the commands pause and resume"
    )


def test_a_kill_needs_the_way_back_too():
    kill = KillNode(target=parse_target("one"), duration_ms=1)
    (problem,) = lacking(kill, choice(Capability.KILL))
    assert "the start of a dead node" in problem


def test_links_of_clients_and_links_between_nodes_are_different_capabilities():
    clients, brokers = parse_target("clients"), parse_target("brokers")
    cut = CutLink(source=clients, destination=brokers)
    slow = Latency(source=brokers, destination=brokers, latency_ms=5)
    of_clients, between_nodes = choice(Capability.CLIENT_LINKS), choice(Capability.LINKS)
    assert lacking(cut, of_clients) == lacking(slow, between_nodes) == []
    assert len(lacking(slow, of_clients)) == len(lacking(cut, between_nodes)) == 1


def test_an_experiment_is_refused_with_every_problem_at_once_and_its_line():
    with pytest.raises(ConfigError) as refused:
        parse_experiment("x.yaml", EXPERIMENT, limits=SystemLimits(choice=choice()))
    assert [line.split(" needs ")[0] for line in str(refused.value).splitlines()] == [
        "x.yaml:4: method.0.provider.func: 'kill one:all'",
        "x.yaml:4: method.0.provider.func: 'kill one:all'",
        "x.yaml:5: method.1.provider.func: 'pause one:all'",
    ]
    kvorum = SystemLimits(choice=choose_system("kvorum"))
    assert len(parse_experiment("x.yaml", SHORT, limits=kvorum).method) == 2


def test_a_fault_that_a_storm_may_draw_is_refused_at_its_line():
    storm = "title: x\nmethod:\n  - storm:\n      faults:\n        - pause: {target: one}\n"
    with pytest.raises(ConfigError, match=r"x\.yaml:5: method\.0.*'pause one:all' needs SIGSTOP"):
        parse_experiment("x.yaml", storm, limits=SystemLimits(choice=choice(Capability.KILL)))


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        (
            "brokr.session.timeout.ms: 3000",
            "settings.brokr.session.timeout.ms: unknown property 'brokr.session.timeout.ms' "
            "(did you mean 'broker.session.timeout.ms'?)",
        ),
        ("broker.session.timeout.ms: abc", "settings.broker.session.timeout.ms: "),
        ("broker.session.timeout.ms: 900", "is less than two times broker.heartbeat.interval.ms"),
        ("log.dirs: /tmp", "'log.dirs' is decided by the launcher and cannot be set"),
    ],
)
def test_a_setting_that_no_node_takes_is_refused_at_its_line(settings, refusal):
    text = SHORT.replace("replica.lag.time.max.ms", f"{settings}, replica.lag.time.max.ms")
    for limits in (SettingsOfKvorum(), SystemLimits(choice=choose_system("kvorum"))):
        with pytest.raises(ConfigError) as refused:
            parse_experiment("x.yaml", text, limits=limits)
        (line,) = str(refused.value).splitlines()
        assert line.startswith("x.yaml:2: configuration.settings.") and refusal in line


def test_settings_that_only_together_are_wrong_are_refused_together():
    both = "broker.session.timeout.ms: 1000, broker.heartbeat.interval.ms: 700"
    text = SHORT.replace("replica.lag.time.max.ms: 10000", both)
    with pytest.raises(ConfigError, match=r"x\.yaml:2: configuration\.settings: broker\.session"):
        parse_experiment("x.yaml", text, limits=SettingsOfKvorum())


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("kafak", {}, "unknown system 'kafak'; known: kvorum, kafka, FILE.toml"),
        ("kvorum", {"is_owned": True}, "goes with --system FILE.toml"),
        ("kvorum", {"kafka_libs": "/x"}, "--kafka-libs goes with --system kafka"),
        ("/nowhere/c.toml", {"is_owned": True}, "/nowhere/c.toml cannot be read"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(text, options, message):
    with pytest.raises(ConfigError, match=message):
        choose_system(text, **options)


def test_kafka_without_java_or_jars_is_refused_with_the_way_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="has no bin/java: Apache Kafka 4 needs Java 17"):
        choose_system("kafka")
    monkeypatch.setattr(opening, "find_java", lambda: "java")
    with pytest.raises(ConfigError, match="has no jar of Apache Kafka"):
        choose_system("kafka", kafka_libs=str(tmp_path))
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path / "kafka"))
    with pytest.raises(ConfigError, match=f"KAFKA_HOME={tmp_path}/kafka: .*/libs has no jar"):
        choose_system("kafka")


def test_the_version_of_kafka_is_in_the_name_of_its_jar(tmp_path):
    (tmp_path / "kafka_2.13-4.3.1.jar").touch()
    (tmp_path / "kafka-clients-4.3.1.jar").touch()
    assert library_version(find_library(str(tmp_path))) == "4.3.1"
    (tmp_path / "kafka_2.13-4.2.0.jar").touch()
    with pytest.raises(ConfigError, match=r"found 4\.2\.0, 4\.3\.1"):
        library_version(tmp_path)
    old = tmp_path / "old"
    old.mkdir()
    (old / "kafka_2.13-3.9.1.jar").touch()
    with pytest.raises(ConfigError, match=r"has Kafka 3\.9\.1; versions 4\.x can be tested"):
        library_version(old)


def test_each_direction_between_nodes_has_an_address_of_its_own():
    nodes = plan_nodes(3, 3, first_port=20_000)
    plan = plan_kafka_links(nodes, first_proxy_port=20_009)
    # Clients to brokers, controllers among themselves, brokers to controllers and to brokers.
    assert len(plan.links) == 3 + 6 + 9 + 6
    assert len({link.listen for link in plan.links}) == len(plan.links)
    assert {link.name for link in plan.links} >= {"broker-101.controller-2", "clients.broker-103"}
    link = plan.link("broker-101", "controller-2")
    assert link is not None
    assert (link.listen, link.upstream) == ("127.1.101.2:20001", "127.0.0.1:20001")
    assert plan.link("controller-1", "broker-101") is None
    ports = {int(link.listen.rpartition(":")[2]) for link in plan.links}
    assert max(ports) == 20_000 + port_count(3, 3) - 1


def test_a_jvm_finds_each_peer_at_the_proxy_of_its_own_direction():
    nodes = plan_nodes(2, 2, first_port=20_000)
    plan = plan_kafka_links(nodes, first_proxy_port=20_006)
    for source in nodes:
        lines = hosts_file(nodes, source, machine="box").splitlines()
        hosts = {name: address for address, name in (line.split() for line in lines)}
        assert hosts["localhost"] == hosts["box"] == hosts[source.name] == "127.0.0.1"
        for target in nodes:
            link = plan.link(source.name, target.name)
            if link is not None:
                assert link.listen == f"{hosts[target.name]}:{target.port}"
    assert len({line for line in lines if line.endswith(" localhost")}) == 1
    assert "localhost\n127" in hosts_file(nodes, nodes[0], machine="localhost")


def test_brokers_advertise_the_clients_proxy_and_a_name_to_their_peers():
    nodes = plan_nodes(1, 2, first_port=20_000)
    plan = plan_kafka_links(nodes, first_proxy_port=20_005)
    controller, broker, _ = (
        properties_of(node, nodes, plan, data_dir="/d", settings={"log.segment.bytes": "1000000"})
        for node in nodes
    )
    assert broker["listeners"] == "INTERNAL://127.0.0.1:20001,CLIENTS://127.0.0.1:20003"
    assert broker["advertised.listeners"] == (
        "INTERNAL://broker-101:20001,CLIENTS://127.0.0.1:20005"
    )
    assert broker["controller.quorum.voters"] == "1@controller-1:20000"
    assert controller["advertised.listeners"] == "CONTROLLER://controller-1:20000"
    assert "inter.broker.listener.name" not in controller
    assert broker["offsets.topic.replication.factor"] == "2"
    assert "log.segment.bytes=1000000\n" in properties_text(broker)


def test_settings_have_the_names_of_kafka_and_leave_its_addresses_alone():
    known = frozenset({"replica.lag.time.max.ms", "listeners", "node.id"})
    settings = [
        ("replica.lag.time.max.ms", "1"),
        ("replica.lag.time.max", "1"),
        ("listeners", "PLAINTEXT://:9092"),
        ("leader.check.interval", "1"),
    ]
    assert refused_settings(settings, known) == [
        "setting 'replica.lag.time.max' is no broker config of Apache Kafka; did you mean "
        "'replica.lag.time.max.ms'?",
        "setting 'listeners' is decided by the run itself; remove it",
        "setting 'leader.check.interval' is no broker config of Apache Kafka; remove it for this "
        "system",
    ]


def test_the_line_that_runs_the_same_again_names_the_system(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(opening, "find_java", lambda: "java")
    (tmp_path / "kafka_2.13-4.3.1.jar").touch()
    chosen = choose_system("kafka", kafka_libs=str(tmp_path))
    assert (chosen.name, chosen.version) == ("kafka", "4.3.1")
    assert chosen.option == f" --system kafka --kafka-libs {tmp_path}"
    assert choose_system("kvorum").option == ""
