"""The loggers of a node's process, as configs of the resource BROKER_LOGGER (KIP-412).

A change lasts until the process ends, as in Kafka. TRACE, which Python lacks, is below DEBUG.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from kvorum.metadata.requests.config_requests import ConfigOperation, Operation
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.log_levels import LEVELS, level_name

RESOURCE_BROKER_LOGGER = 8
SOURCE = 6
"""Kafka's number of the source DYNAMIC_BROKER_LOGGER_CONFIG."""
ROOT = "root"


def levels() -> list[tuple[str, str]]:
    """Every logger with the level that it logs at, by name."""
    names = sorted({*_known(), ROOT})
    return [(name, level_name(_logger(name).getEffectiveLevel())) for name in names]


def logger_entries() -> list[dict[str, Any]]:
    """The same as entries of DescribeConfigs."""
    return [
        {
            "name": name,
            "value": level,
            "config_source": SOURCE,
            "read_only": False,
            "is_sensitive": False,
            "synonyms": (),
            "config_type": 0,
            "documentation": None,
        }
        for name, level in levels()
    ]


def alter_loggers(operations: Sequence[ConfigOperation], *, validate_only: bool) -> Rejected | None:
    """Change levels, all or none. DELETE gives a logger the level of the one above it."""
    known = {*_known(), ROOT}
    for operation in operations:
        problem = _problem(operation, known)
        if problem is not None:
            return problem
    if not validate_only:
        for operation in operations:
            level = LEVELS[operation.value or ""] if operation.kind == Operation.SET else 0
            _logger(operation.name).setLevel(level)
    return None


def _problem(operation: ConfigOperation, known: set[str]) -> Rejected | None:
    name = operation.name
    if operation.kind not in (Operation.SET, Operation.DELETE):
        return Rejected(
            ErrorCode.INVALID_REQUEST, f"the level of {name} is set or deleted: it is no list"
        )
    if name not in known:
        return Rejected(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation.kind == Operation.DELETE:
        if name != ROOT:
            return None
        return Rejected(
            ErrorCode.INVALID_REQUEST,
            f"Removing the log level of the {ROOT} logger is not allowed",
        )
    if operation.value not in LEVELS:
        return Rejected(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {operation.value} as it is not a supported log "
            f"level. Valid log levels are {', '.join(LEVELS)}",
        )
    return None


def _known() -> list[str]:
    made = logging.root.manager.loggerDict
    return [name for name, item in made.items() if isinstance(item, logging.Logger)]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)
