"""Finding, starting and stopping a toxiproxy server."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from kvorum.chaos.live.host.processes import (
    ProcessFailed,
    is_free,
    start_process,
    stop_process,
    wait_until,
)
from kvorum.chaos.live.host.toxiproxy import Toxiproxy, ToxiproxyError
from kvorum.runtime.errors import ConfigError

#: The environment variable that names an executable and replaces the search.
SERVER_VARIABLE = "KVORUM_TOXIPROXY_SERVER"
SERVER_NAME = "toxiproxy-server"

_START_TIMEOUT_MS = 10_000
_STOP_TIMEOUT_MS = 5_000


def find_server() -> str:
    """The executable: from the environment, from the checkout's .tools, or from PATH.

    Raises ConfigError, which explains how to install one.
    """
    named = os.environ.get(SERVER_VARIABLE)
    if named:
        if not os.access(named, os.X_OK):
            raise ConfigError(f"{SERVER_VARIABLE}={named} is no executable file")
        return named
    checkout = Path(__file__).resolve().parents[4]
    own = checkout / ".tools" / "bin" / SERVER_NAME
    if os.access(own, os.X_OK):
        return str(own)
    found = shutil.which(SERVER_NAME)
    if found is not None:
        return found
    raise ConfigError(
        f"no {SERVER_NAME}: {_way_to_get_one(checkout)}, or name it in {SERVER_VARIABLE}"
    )


def _way_to_get_one(checkout: Path) -> str:
    """How to install a server: a checkout's set-up builds one; an installed wheel has no set-up."""
    if (checkout / "deploy" / "setup.sh").exists():
        return "run make setup, put one on PATH"
    return "put one on PATH (github.com/Shopify/toxiproxy has releases)"


class ToxiproxyEnded(ProcessFailed):
    """The server of a run ended before the run."""


class ToxiproxyServer:
    """A toxiproxy server that this process starts and stops; use as a context manager."""

    def __init__(self, *, port: int, log_file: str, host: str = "127.0.0.1") -> None:
        self._host = host
        self._port = port
        self._log_file = log_file
        self._process: subprocess.Popen[bytes] | None = None
        self.version = ""
        self.api = Toxiproxy(host, port)

    def start(self) -> None:
        """Return when the server answers. Raises ProcessFailed with the end of its log otherwise,
        or if the port is in use: another server there would answer in its place."""
        if not is_free(self._host, self._port):
            raise ProcessFailed(
                f"toxiproxy cannot listen on {self._host}:{self._port}: the port is in use; start "
                "the run again, which takes another"
            )
        command = [find_server(), "-host", self._host, "-port", str(self._port)]
        process = self._process = start_process(command, log_file=self._log_file)

        def answers() -> bool:
            if process.poll() is not None:
                last = Path(self._log_file).read_text(errors="replace")[-500:]
                raise ProcessFailed(f"toxiproxy ended with {process.returncode}: {last}")
            try:
                self.version = self.api.version()
            except ToxiproxyError as error:
                if "too old" in str(error):
                    raise
                return False
            return True

        wait_until(answers, timeout_ms=_START_TIMEOUT_MS, what="toxiproxy answers")

    def check(self) -> None:
        """Raise ToxiproxyEnded if the server has ended: every link has gone down with it."""
        process = self._process
        if process is None or process.poll() is None:
            return
        raise ToxiproxyEnded(
            f"toxiproxy ended with {process.returncode} in the middle of the run, and every link "
            f"went down with it, which says nothing of the cluster; its log: {self._log_file}"
        )

    @contextlib.contextmanager
    def explaining(self) -> Iterator[None]:
        """Within this context, a ToxiproxyError becomes ToxiproxyEnded if the server has ended."""
        try:
            yield
        except ToxiproxyError as error:
            try:
                self.check()
            except ToxiproxyEnded as end:
                raise end from error
            raise

    def stop(self) -> None:
        if self._process is not None:
            stop_process(self._process, timeout_ms=_STOP_TIMEOUT_MS)
            self._process = None

    def __enter__(self) -> ToxiproxyServer:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
