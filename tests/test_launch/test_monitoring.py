"""deploy/monitoring: the files are sound, and each alert fires on its cause."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
import yaml

from kvorum.launch.metrics.row import HISTOGRAM
from kvorum.launch.metrics.rows import ROWS
from tests.live.observed_cluster import MONITORING, program
from tests.test_launch.strimzi_facts import NO_VALUE
from tests.tree import ROOT

OWN_NAMES = {row.name: row for rows in ROWS.values() for row in rows if row.name}
HISTOGRAM_PARTS = {
    f"{name}_{part}"
    for name, row in OWN_NAMES.items()
    if row.kind == HISTOGRAM
    for part in ("bucket", "sum", "count")
}


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "config", "kafka-relabel.yml"),
        ("check", "rules", "--lint=all", "--lint-fatal", "rules.yml"),
        ("test", "rules", "rules_test.yml"),
    ],
    ids=" ".join,
)
def test_promtool_finds_nothing(arguments: tuple[str, ...]) -> None:
    promtool = program("promtool")
    if promtool is None:
        pytest.skip("no promtool; deploy/setup.sh fetches it on Debian as root")
    done = subprocess.run(
        [promtool, *arguments],
        cwd=MONITORING, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def expressions() -> list[str]:
    """The expressions of the alerts and of the dashboard."""
    rules = yaml.safe_load((MONITORING / "rules.yml").read_text(encoding="utf-8"))
    board = json.loads((MONITORING / "kvorum.json").read_text(encoding="utf-8"))
    found = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    found += [t["expr"] for panel in board["panels"] for t in panel.get("targets", [])]
    return found


@pytest.mark.parametrize("expression", expressions())
def test_expressions_ask_for_metrics_that_there_are(expression: str) -> None:
    names = re.findall(r"\b(?:kvorum|process)_\w+", expression)
    assert names or "up{" in expression
    assert set(names) <= OWN_NAMES.keys() - histograms() | HISTOGRAM_PARTS


def histograms() -> set[str]:
    return {name for name, row in OWN_NAMES.items() if row.kind == HISTOGRAM}


def test_every_alert_is_tested() -> None:
    rules = yaml.safe_load((MONITORING / "rules.yml").read_text(encoding="utf-8"))
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    text = (MONITORING / "rules_test.yml").read_text(encoding="utf-8")
    assert {alert for alert in alerts if alert not in text} == set()


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    board = json.loads((MONITORING / "kvorum.json").read_text(encoding="utf-8"))
    taken: dict[tuple[int, int], str] = {}
    for panel in board["panels"]:
        at = panel["gridPos"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in taken, (panel["title"], taken.get((x, y)))
                assert x < 24
                taken[x, y] = panel["title"]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))


def test_the_document_names_what_has_no_value() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert [name for name in NO_VALUE if f"`{name}`" not in text] == []
