"""The Helm chart with `security.enabled`, and the certificates of docs/deploying.md."""

from __future__ import annotations

import re

import pytest
import yaml

from kvorum.client.security import read_properties, security_of
from kvorum.launch.cluster.dev_certificates import described
from kvorum.launch.cluster.secure_plan import security_properties
from kvorum.launch.config.node_file import node_properties
from kvorum.launch.config.properties import broker_config, controller_config
from tests.shell import Shell
from tests.test_deploy.chart import (
    RELEASE,
    SECURE,
    install_as_documented,
    of_kind,
    pods,
    rendered,
)
from tests.test_deploy.tools import run, tool

SECRETS = "/etc/kvorum/secrets"


@pytest.fixture(scope="module")
def secret(tmp_path_factory):
    shell = Shell(tmp_path_factory.mktemp("chart"))
    install_as_documented(shell)
    return shell.folder / "secret"


def test_pods_have_the_properties_of_kvorum_init_secure():
    made = list(pods(rendered(*SECURE)))
    nodes = [f"{pod.role}-{pod.ordinal}" for pod in made]
    plain = [node_properties(None, [], pod.variables()) for pod in pods(rendered())]
    for pod, node, before in zip(made, nodes, plain, strict=True):
        expected = {
            name: re.sub(r"User:(?=controller-|broker-)", "User:kvorum-", value)
            for name, value in security_properties(SECRETS, node, nodes).items()
        }
        expected["ssl.keystore.location"] = f"{SECRETS}/node.pem"
        properties = node_properties(None, [], pod.variables())
        addresses = {name: properties[name] for name in ("listeners", "advertised.listeners")}
        assert properties == before | expected | addresses


def test_pods_listen_for_clients_with_logins_and_for_nodes_with_certificates(tmp_path, secret):
    for pod in pods(rendered(*SECURE)):
        variables = {
            name: value.replace(SECRETS, str(tmp_path)) for name, value in pod.variables().items()
        }
        for target, key in pod.secrets().items():
            file = tmp_path / target.removeprefix(f"{SECRETS}/")
            file.write_bytes((secret / key).read_bytes())
            file.chmod(0o600)
        properties = node_properties(None, [], variables)
        if pod.role == "controller":
            config, _ = controller_config(properties)
            assert config.controller_listener.protocol == "SSL"
            assert config.advertised == (pod.host, 9192)
            continue
        config, _ = broker_config(properties)
        found = {
            each.name: (each.protocol, each.listen, each.advertised) for each in config.listeners
        }
        assert found == {
            "CLIENTS": ("SASL_SSL", ("0.0.0.0", 9092), (pod.host, 9092)),
            "NODES": ("SSL", ("0.0.0.0", 9292), (pod.host, 9292)),
        }
        assert config.listeners[0].name == "NODES", "the inter-broker listener"


def test_a_container_sees_its_own_certificate_alone(secret):
    for pod in pods(rendered(*SECURE)):
        assert pod.secrets() == {
            f"{SECRETS}/node.pem": f"{pod.name}.pem",
            f"{SECRETS}/ca.pem": "ca.pem",
        }
        (volume,) = (v for v in pod.spec["template"]["spec"]["volumes"] if v["name"] == "secrets")
        assert volume["secret"] == {"secretName": "kvorum-certificates", "defaultMode": 0o440}
        _, hosts = described((secret / f"{pod.name}.pem").read_bytes())
        own = {pod.host, "localhost", "127.0.0.1", "::1"}
        assert hosts == own | ({"kvorum-bootstrap.kvorum"} if pod.role == "broker" else set())
    names = {path.name for path in secret.iterdir()}
    assert names == {"ca.pem", *(f"{pod.name}.pem" for pod in pods(rendered()))}


def test_the_documented_values_are_those_of_these_tests(secret):
    made = yaml.safe_load_all((secret.parent / "manifests.yaml").read_text(encoding="utf-8"))
    documented = of_kind([item for item in made if item], "StatefulSet")
    for name, one in of_kind(rendered(*SECURE), "StatefulSet").items():
        assert (
            documented[name]["spec"]["template"]["spec"]["volumes"]
            == (one["spec"]["template"]["spec"]["volumes"])
        )


def test_the_first_users_files_log_in_by_certificate_and_by_password(secret):
    shell = secret.parent
    by_certificate, by_password = (
        security_of(read_properties(str(path)), str(path))
        for path in (shell / "admin-certificate.properties", shell / "admin.properties")
    )
    assert (by_certificate.protocol, by_certificate.mechanism) == ("SSL", "")
    assert (by_password.protocol, by_password.mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert by_password.user == "admin"
    assert by_password.password == (shell / "admin.password").read_text().strip()
    for name in ("admin.properties", "admin-certificate.properties", "admin.password"):
        assert (shell / name).stat().st_mode & 0o077 == 0


def test_services_have_the_listener_of_nodes():
    services = of_kind(rendered(*SECURE), "Service")
    ports = {
        name: [port["port"] for port in service["spec"]["ports"]]
        for name, service in services.items()
    }
    assert ports == {
        "kvorum-controllers": [9192, 9404],
        "kvorum-brokers": [9092, 9292, 9404],
        "kvorum-bootstrap": [9092],
    }


def test_further_super_users_come_behind_the_pods_and_the_administrator():
    more = ("--set", "security.superUsers={User:ops}", "--set", "brokers.count=4")
    for pod in pods(rendered(*SECURE, *more)):
        users = pod.variables()["KVORUM_SUPER_USERS"].split(";")
        assert users[-3:] == ["User:kvorum-broker-104", "User:admin", "User:ops"]
        assert len(users) == 3 + 4 + 2


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (("security.enabled=true", "security.secretName="), "secretName"),
        (("security.superUsers={ops}",), "superUsers"),
        ((r"properties.super\.users=User:ops",), "properties.super.users does not go with"),
        (
            (r"brokers.properties.sasl\.enabled\.mechanisms=PLAIN",),
            "properties.sasl.enabled.mechanisms does not go with",
        ),
    ],
)
def test_values_that_would_open_or_break_the_cluster_are_refused(bad, said):
    helm = tool("helm")
    words = [word for value in bad for word in ("--set", value)]
    with pytest.raises(AssertionError, match=said):
        run(helm, "template", *RELEASE, *SECURE, *words)
