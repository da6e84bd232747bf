"""Named sets of properties, for machines on which Kvorum's own time-outs do not fit.

Kvorum notices within a second that a node is gone. A node that gets no processor for a second, as a
pod that is throttled, then counts as gone: it is fenced and elected away from, again and again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvorum.runtime.config import Properties
from kvorum.runtime.errors import ConfigError

PRESET = "kvorum.preset"

PRESETS: Mapping[str, Mapping[str, int]] = {
    "relaxed": {
        "controller.quorum.election.timeout.ms": 1_000,
        "controller.quorum.fetch.timeout.ms": 6_000,
        "controller.quorum.request.timeout.ms": 5_000,
        "controller.quorum.fetch.wait.max.ms": 500,
        "controller.quorum.retry.backoff.ms": 100,
        "controller.quorum.leader.loss.grace.ms": 1_000,
        "broker.heartbeat.interval.ms": 2_000,
        "broker.session.timeout.ms": 9_000,
        "broker.stream.grace.ms": 3_000,
        "controlled.shutdown.timeout.ms": 15_000,
        "controller.socket.timeout.ms": 5_000,
        "initial.broker.registration.timeout.ms": 600_000,
        "replica.socket.timeout.ms": 30_000,
        "rpc.keepalive.time.ms": 5_000,
        "rpc.keepalive.timeout.ms": 5_000,
        "socket.connection.setup.timeout.ms": 10_000,
    },
}
"""Kafka's own defaults where it has them: an election or a fencing takes seconds, and a stall of
five seconds causes neither."""


def with_preset(properties: Mapping[str, Any], names: frozenset[str]) -> Properties:
    """The properties, with those of their preset that are not given. names: of the node's role.

    Raises ConfigError for an unknown preset.
    """
    name = str(properties.get(PRESET, ""))
    if not name:
        return dict(properties)
    if name not in PRESETS:
        raise ConfigError(f"{PRESET}={name!r} is unknown; there is {', '.join(PRESETS)}")
    preset = {key: value for key, value in PRESETS[name].items() if key in names}
    return {**preset, **properties}
