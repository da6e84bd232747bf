"""The tables of the live job, and how a micro-batch is added to them exactly once.

    events   a row for each event
    churn    counts of events by window and kind; each batch adds rows, and the sum is the count
    late     the same for events whose window was closed; these are not in churn

A batch writes TABLE/day=DAY/batch=BATCH, and replaces what is there. Spark gives a batch that was
killed the same number and the same records again, so writing it twice changes nothing. For that,
the watermark of a batch must not depend on when it runs: it is in the progress of the batch before
(OUTPUT/progress/BATCH.json), which is written last.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from kvorum.analytics.files import Files
from kvorum.analytics.session import first_line

TABLES = ("events", "churn", "late")
PROGRESS = "progress"
_PROGRESS_KEPT = 3
"""Files of progress that remain. The last two are needed: a batch that is written again has its own
file already, and reads the one before."""

_INTS = T.ArrayType(T.IntegerType())
#: Fields of the value that get a column. All of them are in value_json.
_FIELDS = T.StructType(
    [
        T.StructField("offset", T.LongType()),
        T.StructField("epoch", T.IntegerType()),
        T.StructField("kind", T.StringType()),
        T.StructField("topic", T.StringType()),
        T.StructField("topic_id", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("broker_id", T.IntegerType()),
        T.StructField("controller_id", T.IntegerType()),
        T.StructField("leader", T.IntegerType()),
        T.StructField("isr", _INTS),
        T.StructField("leader_epoch", T.IntegerType()),
        T.StructField("partition_epoch", T.IntegerType()),
        T.StructField("is_fenced", T.BooleanType()),
    ]
)
UNREADABLE = "unreadable"
"""The kind of a value that is not an event's."""


class ForeignOutput(Exception):
    """The output belongs to another query, or its progress is missing; one sentence."""


class OutputFailed(Exception):
    """A folder of the job cannot be written; one sentence."""


def check_writable(folder: Files) -> None:
    """Raise OutputFailed unless files can be written to a folder."""
    try:
        folder.check_writable()
    except (OSError, Py4JError) as error:
        raise OutputFailed(
            f"{folder.uri} cannot be written: {first_line(error)}; choose another folder, or mend "
            "this one"
        ) from error


