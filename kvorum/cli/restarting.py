"""The two ways in which `kvorum cluster roll` restarts a node: a command of the operator's, or the
launcher of `kvorum dev`.

A command that is not over in time, and one that the roll leaves behind as it is ended itself, is
killed with its whole process group. Else a hanging ssh could restart the node later, while another
one is down.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import string
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from kvorum.client.failures import EXIT_FAILED, EXIT_NO_QUORUM, CommandFailed, warn
from kvorum.metadata.inspect.roll import RollNode
from kvorum.runtime.errors import ConfigError

GRACE_S = 2.0
"""From SIGTERM to SIGKILL."""
_POLL_S = 0.02
_LAST_BYTES = 4_096
"""The end of a command's output; its last line is told if the command fails."""

FIELDS = ("node", "id", "role", "host", "short_host")
_OF_ONE_NODE = {"node", "id", "host", "short_host"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A way to restart nodes.

    run: restarts a node; the number is the time it has, in seconds. Raises CommandFailed. is_ready:
    after `run` the node is known to be ready; a command may have done nothing.
    """

    run: Callable[[RollNode, float], None]
    is_ready: bool


def restarter(template: str | None, data_dir: str | None, *, is_needed: bool) -> Restart | None:
    """The way to restart nodes; None if none is given and none is needed. Raises ConfigError for a
    template that cannot work, if two ways are given, and if a needed one is missing."""
    if template is not None and data_dir is not None:
        raise ConfigError("give --restart-command or --data-dir, not both")
    if template is not None:
        words = _checked_words(template)
        return Restart(
            run=lambda node, timeout_s: _run_command(words, node, timeout_s), is_ready=False
        )
    if data_dir is not None:
        folder = data_dir
        return Restart(
            run=lambda node, timeout_s: _ask_launcher(folder, node, timeout_s), is_ready=True
        )
    if is_needed:
        raise ConfigError(
            "how is a node restarted? give --restart-command, such as 'ssh {host} systemctl "
            "restart kvorum-{role}@{id}', or --data-dir of a cluster of kvorum dev"
        )
    return None


def _checked_words(template: str) -> list[str]:
    """The words of a restart command. Raises ConfigError."""
    try:
        words = shlex.split(template)
        fields = {field for word in words for _, field, _, _ in string.Formatter().parse(word)}
    except ValueError as error:
        raise ConfigError(f"--restart-command={template!r}: {error}") from error
    fields.discard(None)
    unknown = sorted(str(field) for field in fields if field not in FIELDS)
    if unknown:
        raise ConfigError(
            f"--restart-command={template!r} has {{{unknown[0]}}}; there are "
            f"{', '.join(f'{{{name}}}' for name in FIELDS)}"
        )
    if not words or not fields & _OF_ONE_NODE:
        raise ConfigError(
            f"--restart-command={template!r} names no node, so it would restart the same one each "
            "time; use {node}, {id} or {host} in it"
        )
    return words


def command_for(words: list[str], node: RollNode) -> list[str]:
    """The command that restarts the node."""
    values = {
        "node": node.name,
        "id": node.node_id,
        "role": node.role,
        "host": node.host,
        "short_host": node.short_host,
    }
    return [word.format(**values) for word in words]


def _run_command(words: list[str], node: RollNode, timeout_s: float) -> None:
    command = command_for(words, node)
    text = shlex.join(command)
    # A file, since a node that the command leaves running may keep a pipe open for good.
    with tempfile.TemporaryFile() as output, _ended_by_signals(), _HeldBack() as signals:
        process = _started(command, text, output)
        try:
            signals.deliver()
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            _kill_group(process)
            raise CommandFailed(
                f"{text}: still running after {timeout_s:.0f} s and was killed", EXIT_NO_QUORUM
            ) from error
        except BaseException:
            _kill_group(process)
            warn(f"{text}: killed before its end; see whether {node.name} runs")
            raise
        if code != 0:
            output.seek(-min(output.seek(0, os.SEEK_END), _LAST_BYTES), os.SEEK_END)
            lines = output.read().decode("utf-8", "replace").strip().splitlines()
            said = f": {lines[-1]}" if lines else ""
            raise CommandFailed(f"{text}: exit code {code}{said}", EXIT_FAILED)


def _started(command: list[str], text: str, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """The command in a session of its own, so that its group has nothing else. text: for errors.
    Raises CommandFailed."""
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise CommandFailed(f"{text}: there is no {error.filename}", EXIT_FAILED) from error
    except OSError as error:
        raise CommandFailed(f"{text}: {error.strerror}", EXIT_FAILED) from error


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Within the block, the signals that end this process are Ctrl-C to it. One that is ignored, as
    nohup does it, stays so."""
    before = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            before[number] = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _HeldBack:
    """Holds the signals that end this process back until `deliver`. Otherwise one that came while
    the command is being started would leave the command running, with nobody who knows it."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._came = False

    def __enter__(self) -> _HeldBack:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if callable(signal.getsignal(number)):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def deliver(self) -> None:
        """From now on signals come at once. Raises KeyboardInterrupt if one came before."""
        self._restore()
        if self._came:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: object) -> None:
        self._came = True

    def _restore(self) -> None:
        while self._before:
            signal.signal(*self._before.popitem())


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM for all processes of the command, and SIGKILL for those that are left GRACE_S
    later."""
    deadline = time.monotonic() + GRACE_S
    try:
        _signal_group(process, signal.SIGTERM)
        # Reaped first: a zombie is a member of the group, too.
        while process.poll() is None or _signal_group(process, 0):
            if time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
    finally:
        _signal_group(process, signal.SIGKILL)
        # One of another user, such as sudo's, goes on.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)


def _signal_group(process: subprocess.Popen[bytes], number: int) -> bool:
    """Send a signal, or 0 for none; False if the group has no process that gets it."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _ask_launcher(data_dir: str, node: RollNode, timeout_s: float) -> None:
    from kvorum.launch.dev.control import (
        LauncherDidNotAnswer,
        NotReady,
        request_restart,
        wait_restarted,
    )

    try:
        (asked,) = request_restart(data_dir, [node.name], stop_running=True)
        deadline_ms = int((time.monotonic() + timeout_s) * 1000)
        wait_restarted(data_dir, asked.name, deadline_ms=deadline_ms, starts_before=asked.starts)
    except (NotReady, LauncherDidNotAnswer, ConfigError) as error:
        raise CommandFailed(str(error), EXIT_FAILED) from error
