"""`kvorum groups reset-offsets` and `delete-offsets`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

import click

from kvorum.cli.common import INT64_MAX, broker_addresses, cluster_options, show, show_outcomes
from kvorum.cli.completion import group_names
from kvorum.client.failures import CommandFailed, fail_on_errors, warn
from kvorum.client.rights import Right, on_group, on_topic

if TYPE_CHECKING:
    from kvorum.cli.offset_plan import Scope
    from kvorum.client.cluster.brokers import Brokers, Partition
    from kvorum.client.cluster.offsets import Bounds, Position
    from kvorum.client.groups.group_offsets import GroupOffsets

_COLUMNS = ["group", "topic", "partition", "committed_offset", "new_offset"]
_WAYS = {
    "to_earliest": "--to-earliest", "to_latest": "--to-latest", "to_current": "--to-current",
    "to_offset": "--to-offset", "to_datetime": "--to-datetime", "by_duration": "--by-duration",
    "shift_by": "--shift-by", "from_file": "--from-file",
}  # fmt: skip
_TOPIC_HELP = "A topic, or some of its partitions. Repeatable."


@click.command("reset-offsets")
@click.argument("name", shell_complete=group_names)
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:0,2]", help=_TOPIC_HELP)
@click.option("--all-topics", is_flag=True, help="Every partition with a committed offset.")
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-current", is_flag=True, help="Keep the committed offsets; with --export.")
@click.option("--to-offset", type=click.IntRange(0, INT64_MAX), help="To this offset.")
@click.option("--to-datetime", metavar="TIME", help="To the first record from a time on.")
@click.option("--by-duration", metavar="DURATION", help="As --to-datetime, so long ago: 90m, P1D.")
@click.option(
    "--shift-by", type=click.IntRange(-INT64_MAX, INT64_MAX), help="Forward; backward if below 0."
)
@click.option(
    "--from-file", type=click.File("r", encoding="utf-8"), help="Lines of topic,partition,offset."
)
@click.option(
    "--share",
    "is_share",
    is_flag=True,
    help="NAME is a share group; it is made if there is no group of that name.",
)
@click.option("--execute", is_flag=True, help="Do it; else only show the new offsets.")
@click.option("--export", is_flag=True, help="Print what --from-file reads; change nothing.")
@cluster_options
def reset_offsets(
    name: str,
    topics: tuple[str, ...],
    all_topics: bool,
    is_share: bool,
    execute: bool,
    export: bool,
    **options: Any,
) -> None:
    """Set the committed offsets of group NAME, of any type.

    Those of a share group are where its share-partitions begin. A name without a group becomes one
    of consumers, or with --share a share group. Shows the plan, and carries it out
    with --execute. A group with members is refused. An offset outside of a partition becomes its
    nearest end. A time without a zone is in UTC.
    """
    way = _way(options)
    if execute and export:
        raise click.UsageError("give --execute or --export, not both")
    if way == "from_file":
        if topics or all_topics:
            raise click.UsageError("--from-file names the partitions itself")
    elif bool(topics) == all_topics:
        raise click.UsageError("give --topic or --all-topics")
    scopes = _scopes(topics)
    position = _position(way, options)
    brokers, group = _open(name, options, is_share=is_share)
    group.require_no_members()
    committed = group.committed()
    planned = _guarded(
        lambda: _plan(brokers, name, committed, scopes, way=way, position=position, given=options)
    )
    if export:
        from kvorum.cli.offset_plan import plan_text

        click.echo(plan_text(planned), nl=False)
        return
    rows: list[dict[str, Any]] = [
        {
            "group": name,
            "topic": topic,
            "partition": number,
            "committed_offset": committed.get((topic, number)),
            "new_offset": offset,
        }
        for (topic, number), offset in sorted(planned.items())
    ]
    if not execute:
        show(options["output"], rows, _COLUMNS)
        click.echo("nothing is changed yet: add --execute", err=True)
        return
    results = group.commit(planned)
    for row in rows:
        row["error"] = results[row["topic"], row["partition"]].name
    show_outcomes(options["output"], rows, [*_COLUMNS, "result"], done="reset")
    _fail_on_errors(rows, "not reset")


@click.command("delete-offsets")
@click.argument("name", shell_complete=group_names)
@click.option(
    "--topic", "topics", multiple=True, required=True, metavar="TOPIC[:0,2]", help=_TOPIC_HELP
)
@cluster_options
def delete_offsets(name: str, topics: tuple[str, ...], **options: Any) -> None:
    """Remove committed offsets of group NAME. Members must not be subscribed to the topic; a share
    group has no members then, and forgets whole topics."""
    scopes = _scopes(topics)
    _, group = _open(name, options)
    committed = group.committed()
    chosen = [
        (topic, number)
        for topic, number in sorted(committed)
        if any(s.topic == topic and (not s.numbers or number in s.numbers) for s in scopes)
    ]
    if not chosen:
        group.require_existing()
        raise CommandFailed(f"group {name} has no committed offset of {', '.join(topics)}")
    results = group.delete(chosen)
    rows: list[dict[str, Any]] = [
        {
            "group": name,
            "topic": topic,
            "partition": number,
            "committed_offset": committed[topic, number],
            "error": results[topic, number].name,
        }
        for topic, number in chosen
    ]
    columns = ["group", "topic", "partition", "committed_offset", "result"]
    show_outcomes(options["output"], rows, columns, done="deleted")
    _fail_on_errors(rows, "not deleted")


def _fail_on_errors(rows: list[dict[str, Any]], what: str) -> None:
    """One error of several partitions is said once."""
    names: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        of_error = names.setdefault((row["error"], row["topic"]), [])
        of_error.append(f"{row['topic']}-{row['partition']}")
    merged = [
        {"error": error, "topic": topic, "names": ", ".join(found)}
        for (error, topic), found in names.items()
    ]

    def text_of(row: dict[str, Any]) -> str:
        advice = ""
        if row["error"] == "GROUP_SUBSCRIBED_TO_TOPIC":
            name = rows[0]["group"]
            advice = (
                ": members are subscribed to the topic; stop them first, kvorum groups describe "
                f"{name} --members shows them"
            )
        return f"{row['names']} ({row['error']}{advice})"

    def right_of(row: dict[str, Any]) -> Right:
        is_group = row["error"] == "GROUP_AUTHORIZATION_FAILED"
        return on_group("READ", rows[0]["group"]) if is_group else on_topic("READ", row["topic"])

    fail_on_errors(merged, what, text_of, right_of)


def _way(options: dict[str, Any]) -> str:
    """The one option (a key of _WAYS) that says to which offsets the group is reset."""
    # Not `in (None, False)`: an offset of 0 equals False.
    given = [way for way in _WAYS if options[way] is not None and options[way] is not False]
    if len(given) != 1:
        raise click.UsageError(f"give one of {', '.join(_WAYS.values())}")
    return given[0]


def _scopes(topics: tuple[str, ...]) -> list[Scope]:
    from kvorum.cli.offset_plan import BadPlan, parse_scope

    try:
        return [parse_scope(text) for text in topics]
    except BadPlan as error:
        raise click.UsageError(f"--topic {error}") from error


def _position(way: str, options: dict[str, Any]) -> Position | None:
    """The position to which all partitions are reset; None if each has one of its own."""
    from kvorum.cli.records.times import duration_ms, time_ms
    from kvorum.client.cluster.offsets import END, START, Position

    now_ms = time.time_ns() // 1_000_000
    try:
        match way:
            case "to_earliest":
                return START
            case "to_latest":
                return END
            case "to_offset":
                return Position(kind="offset", number=options["to_offset"])
            case "to_datetime":
                return Position(kind="time", number=time_ms(options["to_datetime"]))
            case "by_duration":
                ago_ms = duration_ms(options["by_duration"])
                return Position(kind="time", number=max(now_ms - ago_ms, 0))
    except ValueError as error:
        raise click.UsageError(f"{_WAYS[way]}: {error}") from error
    return None


def _plan(
    brokers: Brokers,
    group: str,
    committed: dict[Partition, int],
    scopes: list[Scope],
    *,
    way: str,
    position: Position | None,
    given: dict[str, Any],
) -> dict[Partition, int]:
    """The new offset of each partition. Raises BadPlan."""
    from kvorum.cli.offset_plan import BadPlan, read_plan, shifted, within
    from kvorum.client.cluster.offsets import bounds_of, resolve

    wanted: dict[Partition, int] = {}
    if way == "from_file":
        file: TextIO = given["from_file"]
        try:
            text = file.read()
        except UnicodeDecodeError as error:
            raise BadPlan(f"{file.name} is not UTF-8, see byte {error.start}") from error
        wanted = read_plan(text, group, file.name)
        chosen = list(wanted)
    else:
        chosen = _partitions(brokers, group, committed, scopes)
    if way == "to_current":
        missing = [partition for partition in chosen if partition not in committed]
        if missing:
            raise BadPlan(f"{missing[0][0]}-{missing[0][1]} has no committed offset")
        return {partition: committed[partition] for partition in chosen}
    bounds: dict[Partition, Bounds] = bounds_of(brokers, chosen)
    if way == "shift_by":
        return shifted(chosen, committed, bounds, given["shift_by"])
    if position is not None:
        wanted = resolve(brokers, position, bounds)
    planned = {partition: within(offset, bounds[partition]) for partition, offset in wanted.items()}
    for (topic, number), offset in sorted(planned.items()):
        asked, log = wanted[topic, number], bounds[topic, number]
        if asked != offset:
            warn(
                f"{topic}-{number}: offset {asked} is outside of the log, which has {log.start} to "
                f"{log.end}; it becomes {offset}"
            )
    return planned


def _partitions(
    brokers: Brokers, group: str, committed: dict[Partition, int], scopes: list[Scope]
) -> list[Partition]:
    from kvorum.cli.offset_plan import BadPlan, chosen_partitions

    if not scopes:
        if not committed:
            raise BadPlan(f"group {group} has no committed offset: name topics with --topic")
        return sorted(committed)
    topics = brokers.existing(sorted({scope.topic for scope in scopes}))
    return chosen_partitions(scopes, {name: topic.leaders for name, topic in topics.items()})


def _guarded(plan: Callable[[], dict[Partition, int]]) -> dict[Partition, int]:
    from kvorum.cli.offset_plan import BadPlan

    try:
        return plan()
    except BadPlan as error:
        raise CommandFailed(str(error)) from error


def _open(
    name: str, options: dict[str, Any], *, is_share: bool = False
) -> tuple[Brokers, GroupOffsets]:
    """is_share: the group is a share group, or shall become one."""
    from kvorum.client.cluster.brokers import Brokers
    from kvorum.client.groups.group_offsets import NO_GROUP
    from kvorum.client.groups.share_offsets import ShareOffsets, group_offsets, group_type

    if not name:
        raise click.UsageError("the group's name is empty")
    addresses = broker_addresses(options, "controllers know nothing of groups")
    brokers = Brokers(addresses, options["timeout"])
    click.get_current_context().call_on_close(brokers.close)
    found = group_offsets(brokers, name)
    if is_share and not isinstance(found, ShareOffsets):
        if found.state().state != NO_GROUP:
            kind = group_type(brokers, found)
            raise CommandFailed(f"group {name} is of type {kind}: leave out --share")
        found = ShareOffsets(brokers, name)
    return brokers, found
