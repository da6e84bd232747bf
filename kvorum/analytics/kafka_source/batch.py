"""Batch reads: `spark.read.format("kvorum")`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from kvorum.analytics.kafka_source.clients import TopicsClient
from kvorum.analytics.kafka_source.fetch import read_range
from kvorum.analytics.kafka_source.offsets import (
    EARLIEST,
    LATEST,
    AtEnd,
    AtOffsets,
    TopicPartition,
)
from kvorum.analytics.kafka_source.options import ReadOptions
from kvorum.analytics.kafka_source.plan import OffsetRange, ranges_between, split
from kvorum.analytics.kafka_source.pruning import narrow
from kvorum.analytics.kafka_source.resolve import (
    TopicsCluster,
    check_order,
    end_offsets,
    start_offsets,
    within_log,
)


class AskedOnce:
    """A cluster that is asked once for each end of a log: a plan then has one view of it."""

    def __init__(self, cluster: TopicsCluster) -> None:
        self._cluster = cluster
        self._earliest: dict[TopicPartition, int] = {}
        self._latest: dict[TopicPartition, int] = {}

    def partitions(self) -> set[TopicPartition]:
        """Not kept: a plan asks once."""
        return self._cluster.partitions()

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Log start offsets."""
        return _kept(self._earliest, self._cluster.earliest, partitions)

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """End offsets."""
        return _kept(self._latest, self._cluster.latest, partitions)

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Asked for each time: only a refusal needs them."""
        return self._cluster.high_watermarks(partitions)

    def at_timestamps(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """Asked for each time: start and end have timestamps of their own."""
        return self._cluster.at_timestamps(timestamps_ms)


def _kept(
    known: dict[TopicPartition, int],
    ask: Callable[[Collection[TopicPartition]], dict[TopicPartition, int]],
    partitions: Collection[TopicPartition],
) -> dict[TopicPartition, int]:
    missing = [partition for partition in partitions if partition not in known]
    if missing:
        known.update(ask(missing))
    return {partition: known[partition] for partition in partitions}


class BatchReader(DataSourceReader):
    """Reads from a start to an end; the driver fixes both when Spark plans the query."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._filters: list[Filter] = []

    def partitions(self) -> list[InputPartition]:
        """A task for each range. Raises the errors of `resolve`."""
        planned = plan_batch(TopicsClient(self._options), self._options)
        ranges = split(
            narrow(planned, self._filters),
            partitions_min=self._options.partitions_min,
            records_per_partition_max=self._options.records_per_partition_max,
        )
        return [InputPartition(one) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow batches of one range."""
        # Spark makes one partition without a value of an empty list.
        if partition.value is None:
            return iter(())
        return read_range(partition.value, self._columns, self._options)


class PruningBatchReader(BatchReader):
    """A reader that filters narrow.

    A class of its own, for Spark refuses a reader with this method in a session that does not have
    spark.sql.python.filterPushdown.enabled, which is the default.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters for `partitions`. All are returned: Spark applies them again."""
        self._filters = filters
        return filters


def plan_batch(client: TopicsCluster, options: ReadOptions) -> list[OffsetRange]:
    """The ranges of a batch query. Raises the errors of `resolve`."""
    client = AskedOnce(client)
    partitions = client.partitions()
    starting = options.starting or AtEnd(offset=EARLIEST)
    ending = options.ending or AtEnd(offset=LATEST)
    start = start_offsets(
        client,
        starting,
        partitions,
        uses_latest_without_timestamp=options.uses_latest_without_timestamp,
        is_batch=True,
    )
    end = end_offsets(client, ending, partitions)
    if isinstance(starting, AtOffsets) or isinstance(ending, AtOffsets):
        earliest, latest = client.earliest(partitions), client.latest(partitions)
        within = partial(
            within_log,
            client,
            earliest=earliest,
            latest=latest,
            fails_on_data_loss=options.fails_on_data_loss,
        )
        start = within(start, what="startingOffsets")
        end = within(end, what="endingOffsets")
        if isinstance(starting, AtOffsets) and isinstance(ending, AtOffsets):
            check_order(start, end)
    return ranges_between(start, end)
