"""`kvorum dev status`, `stop` and `logs`: a cluster of this machine, by its data directory."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from kvorum.cli.common import is_structured, output_option, refused, show
from kvorum.cli.completion import lab_nodes
from kvorum.cli.data_dir import chosen_data_dir, data_dir_option
from kvorum.cli.dev_background import launcher_log
from kvorum.cli.watch import watchable
from kvorum.client.failures import EXIT_FAILED, EXIT_NO_QUORUM, EXIT_UNREACHABLE, CommandFailed

if TYPE_CHECKING:
    from kvorum.launch.cluster.cluster_file import ClusterFile

STOP_TIMEOUT_S = 60.0
_POLL_S = 0.1
LAUNCHER = "launcher"


def _cluster(data_dir: str) -> ClusterFile:
    from kvorum.launch.cluster.cluster_file import cluster_in
    from kvorum.runtime.errors import ConfigError

    try:
        return cluster_in(data_dir)
    except ConfigError as error:
        raise refused(error) from error


def _is_running(data_dir: str) -> bool:
    """True if a launcher runs: the lock shows it, since a pid may be another process's by now."""
    from kvorum.launch.directories.identity import is_locked

    return is_locked(data_dir)


@click.command()
@data_dir_option
@watchable
@output_option
def status(output: str, **_: Any) -> None:
    """Show the nodes of the cluster, as its launcher sees them.

    Exit code 3 if no launcher runs, 4 if a node is not ready.
    """
    folder = chosen_data_dir(click.get_current_context())
    cluster = _cluster(folder)
    is_running = _is_running(folder)
    rows = [asdict(node) for node in cluster.nodes]
    for row in rows:
        row["roles"] = list(row["roles"])
        if not is_running:
            row["state"], row["pid"], row["is_ready"] = "stopped", None, False
    if is_structured(output):
        show(
            output,
            {
                "cluster_id": cluster.cluster_id,
                "bootstrap": cluster.bootstrap,
                "launcher_pid": cluster.launcher_pid if is_running else None,
                "nodes": rows,
            },
        )
    else:
        show(output, rows, ["name", "state", "is_ready", "pid", "listener", "starts", "reason"])
    if not is_running:
        raise CommandFailed(f"no launcher is running for {folder}", EXIT_UNREACHABLE)
    late = [str(row["name"]) for row in rows if not row["is_ready"]]
    if late:
        raise CommandFailed(f"not ready: {', '.join(late)}", EXIT_NO_QUORUM)


@click.command()
@data_dir_option
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=1),
    default=STOP_TIMEOUT_S,
    show_default=True,
    help="Seconds that the nodes have to end.",
)
def stop(timeout_s: float, **_: Any) -> None:
    """Stop all nodes in good order; returns when they have ended.

    A cluster that does not run is left as it is.
    """
    folder = chosen_data_dir(click.get_current_context())
    cluster = _cluster(folder)
    if cluster.launcher_pid is None or not _is_running(folder):
        click.echo(f"no cluster runs in {folder}")
        return
    os.kill(cluster.launcher_pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while _is_running(folder):
        if time.monotonic() > deadline:
            raise CommandFailed(
                f"the launcher, pid {cluster.launcher_pid}, still runs after {timeout_s:g} s; see "
                f"{launcher_log(folder)}",
                EXIT_FAILED,
            )
        time.sleep(_POLL_S)
    click.echo(f"stopped {len(cluster.nodes)} nodes; the data stay in {folder}")


@click.command()
@click.argument("nodes", metavar="[NODE]...", nargs=-1, shell_complete=lab_nodes)
@click.option("-f", "--follow", is_flag=True, help="Print further lines as they come.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Last lines of each file.",
)
@data_dir_option
def logs(nodes: tuple[str, ...], follow: bool, lines: int, **_: Any) -> None:
    """Print the log of nodes (a name or id; launcher; all by default)."""
    folder = chosen_data_dir(click.get_current_context())
    files = _log_files(folder, nodes)
    tails = [_Tail(path, f"{name}: " if len(files) > 1 else "") for name, path in files.items()]
    for tail in tails:
        tail.print_last(lines)
    while follow:
        sys.stdout.flush()
        time.sleep(_POLL_S)
        for tail in tails:
            tail.print_new()


def _log_files(data_dir: str, names: tuple[str, ...]) -> dict[str, str]:
    """Name and path of each log. Raises CommandFailed for a node that the cluster does not have."""
    from kvorum.runtime.errors import ConfigError

    cluster = _cluster(data_dir)
    own = launcher_log(data_dir)
    known = {node.name: node.log_file for node in cluster.nodes}
    if not names:
        return known | ({LAUNCHER: own} if os.path.exists(own) else {})
    files = {}
    for name in names:
        node = cluster.node(name)
        if node is None and name != LAUNCHER:
            listed = ", ".join([*known, LAUNCHER])
            raise refused(
                ConfigError(f"the cluster in {data_dir} has no node {name!r}; it has {listed}")
            )
        files[LAUNCHER if node is None else node.name] = own if node is None else node.log_file
    return files


class _Tail:
    """The end of one file, which may be replaced or begun anew meanwhile."""

    def __init__(self, path: str, prefix: str) -> None:
        self._path, self._prefix = path, prefix
        self._position = 0
        self._rest = b""

    def print_last(self, count: int) -> None:
        found = self._read()
        for line in found[len(found) - count :] if count else []:
            self._print(line)

    def print_new(self) -> None:
        for line in self._read():
            self._print(line)

    def _read(self) -> list[bytes]:
        """The whole lines since the last call."""
        try:
            with open(self._path, "rb") as file:
                if os.fstat(file.fileno()).st_size < self._position:
                    self._position, self._rest = 0, b""
                file.seek(self._position)
                data = self._rest + file.read()
                self._position = file.tell()
        except FileNotFoundError:
            return []
        *found, self._rest = data.split(b"\n")
        return found

    def _print(self, line: bytes) -> None:
        click.echo(f"{self._prefix}{line.decode('utf-8', 'replace')}")
