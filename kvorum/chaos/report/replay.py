"""An earlier run to run again: its experiment, seed and system, and the nodes that it hit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from kvorum.chaos.history import (
    FAULT_BEGIN,
    HISTORY_FILE,
    details_of,
    has_events,
    read_history,
)
from kvorum.chaos.run_record import RUN_FILE, parse_record
from kvorum.runtime.errors import ConfigError, CorruptData


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """The origin of a run, as its folder states it.

    system: kvorum, kafka or attached.
    is_secure: its cluster had TLS, users and ACLs.
    """

    experiment_file: str
    seed: int
    system: str
    is_secure: bool = False

    def system_to_replay(self) -> str:
        """The system's name for the run that replays this one. Raises ConfigError for an attached
        cluster, whose file a run does not keep."""
        if self.system == "attached":
            raise ConfigError(
                "the run was made on an attached cluster; add --system FILE.toml and "
                "--i-own-this-cluster"
            )
        return self.system


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """A fault and the nodes that it hit in each of two runs; empty if a run did not have it."""

    fault: str
    then: tuple[str, ...]
    now: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        return bool(self.then) and self.then == self.now

    def row(self) -> dict[str, object]:
        return {"fault": self.fault, "last_time": self.then, "now": self.now}


def read_earlier_run(run_dir: str) -> EarlierRun:
    """The origin of the run in a folder. Raises ConfigError for a folder that is not a run's."""
    folder = Path(run_dir)
    files = sorted(folder.glob("experiment.*"))
    if not files:
        raise ConfigError(f"{run_dir} holds no experiment file; name a folder of chaos-runs")
    try:
        record = parse_record(folder / RUN_FILE)
    except (OSError, CorruptData) as error:
        raise ConfigError(
            f"{folder / RUN_FILE} cannot be read ({error}); run {files[0]} with kvorum chaos run"
        ) from error
    return EarlierRun(
        experiment_file=str(files[0]),
        seed=record.seed,
        system="kvorum" if record.system is None else record.system.name,
        is_secure=record.is_secure,
    )


def compare_targets(then_dir: str, now_dir: str) -> list[Pick]:
    """The faults of two runs side by side, in the order in which they began.

    Raises CorruptData for a history that cannot be read.
    """
    pairs = zip_longest(_hits(then_dir), _hits(now_dir), fillvalue=("", ()))
    return [Pick(fault=now[0] or then[0], then=then[1], now=now[1]) for then, now in pairs]


def _hits(run_dir: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    path = str(Path(run_dir) / HISTORY_FILE)
    if not Path(path).exists() or not has_events(path):
        return
    for event in read_history(path):
        if event.f == FAULT_BEGIN:
            details = details_of(event)
            yield str(details["description"]), tuple(details["nodes"])