def events_of(records: DataFrame) -> DataFrame:
    """Records of `__kvorum_events` as rows of the table events; tombstones are left out."""
    value = F.col("value").cast("string")
    parsed = records.where(F.col("value").isNotNull()).select(
        F.col("offset").alias("record_offset"),
        "timestamp",
        F.col("key").cast("string").alias("key"),
        value.alias("value_json"),
        F.from_json(value, _FIELDS).alias("event"),
    )
    fields = [F.col(f"event.{name}").alias(name) for name in _FIELDS.names if name != "kind"]
    kind = F.coalesce("event.kind", F.lit(UNREADABLE)).alias("kind")
    return parsed.select("record_offset", "timestamp", "key", kind, *fields, "value_json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Events of one kind in one window of a batch.

    start_ms, newest_ms: ms since 1970.
    newest_ms: the latest timestamp of these events.
    """

    start_ms: int
    kind: str
    events: int
    newest_ms: int


def counts_of(events: DataFrame, window_ms: int) -> list[Count]:
    """Number of events by window and kind, computed by one job of Spark."""
    millis = F.unix_millis("timestamp")
    start = (millis - F.pmod(millis, F.lit(window_ms))).alias("start")
    grouped = events.groupBy(start, "kind").agg(
        F.count(F.lit(1)).alias("events"), F.max(millis).alias("newest")
    )
    return [
        Count(start_ms=row[0], kind=row[1], events=row[2], newest_ms=row[3])
        for row in grouped.orderBy("start", "kind").collect()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state after a batch.

    query_id: of Spark's checkpoint.
    newest_ms: the latest timestamp of an event so far, ms since 1970; None before the first event.

    window_ms, watermark_ms: of the query. A batch that is written again must sort its events as the
    first time, so they never change.
    """

    query_id: str
    window_ms: int
    watermark_ms: int
    newest_ms: int | None


class EventTables:
    """The tables in a folder, as one query writes them."""

    def __init__(self, output: Files, *, window_ms: int, watermark_ms: int) -> None:
        """window_ms: length of a window.
        watermark_ms: how long after its end, in event time, a window is open for events that come
            late.
        """
        self._output = output
        self._window_ms = window_ms
        self._watermark_ms = watermark_ms

    def check(self, query_id: str | None) -> None:
        """Raise ForeignOutput unless the query may write here. query_id: None for a new one."""
        newest = self._newest()
        if newest is None:
            used = [name for name in TABLES if self._output.exists(name)]
            if used:
                raise ForeignOutput(
                    f"{self._output.uri} has a table {used[0]} and no progress of this job; choose "
                    "an empty folder"
                )
            return
        found = self._read(newest)
        if found.query_id != query_id:
            raise ForeignOutput(
                f"{self._output.uri} was written with another checkpoint; give the checkpoint that "
                "belongs to it, or choose an empty folder for the output"
            )
        for option, was_ms, is_ms in (
            ("--window", found.window_ms, self._window_ms),
            ("--watermark", found.watermark_ms, self._watermark_ms),
        ):
            if was_ms != is_ms:
                raise ForeignOutput(
                    f"{self._output.uri} was begun with {option} {was_ms}ms, not {is_ms}ms; give "
                    "the same, or start a new output and checkpoint"
                )

    def write(self, records: DataFrame, batch: int, query_id: str) -> None:
        """Add a micro-batch; the same batch again changes nothing.

        Raises ForeignOutput, OutputFailed; PySparkException, Py4JError of the source or of Spark.
        """
        try:
            self._write(records, batch, query_id)
        except OSError as error:
            raise self._failed(error) from error

    def _write(self, records: DataFrame, batch: int, query_id: str) -> None:
        before = self._before(batch, query_id)
        events = events_of(records).persist()
        try:
            counts = counts_of(events, self._window_ms)
            if counts:
                self._write_tables(events, counts, batch, before.newest_ms)
        finally:
            events.unpersist()
        known = [] if before.newest_ms is None else [before.newest_ms]
        newest_ms = max(known + [count.newest_ms for count in counts], default=None)
        after = dataclasses.replace(before, newest_ms=newest_ms)
        content = json.dumps(dataclasses.asdict(after)).encode()
        self._output.replace(f"{PROGRESS}/{batch}.json", content)
        self._output.remove(f"{PROGRESS}/{batch - _PROGRESS_KEPT}.json")

    def _write_tables(
        self, events: DataFrame, counts: Sequence[Count], batch: int, newest_ms: int | None
    ) -> None:
        self._write_events(events, batch)
        watermark_ms = None if newest_ms is None else newest_ms - self._watermark_ms
        counted: list[Count] = []
        late: list[Count] = []
        for count in counts:
            is_late = watermark_ms is not None and count.start_ms + self._window_ms <= watermark_ms
            (late if is_late else counted).append(count)
        self._add_counts("churn", counted, batch, None)
        self._add_counts("late", late, batch, watermark_ms)

    def _write_events(self, events: DataFrame, batch: int) -> None:
        writer = (
            events.withColumn("day", F.date_format("timestamp", "yyyy-MM-dd"))
            .withColumn("batch", F.lit(batch).cast("long"))
            .coalesce(1)
            .write.mode("overwrite")
            # Only the folders of this batch are replaced.
            .option("partitionOverwriteMode", "dynamic")
            .partitionBy("day", "batch")
        )
        try:
            writer.parquet(self._output.at("events"))
        except (PySparkException, Py4JError) as error:
            # The events were read and counted before, so that it is the output that fails.
            raise self._failed(error) from error

    def _failed(self, error: BaseException) -> OutputFailed:
        return OutputFailed(
            f"{self._output.uri} cannot be written: {first_line(error)}; mend the folder and start "
            "again with the same checkpoint"
        )

    def _add_counts(
        self, table: str, counts: Sequence[Count], batch: int, watermark_ms: int | None
    ) -> None:
        """Write a file for each day of a window. The driver does it: a job of Spark costs more."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        by_day: dict[str, list[Count]] = {}
        for count in counts:
            day = datetime.fromtimestamp(count.start_ms // 1000, UTC).date().isoformat()
            by_day.setdefault(day, []).append(count)
        time = pa.timestamp("ms", tz="UTC")
        for day, found in by_day.items():
            columns = {
                "window_start": pa.array([c.start_ms for c in found], time),
                "window_end": pa.array([c.start_ms + self._window_ms for c in found], time),
                "kind": pa.array([c.kind for c in found], pa.string()),
                "events": pa.array([c.events for c in found], pa.int64()),
            }
            if watermark_ms is not None:
                columns["watermark"] = pa.array([watermark_ms] * len(found), time)
            content = io.BytesIO()
            pq.write_table(pa.table(columns), content)
            place = f"{table}/day={day}/batch={batch}/counts.parquet"
            self._output.replace(place, content.getvalue())

    def _before(self, batch: int, query_id: str) -> Progress:
        if batch == 0:
            return Progress(
                query_id=query_id,
                window_ms=self._window_ms,
                watermark_ms=self._watermark_ms,
                newest_ms=None,
            )
        if not self._output.exists(f"{PROGRESS}/{batch - 1}.json"):
            raise ForeignOutput(
                f"{self._output.uri} lacks the progress of batch {batch - 1}; restore the folder, "
                "or start a new output and checkpoint"
            )
        return self._read(batch - 1)

    def _newest(self) -> int | None:
        names = self._output.names(PROGRESS)
        numbers = [name.removesuffix(".json") for name in names if name.endswith(".json")]
        return max((int(number) for number in numbers if number.isdecimal()), default=None)

    def _read(self, batch: int) -> Progress:
        content = self._output.read(f"{PROGRESS}/{batch}.json")
        try:
            return Progress(**json.loads(content))
        except (TypeError, ValueError) as error:
            raise ForeignOutput(
                f"{self._output.at(f'{PROGRESS}/{batch}.json')} is damaged: {error}; start a new "
                "output and checkpoint"
            ) from error
