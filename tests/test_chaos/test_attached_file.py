"""The file of an attached cluster, its journal and its dead-man timer. Pure but for commands."""

from __future__ import annotations

import pytest

from kvorum.chaos.experiment_file.experiment import parse_experiment
from kvorum.chaos.live.systems.attached import attached_plan
from kvorum.chaos.live.systems.attached_file import parse_attached_file
from kvorum.chaos.live.systems.dead_man import (
    DeadManWatch,
    Journal,
    NodeCommandFailed,
    WatchStep,
    heal,
    read_journal,
    run_command,
)
from kvorum.chaos.live.systems.limits import SystemLimits
from kvorum.chaos.live.systems.opening import (
    choose_system,
    configuration_for,
)
from kvorum.chaos.live.systems.protocol import Capability
from kvorum.chaos.targets import TargetView
from kvorum.runtime.errors import ConfigError

GOOD = """\
version = "4.3.1"
bootstrap = "k1:9092,k2:9092"
topic_prefix = "chaos-"
max_nodes_down = 1

[commands]
kill = "ssh {host} sudo systemctl kill -s KILL kafka"
start = "ssh {host} sudo systemctl start kafka"

[[node]]
name = "controller-1"
id = 1
role = "controller"
address = "c1:9093"

[[node]]
name = "broker-2"
id = 2
role = "combined"
address = "k1:9092"
host = "rack one"
commands = { kill = "docker kill {name}-{id}" }

[toxiproxy]
address = "k1:8474"

[[link]]
source = "clients"
destination = "broker-2"
proxy = "front"
"""


def parse(text: str):
    return parse_attached_file("c.toml", text)


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parse(text)
    return str(refused.value).splitlines()


def test_a_command_is_split_before_its_fields_are_filled_in():
    controller, broker = parse(GOOD).nodes
    assert controller.commands["start"] == ("ssh", "c1", "sudo", "systemctl", "start", "kafka")
    assert broker.commands["start"][1] == "rack one"
    assert broker.commands["kill"] == ("docker", "kill", "broker-2-2")


def test_a_capability_needs_its_commands_on_every_node():
    file = parse(GOOD)
    able = {Capability.KILL, Capability.RESTART, Capability.CLIENT_LINKS}
    # Elections and reassignments need no command.
    able |= {Capability.ELECT_LEADERS, Capability.REASSIGN}
    assert file.capabilities == able
    one_pauses = GOOD.replace(
        'host = "rack one"\ncommands = { ',
        'commands = { pause = "a", resume = "b", stop = "c", wipe = "d", ',
    )
    assert parse(one_pauses).capabilities == able
    all_do = GOOD.replace("[commands]", '[commands]\npause = "a"\nresume = "b"\nwipe = "d"')
    assert parse(all_do).capabilities == able | {Capability.PAUSE, Capability.WIPE}


def test_a_node_with_both_roles_is_one_node():
    file = parse(GOOD)
    assert (file.controllers, file.brokers) == (("controller-1", "broker-2"), ("broker-2",))
    view = TargetView(controllers=file.controllers, brokers=file.brokers)
    assert view.every_node() == ("controller-1", "broker-2")


def test_links_have_the_proxies_of_the_server():
    file = parse(GOOD)
    plan = attached_plan(file, {"front": ("k1:19092", "k1:9092"), "other": ("x:1", "y:2")})
    (link,) = plan.links
    assert (link.name, link.listen, link.upstream) == ("front", "k1:19092", "k1:9092")
    with pytest.raises(ConfigError, match=r"link\[0\].proxy: .* no proxy 'front'; it has other"):
        attached_plan(file, {"other": ("x:1", "y:2")})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("max_nodes_down = 1\n", "", "c.toml:1: needs the key 'max_nodes_down'"),
        ("max_nodes_down = 1", "max_nodes_down = 0", "c.toml:4: max_nodes_down: must be a whole"),
        ("topic_prefix", "topic_prefx", "did you mean 'topic_prefix'?"),
        ('"chaos-"', '""', "c.toml:3: topic_prefix: must be a text"),
        ('"chaos-"', '"a"', "c.toml:3: topic_prefix: must be 3 to 100 letters"),
        ('"k1:9092,k2:9092"', '"k1:9092,k2"', "c.toml:2: bootstrap: must be host:port"),
        ('start = "ssh {host}', 'start = "ssh {hots}', "c.toml:8: commands.start: "),
        ('start = "ssh', "start = \"ssh 'x", "c.toml:8: commands.start: "),
        ("start = ", "begin = ", "c.toml:8: commands.begin: unknown key"),
        ("id = 2", 'id = "2"', "c.toml:18: node[1].id: must be a whole number"),
        ("id = 2", "id = 1", "c.toml:18: node[1].id: 1 is given to two nodes"),
        ('role = "combined"', 'role = "brokr"', "c.toml:19: node[1].role: must be one of"),
        ('"broker-2"\nid', '"kafka2"\nid', "c.toml:17: node[1].name: must be broker-N"),
        ("{name}-{id}", "{name}-{ip}", "c.toml:22: node[1].commands.kill: "),
        ('destination = "broker-2"', 'destination = "broker-9"', "link[0].destination: no node"),
        ('[toxiproxy]\naddress = "k1:8474"', "", "links need [toxiproxy] with its address"),
        ("[commands]", "[commands", "c.toml: not well formed: "),
    ],
)
def test_a_bad_file_is_refused_with_line_and_key(old, new, message):
    assert old in GOOD
    found = problems(GOOD.replace(old, new))
    assert any(message in problem for problem in found), found


