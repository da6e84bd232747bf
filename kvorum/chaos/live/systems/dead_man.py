"""The dead-man timer of an attached cluster: heals what a run broke when the run is gone.

A small process of its own, which does not end with the runner. The runner counts upwards in a
heartbeat file and writes every node that it takes down into a journal BEFORE it does so. When the
count stands still for too long, the timer runs the commands in the journal that bring the nodes
back, takes the toxics off the proxies, and ends. When the heartbeat file is gone, the run ended by
itself, and so does the timer.
"""

from __future__ import annotations

import enum
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kvorum.chaos.live.host.toxiproxy import Toxiproxy
from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.errors import KvorumError
from kvorum.runtime.python_module import module_command

HEARTBEAT = "heartbeat"
JOURNAL = "down.json"
LOG = "dead-man.log"
#: Exit status of a timer that healed; 0 is for a run that ended by itself.
HEALED = 3
BEAT_MS = 500
_POLL_S = 0.2


class WatchStep(enum.Enum):
    """The timer's next step."""

    WAIT = "wait"
    HEAL = "heal"
    END = "end"


@dataclass(slots=True, kw_only=True)
class DeadManWatch:
    """Decides from the heartbeats that it is shown. Pure: time is an argument."""

    heal_after_ms: int
    _last: str | None = None
    _since_ms: int = -1

    def turn(self, beat: str | None, now_ms: int) -> WatchStep:
        """beat: the content of the heartbeat file, None if there is no file."""
        if beat is None:
            return WatchStep.END
        if beat != self._last or self._since_ms < 0:
            self._last, self._since_ms = beat, now_ms
        return WatchStep.HEAL if now_ms - self._since_ms >= self.heal_after_ms else WatchStep.WAIT


@dataclass(slots=True, kw_only=True)
class Journal:
    """The nodes down, and the command that brings each back. Written before a node falls."""

    path: Path
    command_timeout_ms: int
    toxiproxy: str = ""
    proxies: tuple[str, ...] = ()
    down: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def add(self, name: str, way_back: Sequence[str]) -> None:
        self.down[name] = tuple(way_back)
        self.write()

    def remove(self, name: str) -> None:
        self.down.pop(name, None)
        self.write()

    def write(self) -> None:
        """Replace the file as a whole: a reader never sees half of it."""
        document = {
            "command_timeout_ms": self.command_timeout_ms,
            "toxiproxy": self.toxiproxy,
            "proxies": self.proxies,
            "down": self.down,
        }
        scratch = self.path.with_suffix(".new")
        scratch.write_text(json.dumps(document), encoding="utf-8")
        os.replace(scratch, self.path)


def read_journal(path: Path) -> Journal:
    """The journal in a file. Raises OSError and ValueError."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return Journal(
        path=path,
        command_timeout_ms=document["command_timeout_ms"],
        toxiproxy=document["toxiproxy"],
        proxies=tuple(document["proxies"]),
        down={name: tuple(command) for name, command in document["down"].items()},
    )


class NodeCommandFailed(KvorumError):
    """A command for a node did not end with 0."""


def run_command(command: Sequence[str], *, timeout_ms: int) -> None:
    """Run a node's command to its end. Raises CommandFailed with the end of what it said."""
    text = " ".join(command)
    try:
        done = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout_ms / 1000,
        )
    except OSError as error:
        raise NodeCommandFailed(f"{text!r} cannot be started: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise NodeCommandFailed(
            f"{text!r} did not end within command_timeout_ms={timeout_ms}"
        ) from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-300:]
        raise NodeCommandFailed(f"{text!r} ended with {done.returncode}: {said or 'no output'}")


def clear_toxics(toxiproxy: Toxiproxy, proxies: Sequence[str]) -> None:
    """Enable these proxies and take every toxic off them; other proxies stay as they are. Raises
    ToxiproxyError."""
    for name in proxies:
        toxiproxy.clear(name)


def open_toxiproxy(address: str) -> Toxiproxy:
    """The server at host:port; not contacted yet."""
    host, _, port = address.rpartition(":")
    return Toxiproxy(host, int(port))


def heal(journal: Journal) -> list[str]:
    """Bring everything back; one sentence for each part that could not be."""
    problems = []
    for name, command in journal.down.items():
        try:
            run_command(command, timeout_ms=journal.command_timeout_ms)
        except NodeCommandFailed as error:
            problems.append(f"{name} is still down: {error}")
    if journal.toxiproxy:
        try:
            clear_toxics(open_toxiproxy(journal.toxiproxy), journal.proxies)
        except KvorumError as error:
            problems.append(f"toxics may be left: {error}")
    return problems


def start_dead_man(folder: Path, *, heal_after_ms: int) -> subprocess.Popen[bytes]:
    """Start the timer, detached: it outlives this process. The heartbeat file must be there."""
    command = module_command("kvorum.chaos.live.systems.dead_man")
    command += [str(folder), str(heal_after_ms)]
    with open(folder / LOG, "ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def main(arguments: Sequence[str]) -> int:
    """arguments: the folder with heartbeat and journal, and heal_after_ms. Returns HEALED if it
    healed."""
    folder, heal_after_ms = Path(arguments[0]), int(arguments[1])
    watch = DeadManWatch(heal_after_ms=heal_after_ms)
    while True:
        turn = watch.turn(_read(folder / HEARTBEAT), monotonic_ms())
        if turn is WatchStep.END:
            return 0
        if turn is WatchStep.HEAL:
            break
        time.sleep(_POLL_S)
    journal = read_journal(folder / JOURNAL)
    names = ", ".join(journal.down) or "no node"
    _say(f"no heartbeat for {heal_after_ms} ms: healing; down were {names}")
    for problem in heal(journal):
        _say(problem)
    _say("done")
    return HEALED


def _say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii")
    except FileNotFoundError:
        return None


def beat(folder: Path, count: int) -> None:
    """Write one heartbeat; the count must differ from the one before."""
    scratch = folder / f"{HEARTBEAT}.new"
    scratch.write_text(str(count), encoding="ascii")
    os.replace(scratch, folder / HEARTBEAT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
