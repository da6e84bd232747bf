"""Which check of the partitions' world finds a bug."""

from __future__ import annotations

from collections.abc import Iterable

from kvorum.chaos.sim.kernel.checks import SeedFailed
from kvorum.chaos.sim.worlds import run_seed


def first_failure(seeds: Iterable[int]) -> str | None:
    """The name of the check that fails first."""
    for seed in seeds:
        try:
            run_seed(seed, "partitions")
        except SeedFailed as failed:
            return failed.name
    return None
