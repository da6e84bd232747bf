"""Transcripts of one partition, read and written as those of the quorum."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripts.partitions.harness import PartitionHarness
from tests.scripts.test_scripts import NOTHING, parse, render

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


def play(text):
    blocks = parse(text)
    harness = PartitionHarness()
    for block in blocks:
        shown = [line for command in block.commands for line in harness.run(command)]
        block.output = shown or [NOTHING]
    return render(blocks)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_says_what_it_said(path, request):
    before = path.read_text(encoding="utf-8")
    now = play(before)
    if request.config.getoption("--rewrite"):
        path.write_text(now, encoding="utf-8")
        return
    assert now.splitlines() == before.splitlines()


def test_there_are_scripts():
    assert len(SCRIPTS) >= 7
