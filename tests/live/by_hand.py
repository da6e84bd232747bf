"""A cluster made by `kvorum init` and run node by node, as an operator does it."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvorum.launch.config.node_file import load_node_file
from kvorum.runtime.config import dump_properties
from tests.live.cluster import Command, Ports, run_kvorum
from tests.polling import eventually


class HandMade:
    """Files in `folder`/conf and what runs of them. `close` leaves no process."""

    def __init__(
        self,
        folder: Path,
        *,
        controllers: int = 3,
        brokers: int = 1,
        is_static: bool = False,
        settings: Sequence[str] = (),
        more: Sequence[str] = (),
    ) -> None:
        """more: further arguments of kvorum init."""
        self.folder = folder
        self.conf = folder / "conf"
        self.ports = Ports()
        self.running: dict[str, Command] = {}
        arguments = ["--controllers", str(controllers), "--brokers", str(brokers)]
        arguments += ["--port", str(self.ports.broker)]
        arguments += ["--controller-port", str(self.ports.controller)]
        arguments += ["--static"] if is_static else []
        for setting in settings:
            arguments += ["--set", setting]
        arguments += more
        self.init(*arguments)
        self.bootstrap = f"127.0.0.1:{self.ports.broker}"

    def init(self, *arguments: str) -> None:
        done = run_kvorum("init", str(self.conf), *arguments)
        assert done.returncode == 0, done.stderr

    @property
    def bootstrap_controller(self) -> str:
        """The addresses of all running controllers, as --bootstrap-controller takes them."""
        names = [name for name in self.running if name.startswith("controller-")]
        return ",".join(self.address(name) for name in sorted(names))

    def address(self, name: str) -> str:
        return str(self.properties(name)["listeners"]).partition("://")[2]

    def data(self, name: str) -> Path:
        return Path(self.properties(name)["log.dirs"])

    def file(self, name: str) -> Path:
        return self.conf / f"{name}.toml"

    def properties(self, name: str) -> dict[str, Any]:
        return load_node_file(str(self.file(name)))

    def change(self, name: str, **changes: object) -> None:
        """Rewrite properties of a node (underscores for dots); None removes a property."""
        properties = self.properties(name)
        for key, value in changes.items():
            properties[key.replace("_", ".")] = value
        kept = {key: value for key, value in properties.items() if value is not None}
        self.file(name).write_text(dump_properties(kept))

    def start(self, *names: str) -> None:
        for name in names:
            role = name.partition("-")[0]
            errors = self.folder / f"{name}.err"
            self.running[name] = Command(role, "--config", str(self.file(name)), error_file=errors)

    def kill(self, *names: str) -> None:
        for name in names:
            self.running[name].send(signal.SIGKILL)
        for name in names:
            self.running.pop(name).wait()

    def stop(self, name: str) -> None:
        command = self.running.pop(name)
        command.send(signal.SIGTERM)
        assert command.wait() == 0, command.errors()

    def wipe(self, name: str) -> None:
        """Delete the node's data directory, as if its disk were lost."""
        shutil.rmtree(self.data(name))

    def refusal(self, name: str, *, code: int = 2) -> str:
        """The last line of a node that must refuse to start. code: the exit code, 1 if the cause is
        a disk.
        """
        done = run_kvorum(name.partition("-")[0], "--config", str(self.file(name)))
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr.splitlines()[-1]

    def quorum(self, *arguments: str) -> Any:
        """`kvorum quorum ...`: its JSON."""
        done = self.try_quorum(*arguments, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def try_quorum(self, *arguments: str) -> Any:
        return run_kvorum("quorum", *arguments, "--bootstrap-controller", self.bootstrap_controller)

    def replica(self, node_id: int) -> dict[str, Any] | None:
        """A replica as the leader sees it; None if it does not or nobody leads."""
        done = self.try_quorum("replication", "-o", "json")
        if done.returncode != 0:
            return None
        return next((r for r in json.loads(done.stdout) if r["node_id"] == node_id), None)

    def wait_caught_up(self, node_id: int, status: str) -> None:
        def is_so() -> bool:
            found = self.replica(node_id)
            return found is not None and found["status"] == status and found["lag"] == 0

        eventually(is_so, f"node {node_id} is a {status} with lag 0")

    def close(self) -> None:
        for command in self.running.values():
            command.send(signal.SIGCONT)
            command.close()
        self.ports.close()
