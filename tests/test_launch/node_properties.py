"""Properties of a controller and a broker with TLS between them, for tests of the checks."""

from __future__ import annotations

from typing import Any

import pytest

from kvorum.runtime.errors import ConfigError

COMMON: dict[str, Any] = {
    "cluster.id": "H8cXxonAvNgrLxjJFXJs9g",
    "controller.quorum.voters": "1@h:1",
    "log.dirs": "/nowhere",
    "listener.security.protocol.map": "CONTROLLER:SSL",
    "listener.name.controller.ssl.truststore.type": "PEM",
    "listener.name.controller.ssl.truststore.location": "/ca.pem",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "/node.pem",
}
CONTROLLER: dict[str, Any] = {
    **COMMON,
    "node.id": 1,
    "listeners": "CONTROLLER://h:1",
    "listener.name.controller.ssl.client.auth": "required",
}
BROKER: dict[str, Any] = {**COMMON, "node.id": 101, "listeners": "PLAINTEXT://h:9092"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def refusal(check: Any, properties: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as refused:
        check(properties)
    assert "hidden" not in str(refused.value)
    return str(refused.value)
