"""`kvorum cluster`: checks before a restart, and the restart of all nodes, one after the other."""

from __future__ import annotations

from typing import Any

import click

from kvorum.cli.common import cluster_options, refused, show
from kvorum.cli.completion import node_ids
from kvorum.cli.health import log_directories, read_view, show_findings
from kvorum.cli.watch import watchable
from kvorum.client.failures import CommandFailed
from kvorum.metadata.inspect.health import (
    Finding,
    health_of,
    known_nodes,
    restart_hazards,
    stopped_by_any_restart,
)
from kvorum.metadata.inspect.roll import clock_of
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.text import whole_number

_COLUMNS = ["node", "role", "host", "result", "seconds"]


@click.group()
def cluster() -> None:
    """Check whether nodes may be restarted; restart them one after the other."""


@cluster.command()
@click.option(
    "--restart-safe",
    "node",
    metavar="NODE",
    shell_complete=node_ids,
    help="May this node (101, or broker-101) be restarted now?",
)
@watchable
@cluster_options
def check(node: str | None, **options: Any) -> None:
    """Check the health and the clock of the cluster, or if a node may be restarted.

    With --restart-safe only hazards of that restart count: a majority of the voters must stay level
    with the leader, no other broker may be down, and each partition must keep min.insync.replicas.
    Exit code 4 if not.
    """
    if node is None:
        view = read_view(options)
        directories = log_directories(view.brokers, options["timeout"])
        show_findings(options["output"], [*health_of(view), directories, clock_of(view)])
        return
    node_id = _node_id(node)
    view = read_view(options)
    known = known_nodes(view)
    if known is not None and node_id not in known:
        listed = ", ".join(map(str, known))
        raise CommandFailed(f"the cluster has no node {node}; it has {listed}")
    hazards = restart_hazards(view, node_id)
    finding = Finding(
        check=f"restart of {node}",
        is_healthy=not hazards,
        detail="; ".join(hazards) or stopped_by_any_restart(view, node_id) or "breaks nothing",
    )
    rest = [found for found in health_of(view) if not found.is_healthy]
    show_findings(options["output"], [finding, *rest], counted=[finding])


def _node_id(text: str) -> int:
    node_id = whole_number(text.rpartition("-")[2])
    if node_id is None:
        raise click.UsageError(f"{text!r} is no node: give an id, or a name like broker-101")
    return node_id


@cluster.command()
@click.argument("nodes", metavar="[NODE]...", nargs=-1, shell_complete=node_ids)
@click.option(
    "--restart-command",
    "template",
    metavar="TEMPLATE",
    help="Restarts a node; {node}, {id}, {role}, {host} and {short_host} are replaced.",
)
@click.option(
    "--data-dir",
    type=click.Path(readable=False),
    help="Of a cluster of kvorum dev: its launcher restarts the nodes.",
)
@click.option(
    "--node-timeout",
    "timeout_s",
    type=click.FloatRange(min=1),
    default=120.0,
    show_default=True,
    help="Seconds that a node and the cluster have to be well again.",
)
@click.option(
    "--settle",
    "settle_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Wait so long after a broker, for clients to connect to it again; by default 3 times as "
    "long as it was away, and 10 s at most.",
)
@click.option("--dry-run", is_flag=True, help="Print the order, and restart nothing.")
@cluster_options
def roll(
    nodes: tuple[str, ...],
    template: str | None,
    data_dir: str | None,
    timeout_s: float,
    settle_s: float | None,
    dry_run: bool,
    **options: Any,
) -> None:
    """Restart all nodes, or these, one after the other.

    Controllers come first, the leader last among them; then brokers. The next node follows once the
    restarted one has registered again and the cluster is healthy. A roll that stalls stops there
    with exit code 4 and can be run again. The command runs without a shell, for example:

    \b
    ssh {host} systemctl restart kvorum-{role}@{id}
    kubectl delete pod {short_host}
    docker compose restart {node}
    """
    from kvorum.cli.profiles import is_bootstrap_given
    from kvorum.cli.restarting import restarter
    from kvorum.cli.roll import Roll
    from kvorum.launch.cluster.cluster_file import cluster_in

    try:
        restart = restarter(template, data_dir, is_needed=not dry_run)
        asked = {_node_id(text) for text in nodes}
        cluster_id = None
        if data_dir is not None:
            own = cluster_in(data_dir)
            cluster_id = own.cluster_id
            # A profile or the environment may name another cluster.
            if not is_bootstrap_given(click.get_current_context()):
                options |= {"bootstrap_server": own.bootstrap, "bootstrap_controller": None}
        rolling = Roll(
            options,
            restart,
            asked=asked,
            timeout_s=timeout_s,
            settle_s=settle_s,
            cluster_id=cluster_id,
        )
        if dry_run:
            show(options["output"], rolling.planned(), _COLUMNS[:3])
            return
        failure = rolling.run()
    except ConfigError as error:
        raise refused(error) from error
    show(options["output"], rolling.rows, _COLUMNS)
    if failure is not None:
        raise failure
