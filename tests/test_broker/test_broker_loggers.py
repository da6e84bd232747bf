"""The levels of loggers as configs (KIP-412)."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from kvorum.metadata.configs.loggers import alter_loggers, logger_entries
from kvorum.metadata.requests.config_requests import ConfigOperation, Operation

NAME = "kvorum.of.a.test"


@pytest.fixture(autouse=True)
def known() -> Iterator[logging.Logger]:
    logger = logging.getLogger(NAME)
    yield logger
    logger.setLevel(logging.NOTSET)


def operation(kind=Operation.SET, value="DEBUG", name=NAME):
    return ConfigOperation(name=name, kind=kind, value=value)


def value():
    return next(entry["value"] for entry in logger_entries() if entry["name"] == NAME)


def test_a_level_is_set_and_deleted():
    assert alter_loggers([operation()], validate_only=False) is None
    assert value() == "DEBUG"
    assert alter_loggers([operation(value="TRACE")], validate_only=True) is None
    assert value() == "DEBUG"
    assert alter_loggers([operation(Operation.DELETE, None)], validate_only=False) is None
    above = next(entry["value"] for entry in logger_entries() if entry["name"] == "root")
    assert value() == above


@pytest.mark.parametrize(
    ("refused", "code", "said"),
    [
        (operation(value="LOUD"), 40, "not a supported log level"),
        (operation(value=None), 40, "not a supported log level"),
        (operation(name="kvorum.nobody"), 40, "Logger kvorum.nobody does not exist!"),
        (operation(Operation.DELETE, name="kvorum.nobody"), 40, "does not exist!"),
        (operation(Operation.APPEND), 42, "it is no list"),
        (operation(Operation.SUBTRACT, name="kvorum.nobody"), 42, "it is no list"),
        (operation(Operation.DELETE, None, "root"), 42, "root logger is not allowed"),
    ],
)
def test_of_a_bad_change_nothing_happens(refused, code, said):
    problem = alter_loggers([operation(), refused], validate_only=False)
    assert problem is not None and problem.code == code
    assert said in problem.message
    assert value() != "DEBUG"
