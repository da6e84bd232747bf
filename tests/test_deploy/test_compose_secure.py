"""The Compose file of a secure cluster, with what the commands of docs/deploying.md make."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from kvorum.client.security import read_properties
from kvorum.launch.config.node_file import node_properties
from kvorum.launch.config.properties import broker_config, controller_config
from tests.shell import Shell, shell_block
from tests.test_deploy.compose import COMPOSE, node_names, services
from tests.test_deploy.tools import DEPLOY, run, tool

SECURE = DEPLOY / "compose-secure.yaml"
NODES = node_names()


class Loader(yaml.SafeLoader):
    """Compose's tag !override says that a value is not merged with the one of the other file."""


Loader.add_multi_constructor(
    "!override",
    lambda loader, _, node: (
        loader.construct_mapping(node, deep=True)
        if isinstance(node, yaml.MappingNode)
        else loader.construct_sequence(node, deep=True)
    ),
)


def secure():
    return yaml.load(SECURE.read_text(encoding="utf-8"), Loader)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The folder of the documented commands; docker only writes down its arguments."""
    shell = Shell(tmp_path_factory.mktemp("compose"))
    shell.install("docker", '#!/bin/sh\necho "$KVORUM_USER $*" >>docker.log\n')
    shell.run(shell_block("docs/deploying.md", "compose"))
    return shell.folder / "cluster"


def mounts(service, cluster):
    """The files of the machine by their places in the container."""
    found = {}
    for volume in service["volumes"]:
        source, target = (
            re.sub(r"\$\{KVORUM_CLUSTER[^}]*\}", str(cluster), volume[end])
            for end in ("source", "target")
        )
        assert (volume["type"], volume["bind"]) == ("bind", {"create_host_path": False})
        assert volume.get("read_only", False) == ("/data/" not in target)
        found[target] = Path(source)
    return found


@pytest.mark.parametrize("name", NODES)
def test_a_node_starts_from_the_files_that_its_container_sees(name, cluster, tmp_path):
    service = secure()["services"][name]
    seen = mounts(service, cluster)
    assert set(seen) == {
        f"/etc/kvorum/{path}"
        for path in (f"{name}.toml", f"secrets/{name}.pem", "secrets/ca.pem", f"data/{name}")
    }
    for target, source in seen.items():
        place = tmp_path / target.removeprefix("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(source, target_is_directory=source.is_dir())
        assert source.stat().st_mode & 0o077 == 0, "nobody else may read it"
    role, option, file = service["command"]
    assert (role, option) == (name.partition("-")[0], "--config")
    properties = node_properties(str(tmp_path / file.removeprefix("/")), [], service["environment"])
    config, _ = (controller_config if role == "controller" else broker_config)(properties)
    assert (config.advertised[0], config.listen[0]) == (name, "0.0.0.0")
    assert config.directory == f"{tmp_path}/etc/kvorum/data/{name}"
    for key in ("ssl.keystore.location", "ssl.truststore.location", "log.dirs"):
        assert Path(properties[key]).exists()
    assert config.access is not None
    assert config.metrics == ("0.0.0.0", 9404), "the health check asks there"


def test_the_administrators_service_sees_the_files_that_its_properties_name(cluster):
    document = secure()
    service = document["services"]["admin"]
    seen = mounts(service, cluster)
    content = document["configs"]["profiles"]["content"].replace("${KVORUM_CLUSTER}", str(cluster))
    profiles = yaml.safe_load(content)
    profile = profiles["profiles"][profiles["current"]]
    properties = read_properties(str(seen[profile["command_config"]]))
    for key in ("ssl.keystore.location", "ssl.truststore.location"):
        assert seen[properties[key]].is_file()
    assert {path.name for path in seen.values()} == {"admin.properties", "admin.pem", "ca.pem"}
    assert service["environment"]["KVORUM_PROFILES"] == service["configs"][0]["target"]
    assert profile["bootstrap_server"] == "broker-101:9092"


def test_the_documented_commands_start_all_and_then_ask_as_the_administrator(cluster):
    log = (cluster.parent / "docker.log").read_text().splitlines()
    assert [line.split()[1:3] for line in log] == [
        ["compose", "up"], ["compose", "run"], ["compose", "run"],
    ]  # fmt: skip
    owner = cluster.stat()
    assert {line.split()[0] for line in log} == {f"{owner.st_uid}:{owner.st_gid}"}


def test_composes_own_parser_puts_the_file_over_the_other_one():
    words = ("-no-interpolation", "-no-path-resolution", "-format", "json")
    model = json.loads(run(tool("compose-config"), *words, COMPOSE, SECURE))
    for name in NODES:
        made, base, own = model["services"][name], services()[name], secure()["services"][name]
        for key in ("command", "environment", "user", "working_dir"):
            assert made[key] == own[key]
        assert [each["target"] for each in made["volumes"]] == [
            each["target"] for each in own["volumes"]
        ]
        assert made["healthcheck"]["test"] == base["healthcheck"]["test"]
        assert made["hostname"] == name


@pytest.mark.parametrize("variable", ["KVORUM_USER", "KVORUM_CLUSTER"])
def test_compose_asks_for_the_variables(variable):
    # The tool has no variables of its environment.
    parser = tool("compose-config")
    with pytest.raises(AssertionError, match=f"required variable {variable} is missing"):
        run(parser, COMPOSE, SECURE)
