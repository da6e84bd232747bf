"""A node that others would take for somebody else is refused at its start."""

from __future__ import annotations

from typing import Any

import pytest

from kvorum.launch.config.access import STANDARD_AUTHORIZER
from kvorum.launch.config.properties import broker_config, controller_config
from kvorum.launch.nodes.own_principal import check_at_brokers, check_at_controllers
from kvorum.runtime.certificate_checks import read_certificate
from kvorum.runtime.errors import ConfigError
from tests.certificates import Authority

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("own"))
    for name in ("controller-1", "broker-101"):
        made.node(name, f"{name}.pem")
    return made


def properties(authority: Authority, role: str, **changes: Any) -> dict[str, Any]:
    """Those of controller 1 or broker 101. A change to None leaves a property out."""
    name = "controller-1" if role == "controller" else "broker-101"
    found: dict[str, Any] = {
        "node.id": int(name.partition("-")[2]),
        "cluster.id": "H8cXxonAvNgrLxjJFXJs9g",
        "controller.quorum.voters": "1@h:1",
        "log.dirs": "/nowhere",
        "listener.security.protocol.map": "CONTROLLER:SSL,NODES:SSL",
        "listener.name.controller.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.folder / f"{name}.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:controller-1;User:broker-101",
        "kvorum.controller.principals": "User:controller-{id}",
        "kvorum.broker.principals": "User:broker-{id}",
    }
    if role == "controller":
        found["listeners"] = "CONTROLLER://h:1"
    else:
        found |= {
            "listeners": "NODES://h:9092",
            "inter.broker.listener.name": "NODES",
            "listener.name.nodes.ssl.client.auth": "required",
        }
    found |= {key.replace("__", "."): value for key, value in changes.items()}
    return {key: value for key, value in found.items() if value is not None}


def check(role: str, given: dict[str, Any]) -> None:
    parse: Any = controller_config if role == "controller" else broker_config
    config = parse(given)[0]
    tls = config.controller_listener.client
    check_at_controllers(config, tls and read_certificate(tls, is_server=False))
    if role == "broker":
        tls = config.peer_security.tls
        check_at_brokers(config, tls and read_certificate(tls, is_server=False))


@pytest.mark.parametrize("role", ["controller", "broker"])
def test_a_node_with_its_own_certificate_is_let_in(authority: Authority, role: str) -> None:
    check(role, properties(authority, role))


def test_without_principals_of_nodes_nothing_is_checked(authority: Authority) -> None:
    given = properties(
        authority, "broker",
        kvorum__broker__principals=None, kvorum__controller__principals=None,
        ssl__principal__mapping__rules=None,
    )  # fmt: skip
    check("broker", given)


@pytest.mark.parametrize("role", ["controller", "broker"])
def test_another_nodes_certificate_is_refused(authority: Authority, role: str) -> None:
    other = "broker-101" if role == "controller" else "controller-1"
    given = properties(authority, role)
    given["ssl.keystore.location"] = str(authority.folder / f"{other}.pem")
    with pytest.raises(ConfigError, match=f"CONTROLLER .* would be User:{other} and not User:"):
        check(role, given)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"node__id": 102}, "would be User:broker-101 and not User:broker-102"),
        ({"ssl__principal__mapping__rules": None}, "User:CN=broker-101,OU=nodes,O=Example and not"),
        ({"kvorum__broker__principals": "User:node-{id}"}, "and not User:node-101"),
        (
            {"listener__name__nodes__ssl__client__auth": None},
            "NODES of the others this broker would be User:ANONYMOUS .*client.auth=required",
        ),
        (
            {"listener__security__protocol__map": "CONTROLLER:SSL,NODES:PLAINTEXT"},
            "NODES .* User:ANONYMOUS",
        ),
        (
            {
                "listener__security__protocol__map": "CONTROLLER:PLAINTEXT,NODES:SSL",
                "listener__name__controller__ssl__client__auth": None,
            },
            "CONTROLLER .* User:ANONYMOUS",
        ),
    ],
)
def test_a_broker_that_others_take_for_somebody_else_is_refused(
    authority: Authority, changes: dict[str, Any], words: str
) -> None:
    given = properties(authority, "broker", **changes)
    if given["listener.security.protocol.map"].endswith("NODES:PLAINTEXT"):
        del given["listener.name.nodes.ssl.client.auth"]
    with pytest.raises(ConfigError, match=words):
        check("broker", given)


@pytest.mark.parametrize(("user", "is_own"), [("broker-101", True), ("broker", False)])
def test_a_broker_that_logs_in_is_the_user_of_its_login(
    authority: Authority, user: str, is_own: bool
) -> None:
    given = properties(
        authority, "broker",
        listener__security__protocol__map="CONTROLLER:SSL,NODES:SASL_SSL",
        sasl__enabled__mechanisms="PLAIN", sasl__mechanism__inter__broker__protocol="PLAIN",
        listener__name__nodes__plain__sasl__jaas__config=(
            f'{PLAIN} required username="{user}" password="p" user_{user}="p";'
        ),
    )  # fmt: skip
    if is_own:
        check("broker", given)
        return
    with pytest.raises(ConfigError, match=r"NODES .* would be User:broker and not"):
        check("broker", given)
