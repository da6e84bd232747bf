"""`kvorum console`: the page of a cluster, a process of its own beside the nodes."""

from __future__ import annotations

import json
import secrets
import sys
from typing import TYPE_CHECKING, Any

import click

from kvorum.cli.common import bootstrap_of, cluster_options
from kvorum.client.current import current_security
from kvorum.client.failures import CommandFailed
from kvorum.client.security import NONE
from kvorum.console.core.guard import Rules, is_loopback
from kvorum.runtime.errors import ConfigError, KvorumError
from kvorum.runtime.text import address_problem, address_text, split_address

if TYPE_CHECKING:
    from kvorum.client.security import ClientSecurity
    from kvorum.console.app import Console
    from kvorum.console.desk import Desk
    from kvorum.console.lab import Lab
    from kvorum.console.sessions import Sessions

DEFAULT_PORT = 9900
TOKEN_BYTES = 24


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port of the page; 0: any free one.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. One that other machines reach needs the token that is printed.",
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A name, beside addresses and localhost, by which browsers may open the page. Repeatable.",
)
@click.option(
    "--runs",
    type=click.Path(exists=True, file_okay=False),
    help="Folder of chaos runs and duels, whose reports the page shows.",
)
@click.option(
    "--lab",
    type=click.Path(exists=True, file_okay=False),
    help="Data directory of `kvorum dev`: the cluster, and the states of its processes.",
)
@click.option(
    "--metrics",
    "pages",
    multiple=True,
    metavar="HOST:PORT",
    help="metrics.listener of a broker, https:// before it for TLS: for the records in flight of "
    "share groups. Repeatable; --lab knows those of its brokers.",
)
@click.option(
    "--allow-changes",
    is_flag=True,
    help="With --lab: buttons that kill, pause, resume and restart nodes, behind a token.",
)
@click.option(
    "--toxiproxy",
    metavar="HOST:PORT",
    help="API of the toxiproxy server behind the lab's links, for the buttons cut and heal.",
)
@click.option(
    "--sign-in",
    is_flag=True,
    help="Everybody signs in with a SASL user of the cluster, and sees what its ACLs allow.",
)
@click.option(
    "--keystore",
    type=click.Path(exists=True, dir_okay=False),
    help="PEM file with key and certificate of the page, which is then served over TLS.",
)
@cluster_options
def console(**options: Any) -> None:
    """Serve a page that shows the cluster: quorum, brokers, topics, messages, groups, configs,
    metadata at any offset, chaos runs.

    The page only reads. It commits no offsets and joins no group. With --lab and --allow-changes
    it has buttons for faults, on loopback only. Prints its address, with -o json as a line of
    JSON; Ctrl-C or SIGTERM ends it.
    """
    _check(options)
    servers, controllers = _bootstrap(options)
    lab = _lab(options)
    pages = _pages(options, lab)
    from kvorum.console.server import listen, page_tls, serve

    tls = page_tls(options["keystore"]) if options["keystore"] else None
    listener = listen(options["host"], options["port"])
    port = listener.getsockname()[1]
    # With credentials the console may read what others on this machine may not.
    has_credentials = current_security() is not NONE
    needs_token = not options["sign_in"] and (
        options["allow_changes"] or has_credentials or not is_loopback(options["host"])
    )
    rules = Rules(
        token=secrets.token_urlsafe(TOKEN_BYTES) if needs_token else "",
        # Cookies know no ports: two consoles of one machine must not share one.
        cookie=f"kvorum-console-{port}",
        hosts=frozenset(name.lower() for name in options["allowed_hosts"]),
        allows_changes=options["allow_changes"],
        signs_in=options["sign_in"],
        is_https=tls is not None,
    )

    def make() -> Console:
        from kvorum.console.app import Console

        return Console(_desk(options, servers, controllers, lab, pages), rules)

    query = f"/?token={rules.token}" if rules.token else "/"
    scheme = "http" if tls is None else "https"
    address = f"{scheme}://{address_text(_shown(options['host']), port)}{query}"
    if options["output"] == "json":
        click.echo(json.dumps({"address": address}))
    else:
        click.echo(f"console: {address}{_everywhere(options['host'])}")
    sys.stdout.flush()
    serve(make, listener, tls)


