"""Configs of a subscription to client metrics (KIP-714): metrics, interval, clients. Pure.

`metrics` are prefixes of names ("*": all; empty: none). `match` are patterns `selector=expression`;
a client must match all of them. An expression has RE2 syntax and matches the whole value.
"""

from __future__ import annotations

from typing import Any

from kvorum.metadata.configs.model import ConfigKey, ConfigType, list_items
from kvorum.runtime.errors import ErrorCode, Rejected

METRICS, INTERVAL, MATCH = "metrics", "interval.ms", "match"
INTERVAL_MS_DEFAULT = 300_000
SELECTORS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
EXPRESSION_LENGTH_MAX = 1_024
PROGRAM_BYTES_MAX = 1 << 20
"""Memory limit of one compiled expression; an expression of a few characters may need gigabytes."""

CLIENT_METRICS_CONFIGS: dict[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey(
            name=INTERVAL,
            type=ConfigType.INT,
            default=str(INTERVAL_MS_DEFAULT),
            low=100,
            high=3_600_000,
            documentation="Between two pushes of a client.",
        ),
        ConfigKey(
            name=MATCH,
            type=ConfigType.LIST,
            default="",
            documentation="Which clients: selector=expression,...; all clients if empty.",
        ),
        ConfigKey(
            name=METRICS,
            type=ConfigType.LIST,
            default="",
            documentation="Prefixes of the metrics' names, * for all; none if empty.",
        ),
    )
}


def client_metrics_problem(name: str, value: str) -> Rejected | None:
    """The refusal of this config of a subscription, or None. Error codes are Kafka's."""
    key = CLIENT_METRICS_CONFIGS.get(name)
    if key is None:
        return Rejected(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
    problem = key.problem(value)
    if problem is not None:
        return Rejected(ErrorCode.INVALID_REQUEST, problem)
    if "" in [item.strip() for item in value.split(",")] and value.strip():
        return Rejected(ErrorCode.INVALID_CONFIG, f"{name}={value!r} has an empty item")
    if name != MATCH:
        return None
    for item in list_items(value):
        try:
            pattern_of(item)
        except ValueError as error:
            return Rejected(
                ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {item}: {error}"
            )
    return None


def pattern_of(item: str) -> tuple[str, Any]:
    """Selector and compiled expression of one item of `match`. Raises ValueError."""
    selector, equals, expression = (part.strip() for part in item.partition("="))
    if not equals or "=" in expression:
        raise ValueError("it must be selector=expression")
    if selector not in SELECTORS:
        raise ValueError(f"{selector!r} is no selector; there are {', '.join(SELECTORS)}")
    if len(expression) > EXPRESSION_LENGTH_MAX:
        raise ValueError(f"the expression is longer than {EXPRESSION_LENGTH_MAX} characters")
    import re2  # imported here to save three megabytes on nodes without such subscriptions

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PROGRAM_BYTES_MAX
    try:
        return selector, re2.compile(expression, options)
    except re2.error as error:
        raise ValueError(f"the expression does not compile: {error}") from error
