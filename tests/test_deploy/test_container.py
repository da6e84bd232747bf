"""The image and the Compose file."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from kvorum.launch.config.node_file import node_properties
from kvorum.launch.config.properties import broker_config, controller_config
from tests.test_deploy.compose import COMPOSE, node_names, services
from tests.test_deploy.tools import DEPLOY, run, tool
from tests.tree import ROOT

NODES = node_names()


def test_hadolint_finds_nothing():
    run(tool("hadolint"), DEPLOY / "Containerfile")


def test_the_build_has_the_package_and_no_more():
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert lines[0] == "*"
    assert {"kvorum", "pyproject.toml", "README.md", "LICENSE"} <= sent
    assert all((ROOT / name).exists() for name in sent)
    assert not sent & {"tests", "bench", ".git", ".venv", "docs"}


def test_composes_own_parser_takes_the_file():
    model = json.loads(run(tool("compose-config"), "-format", "json", COMPOSE))
    assert set(NODES) <= set(model["services"])
    assert set(NODES) <= set(model["volumes"])


@pytest.mark.parametrize("name", NODES)
def test_the_variables_of_each_service_make_a_node(name):
    service = services()[name]
    variables = {
        key: re.sub(r"\$\{\w+:-(.*?)\}", r"\1", str(value))
        for key, value in service["environment"].items()
    }
    role, node_id = name.split("-")
    assert service["command"] == [role] and service["hostname"] == name
    config, _ = (controller_config if role == "controller" else broker_config)(
        node_properties(None, [], variables)
    )
    assert (config.node_id, config.advertised[0], config.listen[0]) == (
        int(node_id), name, "0.0.0.0",
    )  # fmt: skip
    assert service["volumes"] == [f"{name}:/var/lib/kvorum"]
    assert config.directory.startswith("/var/lib/kvorum/")
    assert "/readyz" in service["healthcheck"]["test"][-1]
    assert config.metrics is not None and config.metrics[1] == 9404


def test_prometheus_scrapes_every_node():
    document = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    content = yaml.safe_load(document["configs"]["prometheus"]["content"])
    (job,) = content["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"{name}:9404" for name in NODES]
