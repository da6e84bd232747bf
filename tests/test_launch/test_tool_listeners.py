"""A controller's listeners for Kafka's tools, by their properties."""

from __future__ import annotations

from typing import Any

import pytest

from kvorum.launch.config.properties import broker_config, controller_config
from kvorum.runtime.errors import ConfigError
from tests.test_launch.node_properties import BROKER, CONTROLLER, PLAIN, refusal

TOOLS: dict[str, Any] = {
    **CONTROLLER,
    "controller.listener.names": "CONTROLLER,ADMIN",
    "listeners": "CONTROLLER://h:1,ADMIN://h:2",
    "listener.security.protocol.map": "CONTROLLER:SSL,ADMIN:SASL_SSL",
    "listener.name.admin.max.connections": 5,
    "listener.name.admin.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.admin.plain.sasl.jaas.config": f'{PLAIN} required user_alice="hidden";',
}


def test_the_first_name_is_the_listener_of_nodes_and_the_others_are_for_tools() -> None:
    config, _ = controller_config(TOOLS)
    assert (config.listen, config.controller_listener.name) == (("h", 1), "CONTROLLER")
    (admin,) = config.tool_listeners
    assert (admin.name, admin.protocol, admin.listen) == ("ADMIN", "SASL_SSL", ("h", 2))
    assert admin.sasl is not None and admin.sasl.plain_users == {"alice": "hidden"}
    assert admin.tls is not None and admin.tls.keystore == "/node.pem"
    assert config.listeners == ()
    assert admin.connections_max == 5


def test_a_controller_need_not_have_every_listener_that_is_named() -> None:
    config, _ = controller_config({**TOOLS, "listeners": "CONTROLLER://h:1"})
    assert config.tool_listeners == ()


def test_tools_are_told_the_advertised_address() -> None:
    told = {"advertised.listeners": "CONTROLLER://outside:1,ADMIN://outside:3"}
    config, _ = controller_config({**TOOLS, **told})
    assert (config.advertised, config.tool_listeners[0].advertised) == (
        ("outside", 1),
        ("outside", 3),
    )


def test_a_broker_reads_the_first_name_alone() -> None:
    names = {"controller.listener.names": "CONTROLLER,ADMIN"}
    assert broker_config({**BROKER, **names})[0].controller_listener.name == "CONTROLLER"
    taken = {**names, "listeners": "PLAINTEXT://h:9092,ADMIN://h:9093"}
    with pytest.raises(ConfigError, match="listeners has ADMIN, the listener of controllers"):
        broker_config({**BROKER, **taken})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"listeners": "ADMIN://h:2"}, "of the form CONTROLLER://host:port"),
        ({"listeners": "CONTROLLER://h:1,OTHER://h:2"}, "only of names in controller.listener"),
        (
            {"listener.security.protocol.map": "CONTROLLER:SSL"},
            "no protocol for the listener ADMIN",
        ),
        ({"listener.name.admin.sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI is not served"),
        ({"listener.name.admin.max.connections": "0"}, "must lie between 1 and"),
        ({"listener.name.admin.no.such": "5"}, "no.such is no property of a listener"),
        (
            {"listeners": "CONTROLLER://h:1,ADMIN://0.0.0.0:2"},
            "clients and brokers cannot connect to 0.0.0.0",
        ),
    ],
)
def test_bad_listeners_are_refused(changes: dict[str, Any], said: str) -> None:
    assert said in refusal(controller_config, {**TOOLS, **changes})
