"""`kvorum consume`: records of topics as text or JSON lines.

librdkafka reads them (the package confluent-kafka), which this module imports only when it runs.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kvorum.cli.common import (
    INT32_MAX,
    INT64_MAX,
    broker_addresses,
    connection_options,
    number_of,
)
from kvorum.cli.completion import group_names, topic_names
from kvorum.client.current import current_security

if TYPE_CHECKING:
    from kvorum.cli.records.reading import Reading
    from kvorum.cli.records.share_reading import ShareReading
    from kvorum.client.cluster.offsets import Position

_ISOLATION = {"read_uncommitted": 0, "read_committed": 1}


@click.command()
@click.argument("topics", nargs=-1, required=True, shell_complete=topic_names)
@click.option(
    "-p", "--partition", "partitions", multiple=True, type=click.IntRange(0, INT32_MAX),
    help="Only this partition. Repeatable.",
)  # fmt: skip
@click.option(
    "-o", "--offset", "offsets", default="start", show_default=True, metavar="FROM[:TO]",
    help="start, end, N, +N (after the start), -N (before the end), @TIME or @-1h; TO is left out.",
)  # fmt: skip
@click.option("-n", "--num", type=click.IntRange(1, INT64_MAX), help="Stop after so many records.")
@click.option("-F", "--follow", is_flag=True, help="Wait for new records; else stop at the end.")
@click.option(
    "-g",
    "--group",
    shell_complete=group_names,
    help="Read as a member of this group, and commit its positions.",
)
@click.option(
    "--share-group",
    shell_complete=group_names,
    help="Read as a member of this share group: each record is one member's, and accepted once it "
    "is printed. Stops when none has come for 5 s.",
)
@click.option(
    "--isolation", type=click.Choice([*_ISOLATION]), default="read_committed", show_default=True,
    help="Whether records of open and aborted transactions are shown.",
)  # fmt: skip
@click.option(
    "-f", "--format", "form", default="text", show_default=True, metavar="FORMAT",
    help="text, json (a line a record), or %t %p %o %k %v %h %T \\n.",
)  # fmt: skip
@click.option("--print-key", is_flag=True, help="The key and a tab before each value.")
@click.option("--null", "null", default="null", show_default=True, help="Text for a null.")
@connection_options
def consume(topics: tuple[str, ...], **options: Any) -> None:
    """Print the records of TOPICS, from the start to the end that they have now.

    FORMAT has %t topic, %p partition, %o offset, %k key, %v value, %h headers, %T timestamp (ms);
    %K and %V lengths (-1: null), %H number of headers, %%. Bytes that are not UTF-8 are printed
    unchanged as text; JSON has them as key_base64 and value_base64. TIME is ISO (UTC without a
    zone) or milliseconds.
    """
    addresses = broker_addresses(options, "controllers have no records")
    _check_share_group(options)
    first, end = _range(options)
    print_record = _formatter(options)

    from kvorum.cli.records.group_reading import GroupReading
    from kvorum.cli.records.reading import PlainReading, Wanted
    from kvorum.client.cluster.brokers import Brokers
    from kvorum.client.librdkafka import connection_settings

    wanted = Wanted(
        topics=tuple(dict.fromkeys(topics)),
        partitions=frozenset(options["partitions"]),
        first=first,
        end=end,
        is_endless=options["follow"],
        isolation=_ISOLATION[options["isolation"]],
    )
    brokers = Brokers(addresses, options["timeout"])
    click.get_current_context().call_on_close(brokers.close)
    client = connection_settings(addresses, current_security(), options["timeout"])
    reading: Reading | ShareReading
    if options["share_group"] is not None:
        from kvorum.cli.records.share_reading import ShareReading

        reading = ShareReading(
            brokers,
            wanted.topics,
            client,
            options["share_group"],
            is_endless=options["follow"],
            records_max=options["num"],
        )
    elif options["group"] is None:
        reading = PlainReading(brokers, wanted, client)
    else:
        reading = GroupReading(brokers, wanted, client, options["group"])
    # A member that is told to stop leaves its group, as after Ctrl-C.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, reading.on_signal)
    printer = _Printer(print_record, options["num"])
    is_quiet = False
    try:
        printer.run(reading)
    except BrokenPipeError:
        is_quiet = True  # `| head` has what it wanted
        raise
    finally:
        if not is_quiet:
            printer.end()
        reading.close()


def _range(options: dict[str, Any]) -> tuple[Position, Position | None]:
    from kvorum.cli.records.positions import parse_range

    text = options["offsets"]
    if text in ("json", "yaml", "table", "wide"):
        raise click.UsageError(f"-o is the offset here; for the form of the records give -f {text}")
    try:
        first, end = parse_range(text, now_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.UsageError(f"--offset {error}") from error
    if options["group"] is not None and options["partitions"]:
        raise click.UsageError("a group assigns the partitions: give --group or --partition")
    if options["group"] == "":
        raise click.UsageError("--group is empty")
    if options["group"] is not None and end is not None:
        raise click.UsageError("a group reads on from its commits: an end of --offset cannot be")
    if end is not None and options["follow"]:
        raise click.UsageError("--follow has no end: give it or the end of --offset")
    if first.kind == "end" and first.number == 0 and not options["follow"]:
        raise click.UsageError("there is nothing behind the end yet: add --follow")
    return first, end


def _check_share_group(options: dict[str, Any]) -> None:
    """Raise UsageError for options that a share group decides by its own configs."""
    if options["share_group"] is None:
        return
    if not options["share_group"]:
        raise click.UsageError("--share-group is empty")
    context = click.get_current_context()
    for name in ("group", "partitions", "offsets", "isolation"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = {"partitions": "partition", "offsets": "offset"}.get(name, name)
            if name == "group":
                raise click.UsageError("a member has one group: give --group or --share-group")
            raise click.UsageError(
                f"--{option} is not for --share-group: its configs share.auto.offset.reset and "
                "share.isolation.level decide, for all members"
            )


def _formatter(options: dict[str, Any]) -> Any:
    from kvorum.cli.records.text_output import DEFAULT, WITH_KEY, formatter

    form = options["form"]
    if options["print_key"] and form != "text":
        raise click.UsageError("--print-key is for -f text; a format string has %k")
    if form == "text":
        form = WITH_KEY if options["print_key"] else DEFAULT
    elif form != "json" and "%" not in form and "\\" not in form:
        raise click.UsageError(f"--format {form!r} is no text, no json and has no %")
    try:
        return formatter(form, os.fsencode(options["null"]))
    except ValueError as error:
        raise click.UsageError(f"--format {error}") from error


class _Printer:
    """Writes records to stdout, at most `limit` of them, and their count to stderr."""

    def __init__(self, print_record: Any, limit: int | None) -> None:
        self._print = print_record
        self._left = limit
        self._count = 0
        self._out = sys.stdout.buffer

    def run(self, reading: Reading | ShareReading) -> None:
        """Print records until the reading ends or the limit is reached."""
        for records in reading.batches():
            shown = records if self._left is None else records[: self._left]
            self._out.write(b"".join(map(self._print, shown)))
            self._out.flush()
            self._count += len(shown)
            if self._left is not None:
                self._left -= len(shown)
                if self._left == 0:
                    # Committed only now: a record that was not printed is the next member's.
                    reading.printed(shown)
                    return

    def end(self) -> None:
        """Print the count; called also after Ctrl-C or a failure."""
        click.echo(number_of(self._count, "record"), err=True)
