"""`kvorum dev --background`: the launcher as a process that goes on after the command."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from kvorum.client.failures import EXIT_FAILED, CommandFailed
from kvorum.runtime.python_module import module_command

LAUNCHER_LOG = "launcher.log"
_POLL_S = 0.02
_NAMES = {
    "controllers": "--controllers",
    "brokers": "--brokers",
    "voters": "--voters",
    "racks": "--racks",
    "data_dir": "--data-dir",
    "port": "--port",
    "controller_port": "--controller-port",
    "metrics_port": "--metrics-port",
    "config": "--config",
    "links": "--links",
    "ready_file": "--ready-file",
}


def launcher_log(data_dir: str) -> str:
    """The file with what a launcher in the background prints."""
    from kvorum.launch.cluster.plan import LOGS_FOLDER

    return os.path.join(os.path.abspath(data_dir), LOGS_FOLDER, LAUNCHER_LOG)


def start_in_background(options: Mapping[str, Any]) -> dict[str, Any]:
    """Start the launcher and return its line of JSON, once the cluster is usable.

    Raises CommandFailed with the launcher's own last words if it ends before. Ctrl-C during the
    wait ends the launcher.
    """
    # Beside the data directory at first: a new one must be empty.
    part = f"{os.path.abspath(options['data_dir'])}.launcher"
    os.makedirs(os.path.dirname(part), exist_ok=True)
    with open(part, "wb") as log:
        process = subprocess.Popen(
            _command(options),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        found = _usable(process, part)
        os.replace(part, launcher_log(options["data_dir"]))
        return found
    except BaseException:
        if process.poll() is None:
            process.terminate()
            process.wait()
        os.unlink(part)
        raise
    finally:
        if process.returncode is None:
            # The launcher outlives this object on purpose, and Python would warn of that.
            process.returncode = 0


def _command(options: Mapping[str, Any]) -> list[str]:
    command = module_command("kvorum", "dev", "-o", "json")
    for key, name in _NAMES.items():
        if options[key] is not None:
            command += [name, str(options[key])]
    if options["secure"]:
        command.append("--secure")
    for setting in options["settings"]:
        command += ["--set", setting]
    return command


def _usable(process: subprocess.Popen[bytes], path: str) -> dict[str, Any]:
    while True:
        # Poll before reading the file: if the launcher has ended, its last line is then there.
        code = process.poll()
        with open(path, encoding="utf-8", errors="replace") as log:
            lines = log.read().splitlines(keepends=True)
        for line in lines:
            if line.startswith("{") and line.endswith("\n"):
                found: dict[str, Any] = json.loads(line)
                return found
        if code is not None:
            said = lines[-1].strip().removeprefix("kvorum: ") if lines else "nothing was said"
            raise CommandFailed(said, code if code > 0 else EXIT_FAILED)
        time.sleep(_POLL_S)
