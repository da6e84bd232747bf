"""The systemd units, checked by systemd's own tools."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys

import pytest

from tests.test_deploy.tools import DEPLOY, tool

UNITS = DEPLOY / "systemd"
ROLES = ("controller", "broker")
EXPOSURE_MAX = 2.0
"""systemd-analyze's scale goes from 0 (contained) to 10; below 2 is its best word."""


def unit(role):
    """The sections of a unit; of a repeated key the last value."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(UNITS / f"kvorum-{role}@.service")
    return parser


@pytest.mark.parametrize("role", ROLES)
def test_systemd_takes_the_unit(role, tmp_path):
    # The tool checks that the program exists; name that of this checkout.
    text = (UNITS / f"kvorum-{role}@.service").read_text(encoding="utf-8")
    assert text.count("/usr/bin/kvorum ") == 1
    copy = tmp_path / f"kvorum-{role}@.service"
    copy.write_text(text.replace("/usr/bin/kvorum ", f"{sys.executable} -m kvorum "))
    done = subprocess.run(
        [tool("systemd-analyze"), "verify", "--man=no", str(copy)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("role", ROLES)
def test_a_unit_is_contained(role):
    file = str(UNITS / f"kvorum-{role}@.service")
    done = subprocess.run(
        [tool("systemd-analyze"), "security", "--offline=true", "--no-pager", file],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    level = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert level is not None, done.stdout + done.stderr
    assert float(level[1]) < EXPOSURE_MAX


@pytest.mark.parametrize("role", ROLES)
def test_a_unit_is_told_by_the_node_and_has_time_to_stop(role):
    service = unit(role)["Service"]
    assert (service["Type"], service["TimeoutStartSec"]) == ("notify", "infinity")
    assert int(service["WatchdogSec"].removesuffix("s")) >= 10
    assert int(service["LimitNOFILE"]) >= 100_000
    # Controlled shutdown of the relaxed preset takes 15 s at most, and logs are closed after it.
    assert int(service["TimeoutStopSec"].removesuffix("s")) >= 30
    assert service["RestartPreventExitStatus"] == "2"
