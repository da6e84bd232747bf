"""`kvorum certs`: certificates for a laptop or a lab."""

from __future__ import annotations

from typing import Any

import click

from kvorum.cli.common import output_option, refused, show
from kvorum.client.failures import CommandFailed, warn


@click.group()
def certs() -> None:
    """Certificates for TLS on a laptop or in a lab."""


@certs.command()
@click.argument("folder", type=click.Path(file_okay=False))
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NAME",
    help="A certificate for both ends of a connection: CN=NAME, localhost, each --host. "
    "Repeatable.",
)
@click.option(
    "--user",
    "users",
    multiple=True,
    metavar="NAME",
    help="A certificate for clients: CN=NAME. Repeatable.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME_OR_ADDRESS",
    help="A host in the certificate of every --node. Repeatable.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3_650),
    default=365,
    show_default=True,
    help="How long certificates of nodes and users are valid.",
)
@click.option("--force", is_flag=True, help="Make the named ones anew, under the same CA.")
@output_option
def dev(
    folder: str,
    nodes: tuple[str, ...],
    users: tuple[str, ...],
    hosts: tuple[str, ...],
    days: int,
    force: bool,
    output: str,
) -> None:
    """Make a CA in FOLDER, and a PEM file (key, certificate, the CA's) for each node and user.

    What is there is kept, so that a second call adds nodes and users under the same CA. Nodes and
    clients take NAME.pem as ssl.keystore.location and ca.pem as ssl.truststore.location.
    """
    import datetime
    import os

    from kvorum.launch.cluster.dev_certificate_files import CA_KEY_FILE, make_certificates
    from kvorum.launch.cluster.dev_certificate_files import CertificateRequest as Request
    from kvorum.runtime.errors import ConfigError

    request = Request(nodes=nodes, users=users, hosts=hosts, days=days, is_forced=force)
    try:
        made = make_certificates(folder, request, datetime.datetime.now(datetime.UTC))
    except ConfigError as error:
        raise refused(error) from error
    except OSError as error:
        raise CommandFailed(f"cannot write {error.filename or folder}: {error.strerror}") from error
    rows: list[dict[str, Any]] = [
        {
            "name": each.name,
            "kind": each.kind,
            "state": each.state,
            "ends": each.ends.isoformat(timespec="seconds"),
            "file": each.file,
        }
        for each in made
    ]
    show(output, rows)
    for each in made:
        if each.warning:
            warn(each.warning)
    warn(
        f"{os.path.join(folder, CA_KEY_FILE)} lies here in clear, and whoever reads it can pose as "
        "any node or user: this is for a laptop or a lab, not for production"
    )
