"""The shape, faults and conditions that a test names, from words to objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from kvorum.chaos.experiment_file.faults import build_fault
from kvorum.chaos.experiment_file.keys import DURATION_MS_MAX
from kvorum.chaos.faults import LIVE_FAULTS, LiveFault
from kvorum.chaos.testing.view import CONDITIONS, Condition
from kvorum.runtime.errors import ConfigError


class WantedShape:
    """The size and settings of a cluster, as back ends want them (`ClusterShape`)."""

    def __init__(
        self,
        *,
        controllers: int,
        voters: int,
        brokers: int,
        settings: Mapping[str, str],
        is_secure: bool,
        timeout_s: float,
    ) -> None:
        self.controllers, self.voters, self.brokers = controllers, voters, brokers
        self.is_secure = is_secure
        self.settings: Sequence[tuple[str, str]] = tuple(settings.items())
        self.start_timeout_ms = round(timeout_s * 1000)


def built_fault(name: str, arguments: Mapping[str, object]) -> LiveFault:
    """The fault of that name. Raises ConfigError for an unknown name or argument."""
    if name not in LIVE_FAULTS:
        near = get_close_matches(name, list(LIVE_FAULTS), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(LIVE_FAULTS)}"
        raise ConfigError(f"unknown fault {name!r}; {hint}")
    needed = {
        field.name
        for field in dataclasses.fields(LIVE_FAULTS[name])
        if field.default is dataclasses.MISSING
    }
    # An experiment must say how long a fault of disks lasts; here the test ends every fault.
    lasting = {"duration_ms": DURATION_MS_MAX} if "duration_ms" in needed else {}
    built = build_fault(name, {**lasting, **arguments})
    if isinstance(built, list):
        raise ConfigError("; ".join(problem.message for problem in built))
    return built


def named_condition(name: str) -> Condition:
    """The condition of that name. Raises ConfigError for an unknown one."""
    found = CONDITIONS.get(name)
    if found is None:
        near = get_close_matches(name, list(CONDITIONS), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(CONDITIONS)}"
        raise ConfigError(f"unknown condition {name!r}; {hint}")
    return found
