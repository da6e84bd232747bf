"""Transcripts of one partition, read and written as those of the quorum."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripts.partitions.harness import PartitionHarness
from tests.scripts.transcripts import check

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_says_what_it_said(path, request):
    check(path, PartitionHarness(), is_rewritten=request.config.getoption("--rewrite"))


def test_there_are_scripts():
    assert len(SCRIPTS) >= 7
