"""`kvorum topics`: create, list, describe, delete; trim has a module of its own."""

from __future__ import annotations

from typing import Any

import click

from kvorum.cli.common import (
    INT16_MAX,
    INT32_MAX,
    cluster_options,
    is_structured,
    show,
    show_outcomes,
)
from kvorum.cli.completion import topic_names
from kvorum.cli.topic_filters import (
    adding_replicas,
    exact_names,
    filter_options,
    is_pattern,
    selected,
)
from kvorum.cli.trim import trim
from kvorum.cli.watch import watchable
from kvorum.client.failures import CommandFailed, Row, fail_on_errors, no_topic, warn
from kvorum.client.rights import on_topic


@click.group()
def topics() -> None:
    """Create, list, describe, trim, delete topics."""


topics.add_command(trim)


@topics.command()
@click.argument("names", nargs=-1, required=True)
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
@click.option("--if-not-exists", is_flag=True, help="A topic that is there already is no error.")
@click.option("--validate-only", is_flag=True, help="Check the request; change nothing.")
@cluster_options
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    validate_only: bool,
    **options: Any,
) -> None:
    """Create topics NAMES, one after the other; without counts the cluster's defaults apply."""
    from kvorum.runtime.config import parse_assignment
    from kvorum.runtime.errors import ConfigError

    try:
        pairs = dict(parse_assignment(text) for text in configs)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    assignment = _assignment(replica_assignment)
    if assignment and (partitions or replication_factor):
        raise click.UsageError("--replica-assignment says both counts: give it or them")
    backend = _backend(options)
    rows: list[Row] = []
    try:
        for name in dict.fromkeys(names):
            try:
                made = backend.create_topic(
                    name,
                    partitions or -1,
                    replication_factor or -1,
                    pairs,
                    assignment=assignment,
                    validate_only=validate_only,
                )
            except CommandFailed as error:
                if not if_not_exists or error.error != "TOPIC_ALREADY_EXISTS":
                    raise
                warn(f"topic {name} is there already, and stays as it is")
                (there,) = backend.topics([name])
                made = _summary(there)
            rows.append({**made, "validate_only": True} if validate_only else made)
    finally:
        # Those that were made before one was refused are told, too.
        if rows:
            show(options["output"], rows[0] if len(names) == 1 else rows)


@topics.command("list")
@watchable
@click.argument("names", nargs=-1, shell_complete=topic_names)
@filter_options
@cluster_options
def list_topics(names: tuple[str, ...], **options: Any) -> None:
    """Names, ids and sizes of topics: all of them, or NAMES, which may be patterns like 'ord*'.

    A filter of partitions shows the topics that have such partitions.
    """
    backend = _backend(options)
    everything = backend.topics(None)
    found = selected(everything, names, options, lambda: adding_replicas(backend))
    wanted = {topic["topic"] for topic in found}
    # A filter of partitions leaves some of them out, and the sizes are those of whole topics.
    rows = [_summary(topic) for topic in everything if topic["topic"] in wanted]
    show(options["output"], rows, ["topic", "topic_id", "partitions", "replication_factor"])


@topics.command()
@watchable
@click.argument("names", nargs=-1, shell_complete=topic_names)
@filter_options
@cluster_options
def describe(names: tuple[str, ...], **options: Any) -> None:
    """Partitions of topics: of all, or of NAMES, which may be patterns like 'ord*'."""
    backend = _backend(options)
    found = backend.describe_topics(exact_names(names))
    there = {topic["topic"] for topic in found}
    for name in names:
        if not is_pattern(name) and name not in there:
            raise no_topic(name)
    found = selected(found, names, options, lambda: adding_replicas(backend))
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
@click.option("--if-exists", is_flag=True, help="A topic that is not there is no error.")
@cluster_options
def delete(names: tuple[str, ...], if_exists: bool, **options: Any) -> None:
    """Delete topics NAMES, which must be whole names."""
    if "" in names:
        raise click.UsageError("a topic's name is empty")
    rows = _backend(options).delete_topics(list(names))
    if if_exists:
        absent = {"error": "NONE", "message": "there was no such topic"}
        rows = [
            {**row, **absent} if row["error"] == "UNKNOWN_TOPIC_OR_PARTITION" else row
            for row in rows
        ]
    show_outcomes(options["output"], rows, ["topic", "result", "message"], done="deleted")
    fail_on_errors(
        rows,
        "not deleted",
        lambda row: str(row["topic"]),
        lambda row: on_topic("DELETE", row["topic"]),
    )


def _summary(topic: Row) -> Row:
    return {
        "topic": topic["topic"],
        "topic_id": topic["topic_id"],
        "partitions": len(topic["partitions"]),
        "replication_factor": len(topic["partitions"][0]["replicas"]),
    }


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
