"""`kvorum init`: the configuration files of a cluster's nodes, and their directories."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kvorum.cli.common import output_option, refused, show
from kvorum.client.failures import CommandFailed, warn

if TYPE_CHECKING:
    from kvorum.launch.cluster.init import NewCluster, NewNode
    from kvorum.metadata.image.records import ScramCredential


@click.command()
@click.argument("folder", type=click.Path(file_okay=False))
@click.option(
    "--controllers",
    type=int,
    default=3,
    show_default=True,
    help="Number of controllers; all are voters.",
)
@click.option("--brokers", type=int, default=3, show_default=True, help="Number of brokers.")
@click.option("--host", default=None, help="Host on which all nodes listen.  [default: 127.0.0.1]")
@click.option(
    "--controller",
    "controller_places",
    multiple=True,
    metavar="ID@HOST[:PORT]",
    help="A controller on its own host, in place of --controllers and --host. Repeatable.",
)
@click.option(
    "--broker",
    "broker_places",
    multiple=True,
    metavar="ID@HOST[:PORT]",
    help="A broker on its own host, in place of --brokers and --host. Repeatable.",
)
@click.option(
    "--rack", "racks", multiple=True, help="broker.rack; give it once for each broker, in order."
)
@click.option("--port", type=int, default=None, help="Port of the first broker.  [default: 9092]")
@click.option(
    "--controller-port",
    type=int,
    default=None,
    help="Port of the first controller.  [default: --port + 100]",
)
@click.option(
    "--bind",
    metavar="ADDRESS",
    help="Where every node listens, such as 0.0.0.0; clients get its host.  [default: its host]",
)
@click.option(
    "--preset",
    type=click.Choice(["relaxed"]),
    help="kvorum.preset: relaxed has time-outs of seconds, for throttled machines.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="metrics.listener of every node, for Prometheus and /readyz: this port of its host, and "
    "the next ones for further nodes of the host.",
)
@click.option("--static", "is_static", is_flag=True, help="A voter set that never changes.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A property for every node."
)
@click.option(
    "--secure",
    "is_secure",
    is_flag=True,
    help="With TLS among nodes, SASL_SSL for clients, and ACLs; certificates and the first user's "
    "properties are in FOLDER/secrets.",
)
@click.option(
    "--add-scram",
    "add_scram",
    multiple=True,
    metavar="MECHANISM=[name=USER,...]",
    help="The credential of a first user: SCRAM-SHA-512=[name=alice,password-file=FILE], with "
    "iterations, salt and saltedpassword as in Kafka. Without a password it is asked for. "
    "Repeatable.",
)
@click.option(
    "--add",
    type=click.Choice(["controller", "broker"]),
    multiple=True,
    help="Add a node to the cluster whose files are in FOLDER.",
)
@click.option(
    "--again",
    type=int,
    metavar="ID",
    default=None,
    help="Prepare a new directory for controller ID, which lost its disk.",
)
@output_option
@click.pass_context
def init(context: click.Context, /, folder: str, **options: Any) -> None:
    """Write a TOML file for each node into FOLDER and prepare the controllers' directories.

    Start each node with kvorum controller|broker --config FILE. For several hosts, name each node
    with --controller and --broker, then copy what each node needs to the same path on its host: its
    file, a controller's directory, and with --secure its own certificate and the CA's. A new
    cluster's -o wide lists these files; with --secure they are always printed. A controller that
    was added with --add follows the quorum until kvorum quorum add-voter makes it a voter. Kafka's
    tools with --bootstrap-controller need a second listener in each controller's file
    (docs/security.md, Kafka's tools at controllers).
    """
    from kvorum.runtime.errors import ConfigError, CorruptData
    from kvorum.runtime.private_files import private_files

    try:
        with private_files():
            nodes = _made(context, folder, options)
    except (ConfigError, CorruptData) as error:
        raise refused(error) from error
    except OSError as error:
        raise CommandFailed(f"cannot write {error.filename or folder}: {error.strerror}") from error
    rows = [
        {
            "node": n.name,
            "listener": n.place.address,
            "config": n.file,
            "data": n.directory,
            "needs": n.needs,
        }
        for n in nodes
    ]
    show(options["output"], rows, ["node", "listener", "config", "data"])
    if any(node.secrets for node in nodes):
        _tell_needs(folder, nodes, options["output"])
    for node in nodes:
        for text in node.warnings:
            warn(text)


def _tell_needs(folder: str, nodes: list[NewNode], output: str) -> None:
    """Say what to copy to each host of a secure cluster. The structured outputs have that already,
    and the wide table."""
    if output == "table":
        click.echo(f"\nCopy these files of {os.path.abspath(folder)} to the host of each node:\n")
        for node in nodes:
            paths = " ".join(os.path.relpath(path, folder) for path in node.needs)
            click.echo(f"{node.name} on {node.place.host} needs {paths}")
        click.echo()
    warn(
        "copy to each host what its node needs and no more; the other secrets stay here, ca.key "
        "above all"
    )


def _made(context: click.Context, folder: str, options: dict[str, Any]) -> list[NewNode]:
    """Write the files. Raises ConfigError, CorruptData, OSError."""
    import random

    from kvorum.launch.cluster.init import add_node, init_cluster, prepare_again
    from kvorum.launch.config.secret_properties import refuse_on_command_line
    from kvorum.runtime.errors import ConfigError

    rng = random.SystemRandom()
    refuse_on_command_line(
        (text.partition("=")[0].strip() for text in options["settings"]),
        "leave it out and write it into each node's file",
    )
    if options["preset"]:
        options["settings"] = (*options["settings"], f"kvorum.preset={options['preset']}")
    add, again, host, port = (options[name] for name in ("add", "again", "host", "port"))
    if host == "":
        raise ConfigError("--host must not be empty")
    if port == 0:
        raise ConfigError("--port=0: others must find the nodes; give ports from 1 to 65535")
    if len(add) > 1:
        raise ConfigError("--add makes one node: give it once, and call kvorum init for each node")
    if again is not None and add:
        raise ConfigError("give --add or --again, not both")
    if again is not None:
        _refuse_what_is_settled(context, ())
        return [prepare_again(folder, node_id=again)]
    if not add:
        return init_cluster(folder, _wanted(context, options), rng)
    _refuse_what_is_settled(context, ("host", "port", "racks"))
    if len(options["racks"]) > 1:
        raise ConfigError("--add makes one node: give --rack once")
    rack = next(iter(options["racks"]), None)
    return [add_node(folder, role=add[0], host=host, port=port, rack=rack, rng=rng)]


def _wanted(context: click.Context, options: dict[str, Any]) -> NewCluster:
    from kvorum.launch.cluster.init import NewCluster
    from kvorum.launch.cluster.places import counted, parse_bind, parse_place
    from kvorum.runtime.config import parse_assignment
    from kvorum.runtime.errors import ConfigError

    host = options["host"] or "127.0.0.1"
    by_role = {role: options[f"{role}_places"] for role in ("controller", "broker")}
    if any(by_role.values()):
        for name in ("controllers", "brokers", "host"):
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise ConfigError(f"--{name} does not go with --controller and --broker")
        controllers, brokers = (
            [parse_place(role, text) for text in texts] for role, texts in by_role.items()
        )
    else:
        controllers = counted("controller", options["controllers"], host, least=1)
        brokers = counted("broker", options["brokers"], host, least=0)
    return NewCluster(
        controllers=controllers,
        brokers=brokers,
        port=options["port"] or 9092,
        controller_port=options["controller_port"],
        is_static=options["is_static"],
        racks=options["racks"],
        bind=None if options["bind"] is None else parse_bind("--bind", options["bind"]),
        settings=dict(parse_assignment(text) for text in options["settings"]),
        credentials=_credentials(options["add_scram"]),
        is_secure=options["is_secure"],
        metrics_port=options["metrics_port"],
    )


def _credentials(texts: tuple[str, ...]) -> tuple[ScramCredential, ...]:
    import random

    from kvorum.launch.cluster.add_scram import has_password, parse_add_scram

    if not texts:
        return ()
    found = parse_add_scram(texts, ask=_asked, rng=random.SystemRandom())
    if any(map(has_password, texts)):
        warn(
            "--add-scram with a password: other users of this machine can read command lines, and "
            "shells keep them; password-file=FILE avoids it"
        )
    return found


def _asked(user: str) -> str:
    from kvorum.runtime.errors import ConfigError

    if not sys.stdin.isatty():
        raise ConfigError(f"--add-scram for {user} has no password: give password-file=FILE")
    password: str = click.prompt(
        f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True
    )
    return password


def _refuse_what_is_settled(context: click.Context, free: tuple[str, ...]) -> None:
    """Refuse options that can only be given for a new cluster. free: names of the options that are
    allowed."""
    from kvorum.runtime.errors import ConfigError

    kept = ("folder", "add", "again", "output", *free)
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if given and parameter.name not in kept:
            raise ConfigError(
                f"{parameter.opts[0]} is for a new cluster; the one in {context.params['folder']} "
                "is made already"
            )
