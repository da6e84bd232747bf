"""Streaming reads: `spark.readStream.format("kvorum")`.

The offsets of each micro-batch are in Spark's checkpoint, so a query that was killed in the middle
of a batch reads exactly that batch again.

The first batch of a new query is empty; it exists for its end, the initial offsets. Otherwise:
1. a query starts at the latest offsets and is killed in its first batch; the checkpoint has the
   batch's end, but Spark keeps no start of a first batch;
2. the restarted query asks for initial offsets again, and these are later now;
3. the records between the two would never be read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kvorum.analytics.kafka_source.clients import TopicsClient
from kvorum.analytics.kafka_source.fetch import read_range
from kvorum.analytics.kafka_source.offsets import (
    LATEST,
    AtEnd,
    AtOffsets,
    Offsets,
    OffsetsJson,
    TopicPartition,
    from_json,
    name_of,
    names_of,
    to_json,
)
from kvorum.analytics.kafka_source.options import ReadOptions
from kvorum.analytics.kafka_source.plan import limit, pending_offsets, ranges_between, split
from kvorum.analytics.kafka_source.resolve import report_loss, start_offsets, within_log

_NO_LIMIT = 2**62
"""Offsets of a batch without a limit. Spark's ReadAllAvailable is not used for it: that marks
Trigger.Once, which has one batch."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in a process of the driver, and reads their ranges in tasks.

    Every method raises DataLoss for records that are gone if failOnDataLoss is set, and ReadFailed
    if the cluster gives no answer.
    """

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._opened: TopicsClient | None = None
        self._initial: dict[TopicPartition, int] | None = None
        #: The next batch is the first of a new query.
        self._is_first = False
        #: With Trigger.AvailableNow: the end of the query.
        self._final: dict[TopicPartition, int] | None = None
        self._latest: dict[TopicPartition, int] | None = None
        self._triggered_s: float | None = None

    def initialOffset(self) -> OffsetsJson:
        """The start of a new query."""
        # Spark asks more than once, and `latest` must not have moved in between.
        if self._initial is None:
            final = self._final
            # With Trigger.AvailableNow, Spark has fixed the end before it asks for the start:
            # records and partitions that came in between belong to the next query.
            partitions = self._client.partitions() if final is None else set(final)
            starting = self._options.starting or AtEnd(offset=LATEST)
            start = start_offsets(
                self._client,
                starting,
                partitions,
                uses_latest_without_timestamp=self._options.uses_latest_without_timestamp,
                is_batch=False,
            )
            if isinstance(starting, AtOffsets):
                start = within_log(
                    self._client,
                    start,
                    earliest=self._client.earliest(partitions),
                    latest=self._client.latest(partitions) if final is None else final,
                    what="startingOffsets",
                    fails_on_data_loss=self._options.fails_on_data_loss,
                )
            if final is not None:
                start = {key: min(offset, final[key]) for key, offset in start.items()}
            self._initial = start
            self._is_first = True
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """maxOffsetsPerTrigger; the other limits are applied in `latestOffset`."""
        return ReadMaxRows(self._options.offsets_per_trigger_max or _NO_LIMIT)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query: the present ends of the partitions."""
        self._final = self._client.latest(self._client.partitions())

    def latestOffset(self, start: OffsetsJson, limit: ReadLimit) -> OffsetsJson:
        """The end of the next micro-batch; equal to the start if there is none to run."""
        if self._is_first and not isinstance(limit, ReadAllAvailable):
            self._is_first = False
            return start
        from_offsets = from_json(start)
        latest = self._latest = self._ends(from_offsets)
        self._check_losses(from_offsets, latest)
        begin = self._with_new_partitions(from_offsets, latest)
        if isinstance(limit, ReadAllAvailable):
            return to_json(latest)
        if self._final is None and self._waits_for_more(begin, latest):
            return start
        self._triggered_s = time.monotonic()
        return to_json(_limited(begin, latest, self._options.offsets_per_trigger_max))

    def reportLatestOffset(self) -> OffsetsJson | None:
        """The ends of the partitions, as last seen; Spark shows them in the progress of a query."""
        return None if self._latest is None else to_json(self._latest)

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> list[InputPartition]:
        """A task for each range of a micro-batch."""
        self._is_first = False
        until = from_json(end)
        begin = self._with_new_partitions(from_json(start), until)
        # A start above the end is a first batch that is run again (see the module), or a loss that
        # latestOffset has reported. Both have nothing to read.
        ranges = split(
            ranges_between(begin, until),
            partitions_min=self._options.partitions_min,
            records_per_partition_max=self._options.records_per_partition_max,
        )
        return [InputPartition(one) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow batches of one range."""
        return read_range(partition.value, self._columns, self._options)

    def stop(self) -> None:
        """Close the connections of the driver."""
        self._opened = None

    @property
    def _client(self) -> TopicsClient:
        if self._opened is None:
            self._opened = TopicsClient(self._options)
        return self._opened

    def _ends(self, start: Offsets) -> dict[TopicPartition, int]:
        """The ends of the partitions, up to which the query may read now."""
        if self._final is not None:
            return dict(self._final)
        # The deletion of a topic that the query has read is a loss to report, not a wrong name.
        return self._client.latest(self._client.partitions(may_be_missing=bool(start)))

    def _check_losses(self, start: Offsets, latest: Offsets) -> None:
        fails = self._options.fails_on_data_loss
        if gone := set(start) - set(latest):
            report_loss(
                f"the query has read {names_of(gone)}, which no longer exists or is no longer "
                "asked for",
                fails_on_data_loss=fails,
            )
        for partition, offset in sorted(start.items()):
            if latest.get(partition, offset) < offset:
                report_loss(
                    f"the query has read {name_of(partition)} up to offset {offset}, but its log "
                    f"ends at {latest[partition]}",
                    fails_on_data_loss=fails,
                )

    def _with_new_partitions(self, start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
        """The start, with partitions that are only in the end: these are new, and read in full."""
        new = set(end) - set(start)
        if not new:
            return dict(start)
        earliest = self._client.earliest(new)
        for partition, offset in sorted(earliest.items()):
            if offset > 0:
                report_loss(
                    f"partition {name_of(partition)} is new to the query, but its log starts at "
                    f"offset {offset}",
                    fails_on_data_loss=self._options.fails_on_data_loss,
                )
        return {**start, **earliest}

    def _waits_for_more(self, start: Offsets, latest: Offsets) -> bool:
        """minOffsetsPerTrigger: a small batch waits, but not longer than maxTriggerDelay."""
        least = self._options.offsets_per_trigger_min
        if least is None or self._triggered_s is None:
            return False
        waited_ms = (time.monotonic() - self._triggered_s) * 1000
        is_late = waited_ms >= self._options.trigger_delay_max_ms
        return pending_offsets(start, latest) < least and not is_late


def _limited(start: Offsets, latest: Offsets, offsets_max: int | None) -> dict[TopicPartition, int]:
    return dict(latest) if offsets_max is None else limit(start, latest, offsets_max)
