"""`kvorum dev`: a whole cluster on this machine, in the foreground until it is told to stop."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kvorum.cli.common import plain_output_option, refused
from kvorum.cli.completion import lab_nodes
from kvorum.cli.data_dir import DEFAULT_DATA_DIR, chosen_data_dir, data_dir_option
from kvorum.cli.dev_commands import logs, status, stop
from kvorum.client.failures import EXIT_FAILED, EXIT_UNREACHABLE, CommandFailed, warn

if TYPE_CHECKING:
    from kvorum.launch.cluster.plan import ClusterPlan


@click.group(invoke_without_command=True)
@click.option(
    "--controllers",
    type=int,
    default=None,
    help="Controllers to start.  [default: 3, or as the cluster was made]",
)
@click.option(
    "--brokers",
    type=int,
    default=None,
    help="Brokers to start.  [default: 3, or as the cluster was made]",
)
@click.option(
    "--voters",
    type=int,
    default=None,
    help="Of a new cluster: so many controllers vote at first, in a set that can change; 0: all, "
    "for ever.  [default: 0, or as the cluster was made]",
)
@click.option(
    "--data-dir",
    type=click.Path(readable=False),
    default=DEFAULT_DATA_DIR,
    show_default=True,
    help="Folder of the cluster's data; created if missing.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9092,
    show_default=True,
    help="Port of the first broker; the others follow. 0: any free ports.",
)
@click.option(
    "--controller-port",
    type=click.IntRange(0, 65535),
    default=None,
    help="Port of the first controller, 0 for any free ones.  [default: --port + 100]",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=None,
    help="Port of the first node's page of metrics, for Prometheus and the console; the others "
    "follow. 0: any free ports.  [default: no pages]",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A property with Kafka's name, for every node that has it. Repeatable.",
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False),
    help="TOML file of such properties; --set goes before it. Passwords belong here.",
)
@click.option(
    "--racks",
    type=click.IntRange(min=0),
    default=0,
    help="Deal the brokers to so many racks: rack-1, rack-2, ...; 0: no racks.",
)
@click.option(
    "--secure",
    is_flag=True,
    help="With TLS among nodes, SASL_SSL for clients, and ACLs; prints where the client's "
    "properties are.",
)
@click.option(
    "--background",
    is_flag=True,
    help="Return once the cluster is usable; it runs on until kvorum dev stop.",
)
@click.option(
    "--links",
    type=click.Path(dir_okay=False, exists=True),
    help="JSON file of proxies' addresses, which replace the nodes' own.",
)
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False),
    help="File with the bootstrap address; it exists while the cluster is usable.",
)
@plain_output_option
@click.pass_context
def dev(ctx: click.Context, /, **options: Any) -> None:
    """Start controllers and brokers as processes of this machine.

    Prints a line for each node. Prints the bootstrap address as soon as an acks=all write to a
    topic with three replicas would succeed; with -o json that is one line of JSON on stdout, and
    the other lines go to stderr. Ctrl-C or SIGTERM stops all nodes with a controlled shutdown. A
    cluster that is started again on the same directory has its data.
    """
    if ctx.invoked_subcommand is not None:
        return
    if options["background"]:
        _start_in_background(options)
        return
    begun = time.monotonic()
    from kvorum.launch.dev.supervisor import StartupFailed, Supervisor
    from kvorum.launch.directories.identity import DirectoryLock
    from kvorum.runtime.errors import ConfigError, CorruptData
    from kvorum.runtime.private_files import private_files

    is_json = options["output"] == "json"
    say = partial(_say, err=is_json)
    failure: StartupFailed | None = None
    with ExitStack() as held:
        held.enter_context(private_files())
        try:
            plan = _plan(options, held)
            _forget(options["ready_file"])
            lock = DirectoryLock(plan.data_dir)
        except (ConfigError, CorruptData) as error:
            raise refused(error) from error
        held.callback(lock.release)
        supervisor = Supervisor(plan, print_line=say)
        try:
            supervisor.start()
            supervisor.wait_ready()
            if not supervisor.is_stopping:
                say(f"cluster {plan.cluster_id} ready in {time.monotonic() - begun:.2f} s")
                _tell_ready(plan, options["ready_file"], is_json=is_json)
                supervisor.run()
        except StartupFailed as error:
            failure = error
        except (ConfigError, CorruptData) as error:
            # Of the secrets and of the first metadata, which `start` makes.
            raise refused(error) from error
        finally:
            supervisor.stop()
            _forget(options["ready_file"])
    if failure is not None:
        raise CommandFailed(str(failure), EXIT_FAILED)
    say("stopped")


def _start_in_background(options: dict[str, Any]) -> None:
    """Start the launcher in the background. Options that the launcher would refuse are refused
    here, before a file is written."""
    from kvorum.cli.dev_background import start_in_background
    from kvorum.launch.directories.identity import is_locked
    from kvorum.runtime.errors import ConfigError, CorruptData
    from kvorum.runtime.private_files import private_files

    try:
        with ExitStack() as held:
            held.enter_context(private_files())
            plan = _plan(options, held)
            if is_locked(plan.data_dir):
                raise ConfigError(
                    f"{plan.data_dir} is in use by another process; stop it (kvorum dev stop) or "
                    "choose another directory"
                )
    except (ConfigError, CorruptData) as error:
        raise refused(error) from error
    with private_files():
        fields = start_in_background(options)
    if options["output"] == "json":
        _say(json.dumps(fields))
    else:
        _say(f"bootstrap: {fields['bootstrap']}")
        if "command_config" in fields:
            _say(_properties_line(fields["command_config"]))
        if "metrics" in fields:
            _say(f"metrics: {', '.join(fields['metrics'].values())}")


def _plan(options: dict[str, Any], held: ExitStack) -> ClusterPlan:
    """The validated plan of the cluster. held: receives the sockets that reserve its free ports.

    Raises ConfigError, CorruptData.
    """
    from kvorum.broker.config.dynamic_config import text_of
    from kvorum.launch.cluster.cluster_file import read_cluster_file
    from kvorum.launch.cluster.plan import NO_LINKS, node_count
    from kvorum.launch.cluster.this_machine import (
        check_nodes,
        check_ports,
        plan_cluster,
        read_links,
        reserve_ports,
    )
    from kvorum.launch.config.secret_properties import refuse_on_command_line
    from kvorum.runtime.config import load_properties, parse_assignment
    from kvorum.runtime.errors import ConfigError

    _check_ready_file(options["ready_file"])
    settings = dict(parse_assignment(text) for text in options["settings"])
    refuse_on_command_line(settings, "put it into a file and give kvorum dev --config FILE")
    if options["config"]:
        of_file = load_properties(options["config"])
        settings = {name: text_of(value) for name, value in of_file.items()} | settings
    is_new_folder = not os.path.exists(options["data_dir"])
    known = read_cluster_file(options["data_dir"])
    shape = {name: options[name] for name in ("port", "controller_port", "metrics_port")}
    for role in ("controller", "broker"):
        shape[f"{role}s"] = node_count(known, role, options[f"{role}s"])
    is_secure = options["secure"] or (known is not None and known.is_secure)
    guards = [held.enter_context(guard) for guard in reserve_ports(**shape, is_secure=is_secure)]
    plan = plan_cluster(
        **shape,
        voters=options["voters"],
        racks=options["racks"],
        is_secure=options["secure"],
        data_dir=options["data_dir"],
        settings=settings,
        links=read_links(options["links"]) if options["links"] else NO_LINKS,
        free_ports=[guard.getsockname()[1] for guard in guards],
    )
    try:
        check_ports(plan)
        check_nodes(plan)
    except ConfigError:
        if is_new_folder:
            with suppress(OSError):  # what refuses the ports is what must be read
                os.rmdir(plan.data_dir)
        raise
    return plan


def _check_ready_file(path: str | None) -> None:
    """Raise ConfigError if the file cannot be made: later a whole cluster would run by then."""
    from kvorum.runtime.errors import ConfigError

    if path is None:
        return
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise ConfigError(f"--ready-file {path}: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"--ready-file {path}: this user may not write to {folder}")


def _tell_ready(plan: ClusterPlan, ready_file: str | None, *, is_json: bool) -> None:
    from kvorum.launch.cluster.secure_plan import admin_file

    if is_json:
        fields: dict[str, Any] = {
            "cluster_id": plan.cluster_id,
            "bootstrap": plan.bootstrap,
            "bootstrap_controller": plan.bootstrap_controller,
            "data_dir": plan.data_dir,
        }
        if plan.is_secure:
            fields["command_config"] = admin_file(plan.data_dir)
        pages = {node.name: f"http://{node.metrics}/metrics" for node in plan.nodes if node.metrics}
        if pages:
            fields["metrics"] = pages
        _say(json.dumps(fields))
    else:
        _say(f"bootstrap: {plan.bootstrap}")
        if plan.is_secure:
            _say(_properties_line(admin_file(plan.data_dir)))
        else:
            _say("open to everybody on this machine; --secure has TLS, users and ACLs")
    if ready_file is not None:
        # Written as a whole and renamed, since other programs poll for it.
        temporary = f"{ready_file}.tmp"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(f"{plan.bootstrap}\n")
        os.replace(temporary, ready_file)


def _properties_line(path: str) -> str:
    return f"client properties: {path} (--command-config)"


def _forget(ready_file: str | None) -> None:
    """Remove the file of an earlier run, which would announce a cluster that does not run."""
    if ready_file is None:
        return
    with suppress(FileNotFoundError):
        os.unlink(ready_file)


@dev.command()
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True, shell_complete=lab_nodes)
@data_dir_option
@click.option(
    "--timeout-ms",
    type=click.IntRange(min=0),
    default=30_000,
    show_default=True,
    help="How long to wait until the nodes serve.",
)
@click.option(
    "--stop", "stop_running", is_flag=True, help="Stop a NODE that runs first, in good order."
)
@click.pass_context
def restart(
    ctx: click.Context,
    /,
    nodes: tuple[str, ...],
    timeout_ms: int,
    stop_running: bool,
    **_: Any,
) -> None:
    """Start each dead NODE (a name like broker-101, or its id) again, on its data.

    Returns once all are ready. The exit status is 1 if a node died again or was not ready in time;
    the command prints which node, and why.
    """
    from kvorum.launch.dev.control import (
        LauncherDidNotAnswer,
        NotReady,
        request_restart,
        wait_restarted,
    )
    from kvorum.runtime.errors import ConfigError

    data_dir = chosen_data_dir(ctx)
    deadline_ms = int(time.monotonic() * 1000) + timeout_ms
    failures: list[CommandFailed] = []
    try:
        for asked in request_restart(data_dir, nodes, stop_running=stop_running):
            try:
                entry = wait_restarted(
                    data_dir,
                    asked.name,
                    deadline_ms=deadline_ms,
                    starts_before=asked.starts,
                )
                _say(f"{entry.name} restarted, pid {entry.pid}")
            except NotReady as error:
                failures.append(CommandFailed(str(error), EXIT_FAILED))
            except LauncherDidNotAnswer as error:
                failures.append(CommandFailed(str(error), EXIT_UNREACHABLE))
    except ConfigError as error:
        raise refused(error) from error
    for failure in failures[:-1]:
        warn(str(failure))
    if failures:
        raise failures[-1]


for _command in (status, stop, logs):
    dev.add_command(_command)


def _say(line: str, *, err: bool = False) -> None:
    click.echo(line, err=err)
    sys.stdout.flush()
