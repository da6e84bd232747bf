"""Transcripts of the quorum, each run in a fresh world."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripts.harness import Harness
from tests.scripts.transcripts import check, play

FOLDER = Path(__file__).parent
SCRIPTS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_says_what_it_said(path, request):
    check(path, Harness(), is_rewritten=request.config.getoption("--rewrite"))


def test_there_are_scripts():
    assert len(SCRIPTS) > 20


def test_a_changed_output_is_seen():
    text = "cluster 1\ntick 1\nstate\n----\nsomething else\n"
    assert play(text, Harness()).splitlines() != text.splitlines()


def test_playing_twice_says_the_same():
    text = "cluster 3\nrun 2000\nstate\nlog\n----\n"
    assert play(text, Harness()) == play(text, Harness())


def test_two_values_committed_at_one_offset_are_seen():
    harness = Harness()
    harness.run("cluster 1")
    harness.run("tick 1")
    node = harness.world.nodes[1]
    node.disk.entries[0] = type(node.disk.entries[0])(9, "other")
    assert harness.run("propose 1 a")[-1].startswith("UNSAFE committed")
