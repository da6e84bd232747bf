"""`kvorum produce`: records from lines, files or arguments to a topic.

librdkafka sends them (the package confluent-kafka), which this module imports only when it runs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from kvorum.cli.common import INT32_MAX, broker_addresses, cluster_options, number_of, show
from kvorum.cli.completion import topic_names
from kvorum.client.current import current_security
from kvorum.client.failures import CommandFailed

if TYPE_CHECKING:
    from kvorum.cli.records.producer import Producer, ProducerSettings
    from kvorum.cli.records.text_input import Headers, Template

_ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_LINGER_S = 0.005
_PROGRESS_S = 0.5
_COLUMNS = ["topic", "partition", "records", "first_offset", "last_offset"]

#: (where records are from, the number of the first or 0, their bytes).
Entry = tuple[str, int, list[bytes]]


@click.command()
@click.argument("topic", shell_complete=topic_names)
@click.argument("values", nargs=-1)
@click.option(
    "-i", "--file", "files", multiple=True, metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True),
    help="Read lines of this file; - is stdin. Repeatable.",
)  # fmt: skip
@click.option("--whole-file", is_flag=True, help="Each file is one record, not one a line.")
@click.option(
    "-f", "--format", "form", type=click.Choice(["text", "json"]), default="text",
    help="json: an object a line with key, value, headers, partition, timestamp.",
)  # fmt: skip
@click.option("-k", "--key", help="Key of every record.")
@click.option("-K", "--key-separator", metavar="TEXT", help="Splits a line into key and value.")
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE",
    help="A header of every record. Repeatable.",
)  # fmt: skip
@click.option(
    "-p", "--partition", type=click.IntRange(0, INT32_MAX), help="In place of the key's partition."
)
@click.option("--timestamp", metavar="TIME", help="ISO time or milliseconds; else now.")
@click.option("-Z", "--tombstone", is_flag=True, help="An empty value is a tombstone (null).")
@click.option(
    "-z", "--compression", type=click.Choice(_CODECS), default="none", help="Codec of the batches."
)
@click.option(
    "--acks", type=click.Choice([*_ACKS]), default="all", help="Acknowledgements to wait for."
)
@click.option(
    "--idempotence/--no-idempotence", default=None,
    help="Retries make no duplicates; the default with --acks all.",
)  # fmt: skip
@click.option(
    "--delivery-timeout", type=click.FloatRange(min=0.1), default=120.0, show_default=True,
    metavar="SECONDS", help="Time for the retries of a record.",
)  # fmt: skip
@cluster_options
def produce(topic: str, values: tuple[str, ...], files: tuple[str, ...], **options: Any) -> None:
    """Send records to TOPIC: the VALUES, the lines of files, or those of stdin.

    A key goes to the partition that Kafka's own clients give it.
    """
    addresses = broker_addresses(options, "controllers have no records")
    if values and files:
        raise click.UsageError("give values or --file, not both")
    if options["whole_file"] and not files:
        raise click.UsageError("--whole-file needs --file")
    template, settings = _template(options), _settings(options)

    from kvorum.cli.records.producer import Producer, StoppedEarly
    from kvorum.client.cluster.brokers import Brokers
    from kvorum.client.librdkafka import connection_settings

    at_end = click.get_current_context().call_on_close
    brokers = Brokers(addresses, options["timeout"])
    at_end(brokers.close)
    client = connection_settings(addresses, current_security(), options["timeout"])
    producer = Producer(brokers, client, topic, settings)
    at_end(producer.close)
    progress = _Progress(producer, topic)
    stop = _Stop(producer, options["timeout"])
    entries = _entries(values, files, options["whole_file"])
    try:
        with stop, contextlib.suppress(StoppedEarly):
            _run(producer, template, stop.until(entries), options, progress)
    finally:
        progress.end(is_stopped=stop.is_asked)
    if stop.is_asked:
        raise KeyboardInterrupt
    rows = [
        {
            "topic": topic,
            "partition": number,
            "records": row.records,
            "first_offset": row.first_offset,
            "last_offset": row.last_offset,
        }
        for number, row in sorted(producer.delivered.items())
    ]
    show(options["output"], rows, _COLUMNS)


def _run(
    producer: Producer,
    template: Template,
    entries: Iterator[Entry],
    options: dict[str, Any],
    progress: _Progress,
) -> None:
    from kvorum.cli.records.text_input import BadRecord, parser

    parse = parser(template, options["form"])
    is_plain = template.is_plain and options["form"] == "text"
    for name, first, lines in entries:
        number = first
        try:
            if not lines:
                producer.send()
            elif is_plain:
                producer.add_values(lines, template.key, template.partition)
            else:
                for line in lines:
                    producer.add(parse(line))
                    number += 1
        except BadRecord as error:
            # The records before it are sent all the same.
            producer.finish()
            where = f"{name}{number}" if first else name
            raise CommandFailed(f"{where}: {error}") from error
        progress.show()
    producer.finish()


def _entries(values: tuple[str, ...], files: tuple[str, ...], is_whole: bool) -> Iterator[Entry]:
    if values:
        yield "value ", 1, list(map(os.fsencode, values))
        return
    read = _whole if is_whole else _lines
    for name in files or ("-",):
        if name == "-":
            yield from read(sys.stdin.fileno(), "stdin")
            continue
        with open(name, "rb") as file:
            yield from read(file.fileno(), name)


def _whole(number: int, name: str) -> Iterator[Entry]:
    with open(number, "rb", closefd=False) as file:
        yield name, 0, [file.read()]


def _lines(number: int, name: str) -> Iterator[Entry]:
    """The lines of a file as they come; no lines when no more come now, so that the caller sends
    those that it has."""
    from kvorum.cli.records.source import LineSource

    source = LineSource(number, name)
    count, has_news = 1, False
    while not source.is_at_end:
        lines = source.read(_LINGER_S if has_news else None)
        if lines or has_news:
            yield f"{name}, line ", count, lines
        count += len(lines)
        has_news = bool(lines)


def _template(options: dict[str, Any]) -> Template:
    from kvorum.cli.records.text_input import Template
    from kvorum.cli.records.times import time_ms

    if options["key"] is not None and options["key_separator"] is not None:
        raise click.UsageError("give --key or --key-separator, not both")
    if options["key_separator"] is not None and options["form"] == "json":
        raise click.UsageError("--key-separator is for lines of text; JSON has its key")
    if options["key_separator"] == "":
        raise click.UsageError("--key-separator is empty")
    timestamp_ms = None
    if options["timestamp"] is not None:
        try:
            timestamp_ms = time_ms(options["timestamp"])
        except ValueError as error:
            raise click.UsageError(f"--timestamp {error}") from error
    return Template(
        key=_bytes(options["key"]),
        key_separator=_bytes(options["key_separator"]),
        headers=_headers(options["headers"]),
        partition=options["partition"],
        timestamp_ms=timestamp_ms,
        empty_is_null=options["tombstone"],
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


def _headers(texts: tuple[str, ...]) -> Headers:
    headers = []
    for text in texts:
        name, found, value = text.partition("=")
        if not found or not name:
            raise click.UsageError(f"--header {text!r} is not NAME=VALUE")
        headers.append((os.fsencode(name), os.fsencode(value)))
    return tuple(headers)


def _settings(options: dict[str, Any]) -> ProducerSettings:
    from kvorum.cli.records.producer import ACKS_ALL, ProducerSettings

    acks = _ACKS[options["acks"]]
    is_idempotent = options["idempotence"]
    if is_idempotent is None:
        is_idempotent = acks == ACKS_ALL
    elif is_idempotent and acks != ACKS_ALL:
        raise click.UsageError(f"--idempotence needs --acks all, not {options['acks']}")
    return ProducerSettings(
        acks=acks,
        compression=options["compression"],
        is_idempotent=is_idempotent,
        delivery_timeout_s=options["delivery_timeout"],
    )


class _Stopped(Exception):
    """A signal ends the reading of records."""


class _Stop:
    """Ctrl-C and SIGTERM end the reading; the records before are sent, and their acknowledgements
    awaited for `wait_s`. A second signal ends the command at once.

    Bad sequence if a signal interrupted a request: 1. The leader stores its records. 2. The signal
    comes before the answer. 3. The final count lacks them.
    """

    def __init__(self, producer: Producer, wait_s: float) -> None:
        self.is_asked = False
        self._producer = producer
        self._wait_s = wait_s
        self._is_reading = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._on_signal)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def until(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        """The entries before the signal."""
        while True:
            try:
                self._is_reading = True
                # The signal may have come just before the line above.
                if self.is_asked:
                    return
                entry = next(entries)
                self._is_reading = False
            except (_Stopped, StopIteration):
                self._is_reading = False
                return
            yield entry

    def _on_signal(self, number: int, frame: object) -> None:
        if self.is_asked:
            raise KeyboardInterrupt
        self.is_asked = True
        self._producer.stop_at(time.monotonic() + self._wait_s)
        if self._is_reading:
            raise _Stopped


class _Progress:
    """The count on stderr: as it grows on a terminal, at the end everywhere."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._began_s = self._shown_s = time.monotonic()
        self._is_terminal = sys.stderr.isatty()

    def show(self) -> None:
        """Renew the line of a terminal, at most twice a second."""
        if self._is_terminal and time.monotonic() - self._shown_s > _PROGRESS_S:
            self._shown_s = time.monotonic()
            click.echo(f"\r{self._text()}", err=True, nl=False)

    def end(self, *, is_stopped: bool) -> None:
        """Print the final count. is_stopped: with the records that may or may not be stored."""
        text = self._text()
        if is_stopped and self._producer.unacknowledged:
            text += f"; not acknowledged: {number_of(self._producer.unacknowledged, 'record')}"
        click.echo(f"\r{text}" if self._is_terminal else text, err=True)

    def _text(self) -> str:
        taken_s = max(time.monotonic() - self._began_s, 1e-9)
        count = self._producer.records
        sent, rate = number_of(count, "record"), count / taken_s
        return f"{sent} to {self._topic} in {taken_s:.1f} s, {rate:.0f} a second"
