"""`kvorum dev`: a whole cluster on this machine, in the foreground until it is told to stop."""

from __future__ import annotations

import sys
import time

import click

from kvorum.cli.common import EXIT_FAILED, EXIT_UNREACHABLE, CommandFailed, refused, warn

DEFAULT_DATA_DIR = "./kvorum-data"


@click.group(invoke_without_command=True)
@click.option("--controllers", type=int, default=3, show_default=True, help="Voters to start.")
@click.option("--brokers", type=int, default=3, show_default=True, help="Brokers to start.")
@click.option(
    "--data-dir",
    type=click.Path(readable=False),
    default=DEFAULT_DATA_DIR,
    show_default=True,
    help="Where the cluster keeps its data; made if missing.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=9092,
    show_default=True,
    help="Port of the first broker; the others follow.",
)
@click.option(
    "--controller-port",
    type=click.IntRange(1, 65535),
    default=None,
    help="Port of the first controller.  [default: --port + 100]",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A node property under Kafka's name, for every node that knows it. Repeatable.",
)
@click.option(
    "--links",
    type=click.Path(dir_okay=False, exists=True),
    help="JSON file of addresses to use in place of the plain ones (proxies).",
)
@click.pass_context
def dev(
    ctx: click.Context,
    controllers: int,
    brokers: int,
    data_dir: str,
    port: int,
    controller_port: int | None,
    settings: tuple[str, ...],
    links: str | None,
) -> None:
    """Start controllers and brokers as processes of this machine.

    Prints a line per node and, as soon as an acks=all write to a topic with three replicas would
    succeed, the bootstrap address. Ctrl-C or SIGTERM stops everything in good order. Started
    again on the same directory, the cluster comes back with its data.
    """
    if ctx.invoked_subcommand is not None:
        return
    begun = time.monotonic()
    from launch.identity import DirectoryLock
    from launch.plan import NO_LINKS, check_nodes, check_ports, plan_cluster, read_links
    from launch.supervisor import StartupFailed, Supervisor
    from runtime.config import parse_assignment
    from runtime.errors import ConfigError, CorruptData

    try:
        plan = plan_cluster(
            controllers=controllers,
            brokers=brokers,
            data_dir=data_dir,
            port=port,
            controller_port=controller_port,
            settings=dict(parse_assignment(text) for text in settings),
            links=read_links(links) if links else NO_LINKS,
        )
        check_ports(plan)
        check_nodes(plan)
        lock = DirectoryLock(plan.data_dir)
    except (ConfigError, CorruptData) as error:
        raise refused(error) from error
    supervisor = Supervisor(plan, say=_say)
    failure: StartupFailed | None = None
    try:
        supervisor.start()
        supervisor.wait_ready()
        if not supervisor.is_stopping:
            _say(f"cluster {plan.cluster_id} ready in {time.monotonic() - begun:.2f} s")
            _say(f"bootstrap: {plan.bootstrap}")
            supervisor.run()
    except StartupFailed as error:
        failure = error
    finally:
        supervisor.stop()
        lock.release()
    if failure is not None:
        raise CommandFailed(str(failure), EXIT_FAILED)
    _say("stopped")


@dev.command()
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True)
@click.option(
    "--data-dir",
    type=click.Path(readable=False),
    default=None,
    help=f"Where the cluster keeps its data.  [default: {DEFAULT_DATA_DIR}]",
)
@click.option(
    "--timeout-ms",
    type=click.IntRange(min=0),
    default=30_000,
    show_default=True,
    help="How long to wait until the nodes serve.",
)
@click.pass_context
def restart(
    ctx: click.Context, nodes: tuple[str, ...], data_dir: str | None, timeout_ms: int
) -> None:
    """Start each dead NODE (a name like broker-101, or its id) again, on its data.

    Returns once all are ready. The exit status is 1 if one died again or was not ready in time;
    which, and why, is said.
    """
    from launch.control import LauncherDidNotAnswer, NotReady, request_restart, wait_restarted
    from runtime.errors import ConfigError, required

    if data_dir is None:
        # `kvorum dev --data-dir X restart NODE` means the same.
        data_dir = required(ctx.parent, "a command of a group").params["data_dir"]
    deadline_ms = int(time.monotonic() * 1000) + timeout_ms
    failures: list[CommandFailed] = []
    try:
        for asked in request_restart(data_dir, nodes):
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


def _say(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()
