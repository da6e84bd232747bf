"""`kvorum init`: the configuration files of a cluster's nodes, and their directories."""

from __future__ import annotations

import click
from click.core import ParameterSource

from kvorum.cli.common import CommandFailed, output_option, refused, show


@click.command()
@click.argument("folder", type=click.Path(file_okay=False))
@click.option("--controllers", type=int, default=3, show_default=True, help="First voters.")
@click.option("--brokers", type=int, default=3, show_default=True, help="Brokers.")
@click.option("--host", default=None, help="Where all listen.  [default: 127.0.0.1]")
@click.option("--port", type=int, default=None, help="Of the first broker.  [default: 9092]")
@click.option(
    "--controller-port",
    type=int,
    default=None,
    help="Of the first controller.  [default: --port + 100]",
)
@click.option("--static", "is_static", is_flag=True, help="A voter set that never changes.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="For every node.")
@click.option(
    "--add",
    type=click.Choice(["controller", "broker"]),
    default=None,
    help="One more node for the cluster whose files lie in FOLDER.",
)
@click.option(
    "--again",
    type=int,
    metavar="ID",
    default=None,
    help="Prepare the empty directory of controller ID, which lost its disk, once more.",
)
@output_option
@click.pass_context
def init(
    context: click.Context,
    folder: str,
    controllers: int,
    brokers: int,
    host: str | None,
    port: int | None,
    controller_port: int | None,
    is_static: bool,
    settings: tuple[str, ...],
    add: str | None,
    again: int | None,
    output: str,
) -> None:
    """Write one TOML file a node into FOLDER and prepare the controllers' directories.

    Start each node with kvorum controller|broker --config FILE. An added controller follows the
    quorum until kvorum quorum add-voter makes it a voter.
    """
    import random

    from launch.init import add_node, init_cluster, prepare_again
    from runtime.config import parse_assignment
    from runtime.errors import ConfigError, CorruptData

    try:
        if host == "":
            raise ConfigError("--host must not be empty")
        if port == 0:
            raise ConfigError("--port=0: others must find the nodes; give ports from 1 to 65535")
        if again is not None and add is not None:
            raise ConfigError("give --add or --again, not both")
        if again is not None or add is not None:
            _refuse_what_is_settled(context, ("host", "port") if again is None else ())
        if again is not None:
            nodes = [prepare_again(folder, node_id=again, rng=random.SystemRandom())]
        elif add is not None:
            nodes = [add_node(folder, role=add, host=host, port=port, rng=random.SystemRandom())]
        else:
            nodes = init_cluster(
                folder,
                controllers=controllers,
                brokers=brokers,
                host=host or "127.0.0.1",
                port=port or 9092,
                controller_port=controller_port,
                is_static=is_static,
                settings=dict(parse_assignment(text) for text in settings),
                rng=random.SystemRandom(),
            )
    except (ConfigError, CorruptData) as error:
        raise refused(error) from error
    except OSError as error:
        raise CommandFailed(f"cannot write {error.filename or folder}: {error.strerror}") from error
    rows = [
        {"node": n.name, "listener": f"{n.host}:{n.port}", "config": n.file, "data": n.directory}
        for n in nodes
    ]
    show(output, rows)


def _refuse_what_is_settled(context: click.Context, free: tuple[str, ...]) -> None:
    """Refuse options that only a new cluster can take. free: names of those that fit."""
    from runtime.errors import ConfigError

    kept = ("folder", "add", "again", "output", *free)
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if given and parameter.name not in kept:
            raise ConfigError(
                f"{parameter.opts[0]} is for a new cluster; the one in {context.params['folder']} "
                "is made already"
            )
