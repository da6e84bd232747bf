"""`python -m tests.live.dashboard_picture`: the shipped Grafana dashboard with real values.

A cluster of six nodes runs under load; a broker and then the active controller are killed and
started again. A real Prometheus with the shipped configuration answers every expression of
deploy/monitoring/kvorum.json, and matplotlib draws the panels, since tests have no Grafana.
Exit code 1 if a panel has no data.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.live.dashboard_drawing import Drawing
from tests.live.dashboard_panels import Event, Panel, Series, panels_of, series_of
from tests.live.dashboard_traffic import LOAD, Traffic, make_topics
from tests.live.observed_cluster import MONITORING, ObservedCluster, Prometheus, program
from tests.polling import eventually
from tests.tree import ROOT

DASHBOARD = MONITORING / "kvorum.json"
PICTURE = ROOT / "docs" / "images" / "dashboard.png"
SECONDS = 180
SECONDS_MIN = 90
"""A shorter run has no calm time between its faults."""
DOWN_S = 20
VICTIM = "broker-103"
NODES = 6


class Observation:
    """series: of each panel but rows. events: the faults, from the beginning on."""

    def __init__(self, panels: list[Panel], start_s: int, length_s: int) -> None:
        self.panels = panels
        self.start_s = start_s
        self.length_s = length_s
        self.events: list[Event] = []
        self.series: dict[Panel, list[Series]] = {}
        self.version = ""

    def wait_until(self, at_s: float) -> None:
        """Let the cluster run up to a time of the picture's axis; nothing is waited for."""
        time.sleep(max(0.0, self.start_s + at_s - time.time()))

    def note(self, node: str, *, is_kill: bool) -> None:
        at_s = time.time() - self.start_s
        print(f"{at_s:.1f} s: {node} {'killed' if is_kill else 'started again'}", flush=True)
        self.events.append(Event(at_s=at_s, node=node, is_kill=is_kill))

    def ask(self, prometheus: Prometheus) -> None:
        """The values of every target of every panel."""
        self.version = prometheus.version()
        for panel in self.panels:
            self.series[panel] = [
                series
                for target in panel.targets
                for series in series_of(
                    prometheus.query_range(
                        target.expression, self.start_s, self.start_s + self.length_s
                    ),
                    target.legend,
                    start_s=self.start_s,
                    count=self.length_s + 1,
                )
            ]

    def empty(self) -> list[str]:
        """The titles of panels without data."""
        return [p.title for p in self.panels if p.kind != "row" and not self.series[p]]

    def png(self) -> bytes:
        footer = (
            "Drawn from deploy/monitoring/kvorum.json with the values of Prometheus"
            f" {self.version}, by python -m tests.live.dashboard_picture; not by Grafana."
        )
        title = "Kvorum: three controllers and three brokers under load"
        drawing = Drawing(self.panels, self.events, self.length_s)
        return drawing.png(self.series, title=title, load=LOAD, footer=footer)


def observe(folder: Path, length_s: int) -> Observation:
    """Run a cluster for `length_s` under load and faults, and ask for the values of all panels."""
    panels = panels_of(json.loads(DASHBOARD.read_text(encoding="utf-8")))
    with contextlib.ExitStack() as stack:
        cluster = ObservedCluster(folder)
        stack.callback(cluster.close)
        cluster.wait_ready()
        make_topics(cluster.made.bootstrap)
        prometheus = Prometheus(folder / "prometheus", cluster, "prometheus.yml")
        stack.callback(prometheus.close)
        eventually(lambda: prometheus.is_up(NODES), "all nodes are scraped")
        traffic = Traffic(cluster.made.bootstrap)
        stack.callback(traffic.finish)
        seen = Observation(panels, int(time.time()) + 1, length_s)
        _strike(seen, cluster, VICTIM, at_s=length_s / 4)
        (active,) = prometheus.query("kvorum_controller_is_active == 1")
        _strike(seen, cluster, active["metric"]["node"], at_s=length_s * 7 / 12)
        seen.wait_until(length_s + 1)
        seen.ask(prometheus)
        return seen


def _strike(seen: Observation, cluster: ObservedCluster, node: str, *, at_s: float) -> None:
    """Kill a node at a time of the observation, and start it DOWN_S later; it is then ready."""
    seen.wait_until(at_s)
    seen.note(node, is_kill=True)
    cluster.made.kill(node)
    seen.wait_until(at_s + DOWN_S)
    seen.note(node, is_kill=False)
    cluster.made.start(node)
    cluster.wait_ready()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.live.dashboard_picture", description=__doc__
    )
    parser.add_argument("--seconds", type=int, default=SECONDS, help="length of the time axis")
    parser.add_argument("file", type=Path, nargs="?", default=PICTURE, metavar="FILE")
    options = parser.parse_args()
    if options.seconds < SECONDS_MIN:
        parser.error(f"--seconds {options.seconds}: at least {SECONDS_MIN}")
    if program("prometheus") is None:
        parser.error("no prometheus; deploy/setup.sh fetches it on Debian as root")
    with tempfile.TemporaryDirectory(prefix="dashboard-") as folder:
        seen = observe(Path(folder), options.seconds)
    options.file.write_bytes(seen.png())
    for title in seen.empty():
        print(f"no data: {title}")
    return 1 if seen.empty() else 0


if __name__ == "__main__":
    sys.exit(main())
