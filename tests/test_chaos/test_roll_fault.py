"""The fault `roll`: one command restarts every node beside the load."""

from __future__ import annotations

import sys

import pytest

from kvorum.chaos.faults import Roll
from kvorum.chaos.live.faults.rolling import RollingRestart
from kvorum.chaos.live.systems.capabilities import KAFKA_CAPABILITIES, needs_of
from kvorum.chaos.live.systems.protocol import Capability
from kvorum.runtime.errors import KvorumError
from tests.polling import eventually


class Commanded:
    """A system whose roll is a small program."""

    def __init__(self, folder, program):
        self.roll_log = str(folder / "roll.log")
        self._program = program

    def roll_command(self):
        return [sys.executable, "-c", self._program]


def test_it_is_over_with_its_command_and_complete_if_that_succeeded(tmp_path):
    rolling = RollingRestart(Commanded(tmp_path, "print('done')"))
    rolling.start()
    eventually(rolling.is_over, "the command has ended")
    rolling.finish()
    assert rolling.outcome == {"is_complete": True}


def test_a_roll_that_stops_early_fails_with_its_last_line(tmp_path):
    rolling = RollingRestart(Commanded(tmp_path, "print('stopped at 2'); raise SystemExit(4)"))
    rolling.start()
    with pytest.raises(KvorumError, match="exit code 4: stopped at 2"):
        eventually(rolling.is_over, "the failure is seen")
    rolling.finish()
    assert rolling.outcome == {"is_complete": False}


def test_the_end_of_its_time_ends_the_command(tmp_path):
    rolling = RollingRestart(Commanded(tmp_path, "import signal; signal.pause()"))
    rolling.start()
    assert not rolling.is_over()
    rolling.finish()
    assert rolling.outcome == {"is_complete": False}
    rolling.finish()


def test_only_kvorum_has_a_command_for_it():
    assert needs_of(Roll(duration_ms=1)) == {Capability.ROLL}
    assert Capability.ROLL not in KAFKA_CAPABILITIES
    assert Roll(duration_ms=1).text() == "roll"
