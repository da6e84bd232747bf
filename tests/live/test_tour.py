"""Every lesson of the tour, on its cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from kvorum.runtime.python_module import module_command
from kvorum.tour.lessons import LESSONS

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]
EXIT_NOT_SHOWN = 1


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder)}


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_a_lesson_shows_its_claim_and_leaves_nothing_behind(lesson, tmp_path):
    done = run(lesson.name, tmp_path)
    if done.returncode == EXIT_NOT_SHOWN:
        # A lesson says so if the machine was too busy; a second run must show the claim.
        done = run(lesson.name, tmp_path)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    told = json.loads(done.stdout)
    assert told["passed"]
    assert told["picture"]["rows"]
    assert all(fact["holds"] for fact in told["facts"])
    assert left_in(tmp_path) == []


def left_in(folder):
    """What is left of a lesson; the locks of port ranges are of all runs of a user."""
    return [path.name for path in folder.iterdir() if path.name != f"kvorum-ports-{os.getuid()}"]


def run(name, folder):
    return subprocess.run(
        module_command("kvorum", "tour", name, "-o", "json"),
        capture_output=True,
        env=environment(folder),
        check=False,
    )


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_a_kill_leave_no_cluster_behind(sent, tmp_path):
    process = subprocess.Popen(
        module_command("kvorum", "tour", "elections"),
        stdout=subprocess.PIPE,
        env=environment(tmp_path),
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if b"bootstrap:" in line:
                break
        process.send_signal(sent)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert left_in(tmp_path) == []
