"""`kvorum quorum`: status and replication, in kafka-metadata-quorum's format; the timeline of
elections, in Kvorum's own."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import click

from kvorum.cli.common import INT32_MAX, cluster_options, is_structured, show
from kvorum.cli.completion import controller_ids
from kvorum.cli.recover import recover
from kvorum.cli.voters import add_voter, remove_voter
from kvorum.cli.watch import watchable
from kvorum.runtime.ids import UUID_ZERO, uuid_text
from kvorum.runtime.text import address_text


@click.group()
def quorum() -> None:
    """Status, replication and elections of the metadata quorum."""


for command in (add_voter, remove_voter, recover):
    quorum.add_command(command)


@quorum.command()
@watchable
@cluster_options
def status(**options: Any) -> None:
    """Show the leader, its epoch, and the lag of the other nodes."""
    described = _describe(options)
    leader = _leader_of(described)
    followers = [v for v in described["voters"] if v is not leader]
    lags = [leader["log_end_offset"] - max(v["log_end_offset"], 0) for v in followers]
    behind = [
        leader["last_caught_up_timestamp"] - v["last_caught_up_timestamp"]
        for v in followers
        if v["last_caught_up_timestamp"] >= 0
    ]
    row = {
        "cluster_id": described["cluster_id"],
        "leader_id": described["leader_id"],
        "leader_epoch": described["leader_epoch"],
        "high_watermark": described["high_watermark"],
        "max_follower_lag": max(lags, default=0),
        "max_follower_lag_time_ms": max((max(b, 0) for b in behind), default=0)
        if len(behind) == len(followers)
        else -1,
        "current_voters": [v["node_id"] for v in described["voters"]],
        "current_observers": [o["node_id"] for o in described["observers"]],
    }
    if is_structured(options["output"]):
        for kind in ("voters", "observers"):
            row[kind] = [_identity(replica, described) for replica in described[kind]]
        show(options["output"], row)
        return
    shown = {
        **row,
        "current_voters": [_in_words(v, described) for v in described["voters"]],
        "current_observers": [_in_words(o, described) for o in described["observers"]],
    }
    for key, value in shown.items():
        name = "".join(word.capitalize() for word in key.split("_"))
        text = json.dumps(value) if isinstance(value, list) else value
        click.echo(f"{name + ':':<24}{text}")


@quorum.command()
@click.argument("controller_id", type=click.IntRange(0, INT32_MAX))
@cluster_options
def unregister(controller_id: int, **options: Any) -> None:
    """Remove the registration of a controller that is gone for good. Refused for a voter; a
    controller that still runs registers again."""
    from kvorum.cli.backends import open_backend

    backend = open_backend(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
    backend.unregister_controller(controller_id)
    show(options["output"], {"controller_id": controller_id, "unregistered": True})


def _in_words(replica: dict[str, Any], described: dict[str, Any]) -> dict[str, Any]:
    """A replica in kafka-metadata-quorum's format, with its directory id and listeners if they are
    known."""
    known = _identity(replica, described)
    shown: dict[str, Any] = {"id": known["node_id"]}
    if known["directory_id"] is not None:
        shown["directoryId"] = known["directory_id"]
    if known["endpoints"]:
        shown["endpoints"] = known["endpoints"]
    return shown


def _identity(replica: dict[str, Any], described: dict[str, Any]) -> dict[str, Any]:
    """node_id, directory_id (None for a static voter), endpoints (none known of brokers)."""
    node_id, directory_id = replica["node_id"], replica["directory_id"]
    # A broker whose node.id is a controller's by mistake is an observer without an endpoint.
    is_known = not any(v["node_id"] == node_id and v is not replica for v in described["voters"])
    return {
        "node_id": node_id,
        "directory_id": None if directory_id == uuid_text(UUID_ZERO) else directory_id,
        "endpoints": [
            f"CONTROLLER://{address_text(node['host'], node['port'])}"
            for node in described["nodes"]
            if node["node_id"] == node_id and is_known
        ],
    }


def _leader_of(described: dict[str, Any]) -> dict[str, Any]:
    """The replica that leads.

    Voters come first: an observer of the leader's id is another node, with that id by mistake. A
    leader that is being removed is itself an observer, the first one of its id.
    """
    replicas: list[dict[str, Any]] = [*described["voters"], *described["observers"]]
    return next(r for r in replicas if r["node_id"] == described["leader_id"])


@quorum.command()
@watchable
@cluster_options
def replication(**options: Any) -> None:
    """Every replica of the metadata log, and its lag."""
    described = _describe(options)
    end = max(v["log_end_offset"] for v in described["voters"])
    leader = _leader_of(described)
    rows = []
    for kind in ("voters", "observers"):
        for replica in described[kind]:
            rows.append(
                {
                    **replica,
                    "lag": end - max(replica["log_end_offset"], 0),
                    "status": "Leader"
                    if replica is leader
                    else {"voters": "Follower", "observers": "Observer"}[kind],
                }
            )
    if is_structured(options["output"]):
        show(options["output"], rows)
        return
    columns = {
        "NodeId": "node_id",
        "DirectoryId": "directory_id",
        "LogEndOffset": "log_end_offset",
        "Lag": "lag",
        "LastFetchTimestamp": "last_fetch_timestamp",
        "LastCaughtUpTimestamp": "last_caught_up_timestamp",
        "Status": "status",
    }
    for line in [list(columns), *([row[key] for key in columns.values()] for row in rows)]:
        click.echo("\t".join(f"{cell!s:<16}" for cell in line).rstrip())


@quorum.command()
@watchable
@click.option(
    "--node",
    "node_id",
    type=int,
    shell_complete=controller_ids,
    help="Lines of this controller only.",
)
@cluster_options
def timeline(node_id: int | None, **options: Any) -> None:
    """Show the elections that the controllers saw since they started: candidates, refusals,
    reasons."""
    from kvorum.cli.backends import open_controllers

    controllers = open_controllers(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
    rows = [
        {"time": _iso(at_ms), "timestamp_ms": at_ms, "node": node, "text": text}
        for at_ms, node, text in controllers.read_timelines(node_id)
    ]
    show(options["output"], rows, ["time", "node", "text"])


def _iso(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _describe(options: dict[str, Any]) -> dict[str, Any]:
    from kvorum.cli.backends import open_backend

    described = open_backend(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    ).quorum()
    for kind in ("voters", "observers"):
        described[kind].sort(key=lambda replica: replica["node_id"])
    return described
