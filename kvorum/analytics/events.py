"""The live job: `python -m kvorum.analytics.events --bootstrap HOST:PORT --output URI --checkpoint
URI`.

A Structured Streaming query follows `__kvorum_events` and adds each event to the tables in OUTPUT
(see event_tables.py). It runs until SIGTERM or SIGINT, or with --once to the present end of the
topic. A restart with the same checkpoint goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

try:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
except ModuleNotFoundError:
    if __name__ != "__main__":
        raise
    sys.exit("the live job needs pyspark: pip install 'kvorum[spark]'")

from kvorum.analytics.command_line import (
    EXIT_FAILED,
    EXIT_USAGE,
    NoScratch,
    add_session_options,
    java_refusal,
    master_of,
    refuse,
    session_with_scratch,
)
from kvorum.analytics.event_tables import EventTables, ForeignOutput, OutputFailed, check_writable
from kvorum.analytics.files import Files
from kvorum.analytics.kafka_source import register
from kvorum.analytics.kafka_source.durations import parse_duration_ms
from kvorum.analytics.session import first_line

TOPIC = "__kvorum_events"

_LOOK_S = 1
"""Pause between two looks for a signal."""
_PARTITIONS = "2"
"""spark.sql.shuffle.partitions. A micro-batch has few windows; Spark's default of 200 tasks would
take longer than the data."""
#: A unit is required, unlike in the options of a query.
_DURATION = r"\d{1,9}(ms|s|m|h|d)"
_SERVER = re.compile(r"[^,\s:]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")
#: The last line of a traceback of the source, or of a batch: class and message.
_OWN_ERROR = re.compile(r"kvorum\.analytics\.[\w.]*?(\w+): (.+)")
#: Refusals of the command line's values, also where they are found within a batch.
_REFUSALS = ("ForeignOutput", "OptionRefused")

Say = Callable[[str], None]


def follow(options: argparse.Namespace, stop: threading.Event, say: Say) -> None:
    """Open a session, and run the query in it until a signal sets `stop`. Raises as `run` does."""
    _stop_on_signals(stop)
    master = master_of(options)
    with session_with_scratch(master, options.driver_memory, is_short=options.once) as spark:
        # SparkContext has put a handler of its own in the place of that of SIGINT.
        _stop_on_signals(stop)
        if master is not None:
            spark.conf.set("spark.sql.shuffle.partitions", _PARTITIONS)
        # Spark's default is a form of timestamps that Parquet has given up.
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        run(spark, options, stop, say)


def _stop_on_signals(stop: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())


def run(spark: SparkSession, options: argparse.Namespace, stop: threading.Event, say: Say) -> None:
    """Run the query until `stop` is set, or with options.once to the present end of the topic.

    Raises ForeignOutput and OutputFailed before anything is written; PySparkException, Py4JError.
    """
    output, checkpoint = Files(spark, options.output), Files(spark, options.checkpoint)
    tables = EventTables(output, window_ms=options.window, watermark_ms=options.watermark)
    tables.check(query_id_in(checkpoint))
    for folder in (output, checkpoint):
        check_writable(folder)
    query = _start(spark, options, tables, checkpoint)
    say(f"following {options.topic}; query {query.id}")
    while not query.awaitTermination(_LOOK_S):
        if stop.is_set():
            query.stop()
            say("stopped; a restart with this checkpoint goes on here")
            return


def query_id_in(checkpoint: Files) -> str | None:
    """The id of the query that a checkpoint belongs to; None if it is new. Raises ForeignOutput."""
    if not checkpoint.exists("metadata"):
        return None
    try:
        found = json.loads(checkpoint.read("metadata"))["id"]
        if isinstance(found, str):
            return found
        reason = f"its id is {found!r}"
    except (Py4JError, ValueError, KeyError, TypeError) as error:
        reason = first_line(error)
    raise ForeignOutput(
        f"{checkpoint.at('metadata')} is damaged: {reason}; start a new output and checkpoint"
    )


def _start(
    spark: SparkSession, options: argparse.Namespace, tables: EventTables, checkpoint: Files
) -> StreamingQuery:
    register(spark)
    # The day of an event's folder is that of UTC; spark-submit may have set another zone.
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    records = (
        spark.readStream.schema("key binary, value binary, offset bigint, timestamp timestamp")
        .format("kvorum")
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.offsets_per_trigger)
        .load()
    )

    def write(batch: DataFrame, number: int) -> None:
        query_id = query_id_in(checkpoint)
        if query_id is None:
            raise ForeignOutput(f"{checkpoint.uri} has no file metadata; start with a new one")
        tables.write(batch, number, query_id)

    writer = records.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint.uri)
    if options.once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{options.trigger} milliseconds")
    return writer.start()


def duration_ms(text: str) -> int:
    """`10s`, `500ms`, `1m`, `2h` or `1d` in ms. Raises ArgumentTypeError."""
    found = parse_duration_ms(text.strip()) if re.fullmatch(_DURATION, text.strip()) else None
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 500ms, 10s, 1m or 2h")
    return found


def _servers(text: str) -> str:
    if not all(_SERVER.fullmatch(server.strip()) for server in text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, or several with commas")
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """The options of the command line. Times are in ms once they are parsed."""
    made = argparse.ArgumentParser(
        prog="python -m kvorum.analytics.events",
        description="Follow the changes of a cluster's metadata into tables.",
    )
    add = made.add_argument
    add("--bootstrap", required=True, type=_servers, metavar="HOST:PORT", help="a broker, or more")
    add("--output", required=True, metavar="URI", help="folder of the tables")
    add("--checkpoint", required=True, metavar="URI", help="folder of the query's progress")
    add("--topic", default=TOPIC, help=f"(default: {TOPIC})")
    add("--window", type=duration_ms, default="10s", help="length of a window (default: 10s)")
    add(
        "--watermark",
        type=duration_ms,
        default="1m",
        help="how long a window takes late events, in event time (default: 1m)",
    )
    add("--trigger", type=duration_ms, default="5s", help="pause of two batches (default: 5s)")
    add("--once", action="store_true", help="end at the present end of the topic")
    add(
        "--offsets-per-trigger",
        type=_count,
        default=100_000,
        metavar="N",
        help="records of a batch at most (default: 100000)",
    )
    add_session_options(made)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code: 0 done or stopped, 1 failed, 2 refused."""
    options = parser().parse_args(arguments)
    if options.output.rstrip("/") == options.checkpoint.rstrip("/"):
        parser().error("--output and --checkpoint are the same folder; name two")
    if (refusal := java_refusal("the live job")) is not None:
        return refusal

    def say(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    try:
        follow(options, threading.Event(), say)
    except ForeignOutput as error:
        return refuse(str(error), EXIT_USAGE)
    except (OutputFailed, NoScratch) as error:
        return refuse(str(error), EXIT_FAILED)
    except (PySparkException, Py4JError) as error:
        return refuse(sentence(error), exit_code(error))
    return 0


def sentence(error: BaseException) -> str:
    """The job's own error at the end of a traceback that Spark shows, or Spark's first line."""
    own = _own_error(error)
    if own is None:
        return f"Spark failed: {first_line(error)}"
    _, found = own
    if f"topic {TOPIC} does not exist" in found:
        return f"{found}; brokers make it with metadata.events.topic.enable=true"
    return found


def exit_code(error: BaseException) -> int:
    """The exit code for an error of Spark, which may be a refusal of the job's own."""
    own = _own_error(error)
    return EXIT_USAGE if own is not None and own[0] in _REFUSALS else EXIT_FAILED


def _own_error(error: BaseException) -> tuple[str, str] | None:
    """Class and message of the job's own error at the end of a traceback."""
    java: Any = getattr(error, "java_exception", None)
    own = _OWN_ERROR.findall(f"{error}\n{java if java is not None else ''}")
    return (str(own[-1][0]), str(own[-1][1]).strip()) if own else None


if __name__ == "__main__":
    sys.exit(main())
