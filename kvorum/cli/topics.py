"""`kvorum topics`: create, list, describe, delete; trim has a module of its own."""

from __future__ import annotations

from typing import Any

import click

from kvorum.cli.common import (
    INT16_MAX,
    INT32_MAX,
    cluster_options,
    fail_on_errors,
    is_structured,
    show,
    show_outcomes,
)
from kvorum.cli.completion import topic_names
from kvorum.cli.rights import on_topic
from kvorum.cli.trim import trim
from kvorum.cli.watch import watchable


@click.group()
def topics() -> None:
    """Create, list, describe, trim, delete topics."""


topics.add_command(trim)


@topics.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1, INT32_MAX), help="Number of partitions.")
@click.option(
    "--replication-factor", type=click.IntRange(1, INT16_MAX), help="Replicas of each partition."
)
@click.option(
    "--replica-assignment",
    metavar="1:2:3,2:3:1",
    help="The replicas of each partition, preferred leader first, in place of the counts.",
)
@click.option(
    "--config", "configs", multiple=True, metavar="KEY=VALUE", help="A topic config. Repeatable."
)
@click.option("--validate-only", is_flag=True, help="Check the request; change nothing.")
@cluster_options
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    validate_only: bool,
    **options: Any,
) -> None:
    """Create topic NAME; without counts the cluster's defaults apply."""
    from kvorum.runtime.config import parse_assignment
    from kvorum.runtime.errors import ConfigError

    try:
        pairs = dict(parse_assignment(text) for text in configs)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    assignment = _assignment(replica_assignment)
    if assignment and (partitions or replication_factor):
        raise click.UsageError("--replica-assignment says both counts: give it or them")
    made = _backend(options).create_topic(
        name,
        partitions or -1,
        replication_factor or -1,
        pairs,
        assignment=assignment,
        validate_only=validate_only,
    )
    show(options["output"], {**made, "validate_only": True} if validate_only else made)


@topics.command("list")
@watchable
@cluster_options
def list_topics(**options: Any) -> None:
    """Names, ids and sizes of all topics."""
    rows = [
        {
            "topic": row["topic"],
            "topic_id": row["topic_id"],
            "partitions": len(row["partitions"]),
            "replication_factor": len(row["partitions"][0]["replicas"]),
        }
        for row in _backend(options).topics(None)
    ]
    columns = ["topic", "topic_id", "partitions", "replication_factor"]
    show(options["output"], rows, columns)


@topics.command()
@watchable
@click.argument("names", nargs=-1, shell_complete=topic_names)
@cluster_options
def describe(names: tuple[str, ...], **options: Any) -> None:
    """Partitions of topics NAMES (all if none is given)."""
    found = _backend(options).describe_topics(list(names) or None)
    if is_structured(options["output"]):
        show(options["output"], found)
        return
    rows = [
        {"topic": topic["topic"], **partition}
        for topic in found
        for partition in topic["partitions"]
    ]
    columns = ["topic", "partition", "leader", "leader_epoch", "replicas", "isr", "elr"]
    show(options["output"], rows, columns)


@topics.command()
@click.argument("names", nargs=-1, required=True, shell_complete=topic_names)
@cluster_options
def delete(names: tuple[str, ...], **options: Any) -> None:
    """Delete topics NAMES."""
    if "" in names:
        raise click.UsageError("a topic's name is empty")
    rows = _backend(options).delete_topics(list(names))
    show_outcomes(options["output"], rows, ["topic", "result", "message"], done="deleted")
    fail_on_errors(
        rows,
        "not deleted",
        lambda row: str(row["topic"]),
        lambda row: on_topic("DELETE", row["topic"]),
    )


def _backend(options: dict[str, Any]) -> Any:
    from kvorum.cli.backends import open_backend

    return open_backend(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )


def _assignment(text: str | None) -> list[list[int]]:
    """`1:2,2:1` as kafka-topics writes it: a list of replicas for each partition."""
    if text is None:
        return []
    try:
        return [[int(broker) for broker in replicas.split(":")] for replicas in text.split(",")]
    except ValueError as error:
        raise click.UsageError(
            f"--replica-assignment={text!r} must name broker ids, colons between the replicas of a "
            "partition and commas between partitions, like 101:102,102:103"
        ) from error