def _desk(
    options: dict[str, Any],
    servers: str | None,
    controllers: str | None,
    lab: Lab | None,
    pages: list[str],
) -> Desk | Sessions:
    """The desk of the command's user, or sessions of others."""
    from kvorum.console.broker_source import BrokerSource, FallbackSource, SessionSource, Source
    from kvorum.console.desk import Desk
    from kvorum.console.metrics_pages import MetricsPages
    from kvorum.console.runs import Runs
    from kvorum.console.sessions import Sessions
    from kvorum.console.source import ClusterSource, SharedSource

    timeout_s, security = options["timeout"], current_security()
    kind, addresses = bootstrap_of(servers, controllers)
    source: Source = ClusterSource(kind, addresses, timeout_s)
    runs = Runs(options["runs"]) if options["runs"] else None
    metrics = MetricsPages(pages, security, timeout_s) if pages else None
    if not options["sign_in"]:
        if kind == "broker" and security is not NONE:
            source = FallbackSource(source, BrokerSource(addresses, timeout_s))
        return Desk(source, timeout_s=timeout_s, lab=lab, runs=runs, metrics=metrics)
    shared = SharedSource(source, security)

    def of_user(user: ClientSecurity) -> Desk:
        own = SessionSource(shared, BrokerSource(addresses, timeout_s, user))
        return Desk(own, timeout_s=timeout_s, lab=None, runs=runs, metrics=metrics, security=user)

    return Sessions(addresses, security, timeout_s, of_user)


def _check(options: dict[str, Any]) -> None:
    """Raise click.UsageError for options that do not fit each other."""
    if options["allow_changes"] and not options["lab"]:
        raise click.UsageError("--allow-changes needs --lab: only a lab's nodes can be changed")
    if options["allow_changes"] and not is_loopback(options["host"]):
        raise click.UsageError(
            f"--allow-changes needs an address of this machine alone, not {options['host']}"
        )
    if options["sign_in"]:
        _check_sign_in(options)
    if options["toxiproxy"]:
        if not options["lab"]:
            raise click.UsageError("--toxiproxy needs --lab: it is for the links of a lab's nodes")
        if split_address(options["toxiproxy"]) is None:
            raise click.UsageError(f"--toxiproxy {address_problem(options['toxiproxy'])}")


def _check_sign_in(options: dict[str, Any]) -> None:
    if options["lab"]:
        raise click.UsageError("--sign-in and --lab do not go together: a lab has no users")
    if not current_security().mechanism:
        raise click.UsageError(
            "--sign-in needs --command-config: it says how users log in (security.protocol, "
            "sasl.mechanism, ssl.*), and the console itself follows the metadata as its user"
        )
    if options["bootstrap_controller"]:
        raise click.UsageError("--sign-in needs --bootstrap-server: users log in at brokers")
    if not options["keystore"] and not is_loopback(options["host"]):
        raise click.UsageError(
            f"--sign-in on {options['host']} needs --keystore: passwords would pass the network in "
            "clear"
        )


def _lab(options: dict[str, Any]) -> Lab | None:
    """The lab of --lab; None without that option. Raises CommandFailed if the lab cannot be used,
    or if its toxiproxy does not answer."""
    if not options["lab"]:
        return None
    from kvorum.console.lab import Lab
    from kvorum.console.proxied_links import ProxiedLinks

    links = None
    try:
        if options["toxiproxy"]:
            address = split_address(options["toxiproxy"])
            if address is not None:
                links = ProxiedLinks(*address)
                links.check()
        lab = Lab(options["lab"], links)
        lab.cluster()
    except KvorumError as error:
        raise CommandFailed(str(error)) from error
    return lab


def _pages(options: dict[str, Any], lab: Lab | None) -> list[str]:
    """The URLs of brokers' pages of metrics. Raises click.UsageError."""
    from kvorum.console.metrics_pages import page_url

    try:
        found = [page_url(text) for text in options["pages"]]
    except ConfigError as error:
        raise click.UsageError(f"--metrics {error}") from error
    if lab is not None and not found:
        nodes = lab.cluster().nodes
        found = [page_url(n.metrics) for n in nodes if n.metrics and "broker" in n.roles]
    return found


def _bootstrap(options: dict[str, Any]) -> tuple[str | None, str | None]:
    """(bootstrap servers, controllers); those of the lab's cluster file if no option names any."""
    servers, controllers = options["bootstrap_server"], options["bootstrap_controller"]
    if options["lab"] and not servers and not controllers:
        from kvorum.launch.cluster.cluster_file import read_cluster_file

        try:
            cluster = read_cluster_file(options["lab"])
        except ConfigError as error:
            raise CommandFailed(str(error)) from error
        if cluster is not None:
            nodes = [n.listener for n in cluster.nodes if "controller" in n.roles]
            controllers = ",".join(nodes) or None
    # Refused here, and not at the first look.
    bootstrap_of(servers, controllers)
    return servers, controllers


def _everywhere(host: str) -> str:
    return " (and every other address of this machine)" if host in ("0.0.0.0", "::") else ""


def _shown(host: str) -> str:
    """The address for a browser of this machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