def test_all_problems_of_a_file_are_told_at_once():
    text = GOOD.replace("max_nodes_down = 1", "max_nodes_down = 0").replace("{host}", "{h}")
    assert len(problems(text)) == 3


def test_a_misspelt_key_is_one_problem():
    (problem,) = problems(GOOD.replace("topic_prefix", "topic_prefx"))
    assert "topic_prefx: unknown key; did you mean 'topic_prefix'?" in problem


def test_a_cluster_of_someone_is_not_touched_without_the_flag(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text(GOOD)
    with pytest.raises(ConfigError, match="add --i-own-this-cluster if it is yours to break"):
        choose_system(str(path))
    chosen = choose_system(str(path), is_owned=True)
    assert (chosen.name, chosen.version, chosen.has_own_toxiproxy) == ("attached", "4.3.1", False)
    assert chosen.option == f" --system {path} --i-own-this-cluster"


def test_an_experiment_that_does_not_fit_the_running_cluster_is_refused(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text(GOOD)
    chosen = choose_system(str(path), is_owned=True)
    kill = "{type: kvorum, func: kill, arguments: {target: one}}"
    text = (
        "title: x\nconfiguration: {brokers: 3, settings: {log.segment.bytes: 1}}\n"
        f"method: [{{type: action, name: k, provider: {kill}}}]\n"
    )
    configuration = configuration_for(chosen, parse_experiment("x.yaml", text).configuration)
    assert (configuration.controllers, configuration.brokers) == (2, 1)
    with pytest.raises(ConfigError) as refused:
        parse_experiment("x.yaml", text, limits=SystemLimits(choice=chosen))
    assert str(refused.value).splitlines() == [
        "x.yaml:2: configuration.settings.log.segment.bytes: cannot be given to a cluster that "
        "runs already; set it there and remove it from the experiment",
        "x.yaml:2: configuration.topic.replication_factor: 3 needs as many brokers; "
        f"{path} names 1",
    ]


def test_the_timer_heals_when_the_heartbeat_stands_still_and_ends_when_it_is_gone():
    watch = DeadManWatch(heal_after_ms=1_000)
    assert watch.turn("0", 5_000) is WatchStep.WAIT
    assert watch.turn("0", 5_999) is WatchStep.WAIT
    assert watch.turn("1", 6_500) is WatchStep.WAIT
    assert watch.turn("1", 7_499) is WatchStep.WAIT
    assert watch.turn("1", 7_500) is WatchStep.HEAL
    assert watch.turn(None, 7_500) is WatchStep.END


def test_the_journal_survives_and_a_command_that_fails_is_told(tmp_path):
    made = tmp_path / "made"
    journal = Journal(path=tmp_path / "down.json", command_timeout_ms=5_000)
    journal.add("broker-1", ("touch", str(made)))
    journal.add("broker-2", ("sh", "-c", "echo no such unit >&2; exit 4"))
    journal.add("broker-3", ("true",))
    journal.remove("broker-3")
    again = read_journal(tmp_path / "down.json")
    assert again == journal
    (problem,) = heal(again)
    assert made.exists()
    assert problem.startswith("broker-2 is still down: ")
    assert problem.endswith("ended with 4: no such unit")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("/nowhere/ssh", "k1"), "'/nowhere/ssh k1' cannot be started"),
        (("sleep", "60"), "'sleep 60' did not end within command_timeout_ms=100"),
        (("false",), "'false' ended with 1: no output"),
    ],
)
def test_a_command_that_does_not_end_with_0_is_an_error(command, message):
    with pytest.raises(NodeCommandFailed, match=message):
        run_command(command, timeout_ms=100)
