"""The shipped experiments of CI, share one of two: each passes on a warm cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvorum.chaos.experiment_file.shipped import Shipped

from .short_experiments import WarmClusters, shares

SHARE = shares()[0]


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmClusters]:
    found = WarmClusters(tmp_path_factory.mktemp("warm"))
    yield found
    found.close()


@pytest.mark.live
@pytest.mark.timeout(240)
@pytest.mark.parametrize("one", SHARE, ids=lambda one: one.name)
def test_it_passes(clusters: WarmClusters, one: Shipped) -> None:
    result = clusters.run(one)
    assert result.verdict == "passed", (result.reasons, result.report_html)
    report = json.loads(Path(result.report_json).read_text())
    assert report["cluster"] == "warm"
    assert report["faults"] and all(fault["end_ms"] is not None for fault in report["faults"])
