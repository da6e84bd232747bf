"""Which topics and partitions `kvorum topics list` and `describe` show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import click

from kvorum.client.failures import EXIT_NOT_AUTHORIZED, CommandFailed, Row, warn
from kvorum.metadata.image.image import is_under_replicated

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_WILDCARDS = frozenset("*?[")
"""No name of a topic has one of them."""
_INTERNAL = "__"


def filter_options(command: CommandT) -> CommandT:
    """The options that select topics by their state, by kafka-topics' names and shorter ones."""
    for option in (
        click.option(
            "--exclude-internal",
            is_flag=True,
            help=f"No topics whose names begin with {_INTERNAL}.",
        ),
        click.option(
            "--unavailable",
            "--unavailable-partitions",
            "is_unavailable",
            is_flag=True,
            help="Only partitions without a leader.",
        ),
        click.option(
            "--under-replicated",
            "--under-replicated-partitions",
            "is_under_replicated",
            is_flag=True,
            help="Only partitions with replicas out of sync; those that a reassignment adds do not "
            "count.",
        ),
    ):
        command = option(command)
    return command


def is_pattern(name: str) -> bool:
    """True if the name is a pattern of names, such as orders-*."""
    return not _WILDCARDS.isdisjoint(name)


def exact_names(names: Sequence[str]) -> list[str] | None:
    """The names to ask the cluster for; None for all topics, of which `selected` takes some."""
    return None if not names or any(map(is_pattern, names)) else list(names)


def selected(
    topics: Sequence[Row],
    names: Sequence[str],
    options: Mapping[str, Any],
    adding: Callable[[], Mapping[tuple[str, int], Sequence[int]]],
) -> list[Row]:
    """The topics that names and options select, each with its partitions that do. adding: asks for
    the replicas that reassignments are adding, by topic and partition."""
    found = [topic for topic in topics if _is_named(str(topic["topic"]), names)]
    if options["exclude_internal"]:
        found = [topic for topic in found if not topic["topic"].startswith(_INTERNAL)]
    tests: list[Callable[[str, Row], bool]] = []
    if options["is_unavailable"]:
        tests.append(lambda _, partition: bool(partition["leader"] < 0))
    if options["is_under_replicated"]:
        joining = adding()
        tests.append(
            lambda topic, partition: is_under_replicated(
                partition["replicas"],
                partition["isr"],
                joining.get((topic, partition["partition"]), ()),
            )
        )
    if not tests:
        return found
    kept = [
        {
            **topic,
            "partitions": [
                each
                for each in topic["partitions"]
                if any(is_wanted(topic["topic"], each) for is_wanted in tests)
            ],
        }
        for topic in found
    ]
    return [topic for topic in kept if topic["partitions"]]


def adding_replicas(backend: Any) -> dict[tuple[str, int], list[int]]:
    """The replicas that reassignments are adding; none, with a warning, for a user who may not
    describe the cluster."""
    from kvorum.cli.partition_backends import partitions_of, reassigning

    try:
        return reassigning(partitions_of(backend))
    except CommandFailed as error:
        if error.exit_code != EXIT_NOT_AUTHORIZED:
            raise
        warn(f"replicas that a reassignment adds count as out of sync: {error}")
        return {}


def _is_named(name: str, names: Sequence[str]) -> bool:
    return not names or any(
        fnmatchcase(name, each) if is_pattern(each) else name == each for each in names
    )
