"""From positions to offsets: the start and the end of a query, and records that are gone.

The driver decides here before any task runs. Retention may still remove records while a task
reads; `kvorum.analytics.kafka_source.fetch` finds that out.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Protocol

from kvorum.analytics.kafka_source.errors import DataLoss, OptionRefused, ReadFailed
from kvorum.analytics.kafka_source.offsets import (
    EARLIEST,
    LATEST,
    AtEnd,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Offsets,
    Position,
    TopicPartition,
    name_of,
    names_of,
)

_log = logging.getLogger("kvorum.analytics.kafka_source")


class TopicsCluster(Protocol):
    """A cluster's answers about the topics of a query (`clients.TopicsClient`)."""

    def partitions(self) -> set[TopicPartition]:
        """The partitions that the options name."""

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Log start offsets."""

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """End offsets: with read_committed, where the first open transaction begins."""

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """End offsets, those of open transactions included."""

    def at_timestamps(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after a timestamp; None if there is none."""


def start_offsets(
    cluster: TopicsCluster,
    position: Position,
    partitions: Collection[TopicPartition],
    *,
    uses_latest_without_timestamp: bool,
    is_batch: bool,
) -> dict[TopicPartition, int]:
    """The first offset to read of each partition.

    uses_latest_without_timestamp: a partition without a record at or after the timestamp starts at
        its end; otherwise OptionRefused.
    is_batch: a batch query cannot start at the latest offset.
    Raises OptionRefused if the position does not name every partition, ReadFailed if the cluster
    gives no answer.
    """
    special = "-2: earliest" if is_batch else "-1: latest, -2: earliest"
    found = _offsets_at(cluster, position, partitions, special)
    late = {partition for partition, offset in found.items() if offset is None}
    if late and not uses_latest_without_timestamp:
        raise OptionRefused(
            f"{_option(position)} finds no record at or after its timestamp in {names_of(late)}; "
            "choose an earlier timestamp, or set startingOffsetsByTimestampStrategy to latest"
        )
    return _with_latest(cluster, found)


def end_offsets(
    cluster: TopicsCluster, position: Position, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """The end (exclusive) of each partition for a position. For a timestamp: the first offset at
    or after it, and the latest offset if there is no such record.

    Raises as `start_offsets` does.
    """
    return _with_latest(cluster, _offsets_at(cluster, position, partitions, "-1: latest"))


def _offsets_at(
    cluster: TopicsCluster,
    position: Position,
    partitions: Collection[TopicPartition],
    special: str,
) -> dict[TopicPartition, int | None]:
    """special: the numbers in place of an offset that the query may have, for messages."""
    match position:
        case AtEnd():
            return _at_ends(cluster, dict.fromkeys(partitions, position.offset))
        case AtOffsets():
            _check_complete(position.option, position.offsets, partitions, f" ({special})")
            return _at_ends(cluster, position.offsets)
        case AtTimestamp():
            return cluster.at_timestamps(dict.fromkeys(partitions, position.timestamp_ms))
        case AtTimestamps():
            _check_complete(position.option, position.timestamps_ms, partitions, "")
            return cluster.at_timestamps(position.timestamps_ms)


def _at_ends(cluster: TopicsCluster, offsets: Offsets) -> dict[TopicPartition, int | None]:
    """The offsets, with -2 and -1 replaced by those of the cluster."""
    earliest = [partition for partition, offset in offsets.items() if offset == EARLIEST]
    latest = [partition for partition, offset in offsets.items() if offset == LATEST]
    return {
        **offsets,
        **(cluster.earliest(earliest) if earliest else {}),
        **(cluster.latest(latest) if latest else {}),
    }


def _with_latest(
    cluster: TopicsCluster, found: Mapping[TopicPartition, int | None]
) -> dict[TopicPartition, int]:
    missing = [partition for partition, offset in found.items() if offset is None]
    known = {partition: offset for partition, offset in found.items() if offset is not None}
    return {**known, **(cluster.latest(missing) if missing else {})}


def _check_complete(
    option: str, given: Offsets, partitions: Collection[TopicPartition], values: str
) -> None:
    missing, strange = set(partitions) - set(given), set(given) - set(partitions)
    if missing:
        raise OptionRefused(
            f"{option} leaves out {names_of(missing)}; name every partition{values}"
        )
    if strange:
        raise OptionRefused(
            f"{option} names {names_of(strange)}, which the query does not read; take it out"
        )


def _option(position: Position) -> str:
    return "the start" if isinstance(position, AtEnd) else position.option


def within_log(
    cluster: TopicsCluster,
    offsets: Offsets,
    *,
    earliest: Offsets,
    latest: Offsets,
    what: str,
    fails_on_data_loss: bool,
) -> dict[TopicPartition, int]:
    """Offsets that lie in the logs; `what` names the option that they come from.

    An offset out of range raises DataLoss, or moves to the nearest end of its log with a warning.
    One within an open transaction does the same, but raises ReadFailed: nothing is lost.
    """
    result = dict(offsets)
    above = [partition for partition, offset in offsets.items() if offset > latest[partition]]
    # The caller's `latest` may be older: the logs may have grown since.
    stable = cluster.latest(above) if above else {}
    high_watermarks = cluster.high_watermarks(above) if above else {}
    for partition, offset in sorted(offsets.items()):
        low, high = earliest[partition], latest[partition]
        if low <= offset <= high:
            continue
        given = f"{what} is {offset} for {name_of(partition)}"
        if partition in stable and stable[partition] < offset <= high_watermarks[partition]:
            _report_open_transaction(
                f"{given}, where a transaction is open from {stable[partition]} on",
                fails=fails_on_data_loss,
            )
        else:
            report_loss(
                f"{given}, whose log has offsets {low} to {high}",
                fails_on_data_loss=fails_on_data_loss,
            )
        result[partition] = min(max(offset, low), high)
    return result


def _report_open_transaction(happened: str, *, fails: bool) -> None:
    if fails:
        raise ReadFailed(
            f"{happened}; wait until it ends, or set kafka.isolation.level to read_uncommitted"
        )
    _log.warning("%s; failOnDataLoss is false, so the query ends or starts there", happened)


def report_loss(happened: str, *, fails_on_data_loss: bool) -> None:
    """Raise DataLoss, or log a warning. `happened`: a clause with the thing and the value."""
    if fails_on_data_loss:
        raise DataLoss(
            f"{happened}; choose offsets that exist, or set failOnDataLoss to false to read what "
            "is there"
        )
    _log.warning("%s; failOnDataLoss is false, so the query goes on", happened)


def check_order(start: Offsets, end: Offsets) -> None:
    """Raise OptionRefused for a partition whose given start lies above its given end."""
    for partition, offset in sorted(start.items()):
        if offset > end[partition]:
            raise OptionRefused(
                f"the start of {name_of(partition)} is {offset}, above its end {end[partition]}; "
                "correct startingOffsets or endingOffsets"
            )
