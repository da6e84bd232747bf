"""Runs a lesson on a cluster of its own: a driver. Everything that a lesson does is a command line
in the lesson's folder, where `kvorum` is this Kvorum."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kvorum.chaos.live.host.processes import free_ports
from kvorum.tour.picture import Picture
from kvorum.tour.telling import NotShown, Remark, Step, Telling, rows_of

DATA = "lab"
MARK = "KVORUM_TOUR"
"""The variable by which a lesson's processes are known."""
COMMAND_TIMEOUT_S = 40.0
WAIT_TIMEOUT_S = 30.0
_POLL_S = 0.3
_BOOTSTRAP = re.compile(r"^bootstrap: (\S+)", re.MULTILINE)

Row = dict[str, str]


class Stage:
    """One run of a lesson.

    telling: what was run and found.
    controllers, brokers, properties: of its cluster.
    on_text, on_command, on_output, on_fact, on_picture: called as it happens; on_command before it
        runs.
    pause: called before each command.
    """

    def __init__(
        self,
        *,
        controllers: int,
        brokers: int,
        properties: Sequence[str],
        on_text: Callable[[str], None],
        on_command: Callable[[str], None],
        on_output: Callable[[str], None],
        on_fact: Callable[[str, bool], None],
        on_picture: Callable[[Picture], None],
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        self.telling = Telling()
        self.folder = Path(tempfile.mkdtemp(prefix="kvorum-tour-"))
        self._has_cluster = controllers > 0
        self._shape = ["--controllers", str(controllers), "--brokers", str(brokers)]
        for each in properties:
            self._shape += ["--set", each]
        self._on_text, self._on_command = on_text, on_command
        self._on_output, self._on_fact = on_output, on_fact
        self._on_picture = on_picture
        self._pause = pause
        self._environment = {**os.environ, MARK: str(self.folder)}
        self._bootstrap = ""

    # --- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the cluster, if the lesson has one. Raises NotShown if it does not start."""
        self._make_command()
        if not self._has_cluster:
            return
        words = ["kvorum", "dev", "--data-dir", DATA, "--port", "0", "--background", *self._shape]
        found = _BOOTSTRAP.search(self.run(shlex.join(words)))
        if found is None:
            raise NotShown("the cluster did not start")
        self.use_brokers(found.group(1))

    def way_in(self) -> list[str]:
        """The commands with which a reader goes on with a cluster that is kept, and ends it."""
        end = f"kvorum dev stop --data-dir {DATA}" if self._has_cluster else "kill $(cat *.pid)"
        return [
            f"cd {self.folder}",
            'export PATH="$PWD/bin:$PATH"',
            f"export KVORUM_BOOTSTRAP_SERVER={self._bootstrap}",
            f"{end}; cd; rm -r {self.folder}    # at the end",
        ]

    def stop(self) -> None:
        """Stop the cluster, and whatever else runs in the folder, and remove it."""
        # A second Ctrl-C must not leave processes behind.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            if (self.folder / DATA).exists():
                # Whatever these commands cannot end is killed behind them.
                with contextlib.suppress(NotShown):
                    self._resume_paused()
                    self._execute(f"kvorum dev stop --data-dir {DATA}")
            self._kill_the_rest()
            shutil.rmtree(self.folder, ignore_errors=True)
        finally:
            signal.signal(signal.SIGINT, before)

    # --- what lessons call -------------------------------------------------------------------

    def say(self, text: str) -> None:
        self.telling.remarks.append(Remark(len(self.telling.steps), text))
        self._on_text(text)

    @property
    def python(self) -> str:
        """The Python that has Kafka's client, as a word of a command line."""
        return shlex.quote(sys.executable)

    def use_brokers(self, bootstrap: str) -> None:
        """Commands ask these brokers from now on."""
        self._bootstrap = self._environment["KVORUM_BOOTSTRAP_SERVER"] = bootstrap

    @staticmethod
    def free_port() -> int:
        """A port that is free, as are the next 109: `kvorum init` gives them to its nodes."""
        return free_ports(110, random.Random())

    def pause_brokers(self, broker_ids: Sequence[str]) -> str:
        """Pause these brokers; returns the ids of their processes. Their last fetches wait at the
        leader for half a second: a record that came meanwhile would still reach them."""
        paused = " ".join(str(self.process_of(f"broker-{broker_id}")) for broker_id in broker_ids)
        self.run(f"kill -STOP {paused}; sleep 1")
        return paused

    def write(self, name: str, text: str) -> None:
        """Write a file, by a command that can be copied."""
        self.run(f"cat > {name} << 'END'\n{text}END")

    def run(self, command: str) -> str:
        """Run a command line and return what it printed. Raises NotShown if it fails."""
        step = self._step(command)
        if step.exit_code:
            raise NotShown(f"`{command}` ended with {step.exit_code}")
        return step.output

    def run_in_vain(self, command: str) -> str:
        """Run a command that is to fail. Raises NotShown if it does not."""
        step = self._step(command)
        if not step.exit_code:
            raise NotShown(f"`{command}` was to fail, and did not")
        return step.output

    def rows(self, command: str) -> list[Row]:
        """Run a command that prints a table."""
        return rows_of(self.run(command))

    def wait_for(self, command: str, holds: Callable[[str], bool]) -> str:
        """Run a command again and again until its output is as wanted; the last output is shown.

        Raises NotShown after WAIT_TIMEOUT_S.
        """
        self._on_command(command)
        self._pause()
        deadline_s = time.monotonic() + WAIT_TIMEOUT_S
        tries = 0
        while True:
            tries += 1
            step = self._execute(command)
            is_over = time.monotonic() > deadline_s
            if holds(step.output) or is_over:
                break
            time.sleep(_POLL_S)
        self.telling.steps.append(step)
        self._on_output(step.output)
        if tries > 1:
            self.say(f"(It was run {tries} times, until it showed this.)")
        if not holds(step.output):
            raise NotShown(f"`{command}` did not show it within {WAIT_TIMEOUT_S:.0f} s")
        return step.output

    def fact(self, text: str, is_held: bool) -> None:
        """State a fact. Raises NotShown if it does not hold."""
        self.telling.remarks.append(Remark(len(self.telling.steps), text, is_held))
        self._on_fact(text, is_held)
        if not is_held:
            raise NotShown(f"this did not hold: {text}")

    def draw(self, picture: Picture) -> None:
        """Show the lesson's picture, made from what its commands printed. Once a run."""
        self.telling.picture = picture
        self._on_picture(picture)

    def process_of(self, node: str) -> int:
        """The process id of a node."""
        # While a node is down, the command fails.
        for row in rows_of(self._step(f"kvorum dev status --data-dir {DATA}").output):
            if row["NAME"] == node:
                return int(row["PID"])
        raise NotShown(f"there is no node {node}")

    # --- inside ------------------------------------------------------------------------------

    def _step(self, command: str) -> Step:
        self._on_command(command)
        self._pause()
        step = self._execute(command)
        self.telling.steps.append(step)
        self._on_output(step.output)
        return step

    def _make_command(self) -> None:
        """A `kvorum` of the lesson's folder, so that a reader's commands run this Kvorum.

        With -P it takes no program of the lesson for a module.
        """
        script = self.folder / "bin" / "kvorum"
        script.parent.mkdir()
        script.write_text(f'#!/bin/sh\nexec {self.python} -P -m kvorum "$@"\n')
        script.chmod(0o755)
        self._environment["PATH"] = f"{script.parent}{os.pathsep}{os.environ.get('PATH', '')}"
        self._environment["PYTHONPATH"] = os.pathsep.join(
            [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        ).rstrip(os.pathsep)

    def _execute(self, command: str) -> Step:
        try:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=COMMAND_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise NotShown(f"`{command}` took more than {COMMAND_TIMEOUT_S:.0f} s") from late
        except FileNotFoundError as missing:
            raise NotShown("the tour needs bash") from missing
        return Step(command, done.returncode, done.stdout.decode(errors="replace"))

    def _kill_the_rest(self) -> None:
        """Kill the programs that the lesson has left, by the mark in their environment."""
        mark = f"{MARK}={self.folder}\0".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (process / "environ").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)

    def _resume_paused(self) -> None:
        """A paused process would not stop."""
        for row in rows_of(self._execute(f"kvorum dev status --data-dir {DATA}").output):
            if row.get("PID", "").isdigit():
                try:
                    os.kill(int(row["PID"]), signal.SIGCONT)
                except ProcessLookupError:
                    continue
