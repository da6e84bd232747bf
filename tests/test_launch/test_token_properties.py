"""The properties of delegation tokens on controllers and brokers."""

from __future__ import annotations

from typing import Any

import pytest

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.launch.config.properties import broker_config, controller_config, static_values
from kvorum.metadata.configs.config_keys import BROKER_CONFIGS
from kvorum.metadata.configs.model import is_hidden
from kvorum.metadata.configs.secrets import is_password
from kvorum.runtime.errors import ConfigError

KEY = "delegation.token.secret.key"
SECRET = "a secret of some length"
TIMES = {
    "delegation.token.max.lifetime.ms": 604_800_000,
    "delegation.token.expiry.time.ms": 86_400_000,
    "delegation.token.expiry.check.interval.ms": 3_600_000,
}
BROKER: dict[str, Any] = {
    "node.id": 101,
    "cluster.id": "H8cXxonAvNgrLxjJFXJs9g",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dirs": "/data",
    "controller.quorum.voters": "1@127.0.0.1:9093",
}
CONTROLLER = {**BROKER, "node.id": 1, "listeners": "CONTROLLER://127.0.0.1:9093"}


def test_a_controller_has_the_key_and_kafkas_times() -> None:
    config, controller = controller_config({**CONTROLLER, KEY: SECRET})
    assert controller.delegation_token_secret_key == SECRET
    for name, default in TIMES.items():
        assert getattr(controller, name.replace(".", "_")) == default
    assert config.notes == ()
    assert SECRET not in repr(controller)


@pytest.mark.parametrize("name", TIMES)
def test_a_time_below_one_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}=0 must be positive"):
        controller_config({**CONTROLLER, name: 0})


def test_a_broker_has_the_key_alone_and_says_of_the_times_that_controllers_obey_them() -> None:
    config, broker = broker_config({**BROKER, KEY: SECRET, **TIMES})
    assert broker.delegation_token_secret_key == SECRET
    assert SECRET not in repr(broker)
    assert len(config.notes) == 3
    assert all(any(name in note for note in config.notes) for name in TIMES)


def test_a_short_key_is_told_at_the_start_and_taken() -> None:
    for check, properties in ((controller_config, CONTROLLER), (broker_config, BROKER)):
        config, own = check({**properties, KEY: "fifteen bytes.."})
        assert own.delegation_token_secret_key == "fifteen bytes.."
        (note,) = config.notes
        assert f"{KEY} has 15 bytes" in note and "fifteen bytes.." not in note
        assert check({**properties, KEY: "sixteen bytes..."})[0].notes == ()


def test_without_the_key_tokens_are_off() -> None:
    assert broker_config(BROKER)[1].delegation_token_secret_key == ""
    assert controller_config(CONTROLLER)[1].delegation_token_secret_key == ""
    assert BrokerConfig().delegation_token_secret_key == ""


def test_the_key_is_a_password_for_every_output() -> None:
    assert is_password(KEY)
    assert is_hidden(BROKER_CONFIGS[KEY])
    assert static_values({KEY: SECRET})[KEY].value == SECRET
