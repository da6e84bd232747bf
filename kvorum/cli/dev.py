"""`kvorum dev`: a whole cluster on this machine, in the foreground until it is told to stop."""

from __future__ import annotations

import sys
import time

import click

from kvorum.cli.common import EXIT_FAILED, EXIT_UNREACHABLE, EXIT_USAGE, CommandFailed

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
    from runtime.errors import ConfigError

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
    except ConfigError as error:
        raise CommandFailed(str(error), EXIT_USAGE) from error
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
@click.argument("node")
@click.option(
    "--data-dir",
    type=click.Path(readable=False),
    default=None,
    help=f"Where the cluster keeps its data.  [default: {DEFAULT_DATA_DIR}]",
)
@click.pass_context
def restart(ctx: click.Context, node: str, data_dir: str | None) -> None:
    """Start a dead NODE (a name like broker-101, or its id) again, on its data."""
    from launch.control import LauncherDidNotAnswer, request_restart
    from runtime.errors import ConfigError, required

    if data_dir is None:
        # `kvorum dev --data-dir X restart NODE` means the same.
        data_dir = required(ctx.parent, "a command of a group").params["data_dir"]
    try:
        entry = request_restart(data_dir, node)
    except ConfigError as error:
        raise CommandFailed(str(error), EXIT_USAGE) from error
    except LauncherDidNotAnswer as error:
        raise CommandFailed(str(error), EXIT_UNREACHABLE) from error
    _say(f"{entry['name']} restarted, pid {entry['pid']}")


def _say(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()
