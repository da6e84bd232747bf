"""The shipped experiments with the tag `short`, in two shares of about the same length, each on
warm clusters: experiments whose cluster has the same shape use one, one after the other.

Each share is a test module of its own, so that two workers of pytest-xdist carry them side by side.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from kvorum.chaos.experiment_file.experiment import load_experiment
from kvorum.chaos.experiment_file.shipped import Shipped, shipped
from kvorum.chaos.live.host.processes import NotReached
from kvorum.chaos.live.runner import run
from kvorum.chaos.live.systems.opening import choose_system
from kvorum.chaos.report.report import RunResult

from .warm_cluster import Shape, WarmCluster, shape_of

#: A warm cluster needs no time to settle, and no promise is about the time before or after the
#: faults.
QUICK = {"warm_up_ms": 500, "cool_down_ms": 500}


def shape(one: Shipped) -> Shape:
    return shape_of(load_experiment(one.path).configuration)


def shares() -> tuple[list[Shipped], list[Shipped]]:
    """Both shares, the longest experiments given out first; equal shapes follow each other."""
    found: tuple[list[Shipped], list[Shipped]] = ([], [])
    short = [one for one in shipped() if "short" in one.tags]
    for one in sorted(short, key=lambda one: (-one.seconds, one.name)):
        min(found, key=lambda share: sum(other.seconds for other in share)).append(one)
    return (sorted(found[0], key=shape), sorted(found[1], key=shape))


class WarmClusters:
    """One warm cluster at a time: of the shape that the next experiment needs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._open: WarmCluster | None = None

    def run(self, one: Shipped) -> RunResult:
        """Run an experiment; afterwards the cluster is whole, or another one will be next."""
        file = self._quick(one)
        cluster = self._of(file)
        result = run(str(file), output_dir=str(self._folder / one.name), warm=cluster)
        cluster.await_whole()
        return result

    def close(self) -> None:
        """Stop the cluster, and compare what its replicas have on their disks."""
        cluster, self._open = self._open, None
        if cluster is None:
            return
        cluster.__exit__(None, None, None)
        compared = cluster.compare_replicas()
        assert compared.count == 0, compared.findings
        assert compared.examined > 0

    def _of(self, file: Path) -> WarmCluster:
        configuration = load_experiment(str(file)).configuration
        if self._open is not None and self._open.shape == shape_of(configuration):
            try:
                self._open.await_whole()
                return self._open
            except NotReached:
                # A failed run left the cluster in this state; its own test has reported that.
                self._open.__exit__(None, None, None)
                self._open = None
        self.close()
        self._count += 1
        cluster = WarmCluster(
            choose_system("kvorum"), configuration, self._folder / f"cluster-{self._count}"
        )
        self._open = cluster.__enter__()
        return cluster

    def _quick(self, one: Shipped) -> Path:
        document = yaml.safe_load(Path(one.path).read_text(encoding="utf-8"))
        document["configuration"] |= QUICK
        file = self._folder / f"{one.name}.yaml"
        file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        return file
