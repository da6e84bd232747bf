"""The metadata held by one source, and the cluster's image at any offset within it.

A source is a cluster, a checkpoint file or a node's folder. All have the same form here: snapshots,
and a run of record batches with its end. Nothing in this module waits or reads a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from kvorum.metadata.configs.secrets import record_to_dict
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.metadata.image.record_codec import UnreadableRecord, decode_record
from kvorum.metadata.image.records import Record
from kvorum.metadata.image.snapshot_job import records_in
from kvorum.raft.node.control_text import control_text
from kvorum.runtime.errors import CorruptData, InvariantViolated, KvorumError
from kvorum.snapshots.format import SnapshotHeader, decode_file
from kvorum.storage.format.batch import BatchError, BatchHeader, iter_headers, iter_records


class OffsetNotHeld(KvorumError):
    """An offset outside the source's range; the message names the range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One record of the metadata log. record: None for a control record of the quorum.

    type, version: of the metadata record's class, or Kafka's name of the control record.
    fields: by name; uuids are bytes.
    """

    offset: int
    epoch: int
    timestamp_ms: int
    type: str
    version: int
    fields: dict[str, Any]
    record: Record | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataCopy:
    """Committed metadata that a node sent.

    snapshot: a whole checkpoint file, empty if the log begins at offset 0.
    records: the batches behind it.
    high_watermark: their end (exclusive).
    """

    snapshot: bytes = b""
    records: bytes = b""
    high_watermark: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataHistory:
    """The metadata of one source. name: of the source, in messages.

    snapshots: whole checkpoint files with their headers, ascending. There is at least one unless
        the log begins at 0; the log begins at or below the end of the first.
    records: whole batches without a gap, from log_start_offset up to end_offset (exclusive); empty
        if the two are equal.
    notes: sentences with facts that a reader of the source must know.
    origin: an identity that `extended` keeps. A history with another origin was read from the
        beginning of its source, which may by then belong to another cluster.
    """

    name: str
    snapshots: tuple[tuple[SnapshotHeader, bytes], ...] = ()
    records: bytes = b""
    log_start_offset: int = 0
    end_offset: int = 0
    notes: tuple[str, ...] = ()
    origin: object = field(default_factory=object, compare=False, repr=False)

    @property
    def first_offset(self) -> int:
        """The lowest offset with an image."""
        # A log that begins at 0 needs no snapshot, even if there is one.
        return self.snapshots[0][0].end_offset if self.log_start_offset > 0 else 0

    def image_at(self, at_offset: int | None = None) -> ClusterImage:
        """The cluster after all records below at_offset; None means all records.

        An offset inside a batch gives a part of a decision. Raises OffsetNotHeld, CorruptData,
        UnreadableRecord.
        """
        stop = self.end_offset if at_offset is None else at_offset
        self._check(stop)
        held = [s for s in self.snapshots if s[0].end_offset <= stop]
        image = _image_of_file(self.name, held[-1][1]) if held else EMPTY_IMAGE
        return self.advance(image, stop)

    def advance(self, image: ClusterImage, stop: int) -> ClusterImage:
        """`image`, which is of this history, with the records up to `stop` (exclusive) applied.

        Raises CorruptData, UnreadableRecord.
        """
        if stop <= image.end_offset:
            return image
        delta = Delta(image)
        end_offset, epoch = image.end_offset, image.epoch
        for entry in self.entries(end_offset, stop, with_fields=False):
            if entry.record is not None:
                try:
                    delta.replay(entry.record)
                except InvariantViolated as error:
                    # The data is damaged: no Kvorum node wrote such a record.
                    raise CorruptData(
                        self.name, 0, f"the record at offset {entry.offset}: {error}"
                    ) from error
            end_offset, epoch = entry.offset + 1, entry.epoch
        return delta.apply(end_offset=end_offset, epoch=epoch)

    def entries(
        self, start: int | None = None, stop: int | None = None, *, with_fields: bool = True
    ) -> Iterator[LogEntry]:
        """Records of the log in [start, stop), as far as the log has them; by default all.

        with_fields: False leaves `fields` empty. Raises CorruptData, UnreadableRecord.
        """
        first = self.log_start_offset if start is None else start
        last = self.end_offset if stop is None else stop
        position = 0
        try:
            for position, header in iter_headers(self.records):
                if header.end_offset <= first:
                    continue
                if header.base_offset >= last:
                    return
                for entry in entries_of(self.records, position, header, with_fields=with_fields):
                    if first <= entry.offset < last:
                        yield entry
        except BatchError as error:
            raise CorruptData(self.name, position, error.reason) from error
        except UnreadableRecord as error:
            raise UnreadableRecord(f"{self.name}: {error}") from error

    def timestamp_at(self, at_offset: int | None = None) -> int:
        """Timestamp (ms) of the last record below at_offset; 0 if there is none."""
        stop = self.end_offset if at_offset is None else at_offset
        self._check(stop)
        if self.log_start_offset < stop:
            (last,) = self.entries(stop - 1, stop, with_fields=False)
            return last.timestamp_ms
        held = [header for header, _ in self.snapshots if header.end_offset <= stop]
        return held[-1].timestamp_ms if held else 0

    def check_log_range(self, start: int, stop: int) -> None:
        """Raise OffsetNotHeld unless the log holds every record of [start, stop)."""
        if not self.log_start_offset <= start <= stop <= self.end_offset:
            raise OffsetNotHeld(
                f"{self.name} holds the log's records from {self.log_start_offset} to "
                f"{self.end_offset} (exclusive), not from {start} to {stop}"
            )

    def extended(self, copy: MetadataCopy) -> MetadataHistory:
        """This history with `copy` appended, which was read from end_offset on.

        A copy that begins with a snapshot replaces the history, because the log was trimmed
        meanwhile.
        """
        if copy.snapshot:
            return history_of(copy, name=self.name)
        return replace(
            self,
            records=self.records + copy.records,
            end_offset=_end_of(copy.records, self.end_offset),
        )

    def _check(self, offset: int) -> None:
        first = self.first_offset
        if first <= offset <= self.end_offset:
            return
        range_text = f"{first} to {self.end_offset}" if first < self.end_offset else str(first)
        raise OffsetNotHeld(f"{self.name} has no image at offset {offset}: it reaches {range_text}")


def history_of(copy: MetadataCopy, *, name: str) -> MetadataHistory:
    """The history in a copy that a node sent. Raises CorruptData."""
    base = 0
    snapshots: tuple[tuple[SnapshotHeader, bytes], ...] = ()
    if copy.snapshot:
        header, _ = decode_file(copy.snapshot, name)
        base, snapshots = header.end_offset, ((header, copy.snapshot),)
    start = next((header.base_offset for _, header in iter_headers(copy.records)), base)
    return MetadataHistory(
        name=name,
        snapshots=snapshots,
        records=copy.records,
        log_start_offset=start,
        end_offset=_end_of(copy.records, base),
    )


def image_of(copy: MetadataCopy) -> ClusterImage:
    """The image of a copy. Raises CorruptData, UnreadableRecord."""
    return history_of(copy, name="the copy received").image_at()


def _end_of(records: bytes, base: int) -> int:
    end_offset = base
    for _, header in iter_headers(records):
        end_offset = header.end_offset
    return end_offset


def _image_of_file(name: str, data: bytes) -> ClusterImage:
    header, payloads = decode_file(data, name)
    delta = Delta(EMPTY_IMAGE)
    try:
        for payload in payloads:
            delta.replay_all(records_in(payload))
    except InvariantViolated as error:
        raise CorruptData(name, 0, f"its records do not fit each other: {error}") from error
    except UnreadableRecord as error:
        raise UnreadableRecord(f"{name}: {error}") from error
    return delta.apply(end_offset=header.end_offset, epoch=header.epoch)


def entries_of(
    data: bytes, position: int, header: BatchHeader, *, with_fields: bool
) -> Iterator[LogEntry]:
    """The records of the batch at `position`. Raises BatchError, UnreadableRecord."""
    for logged in iter_records(data, position, header):
        record: Record | None = None
        kind, version, fields = "Control", 0, {}
        if not header.is_control and logged.value is not None:
            record = decode_record(logged.value)
            kind, version = type(record).__name__, record.VERSION
            fields = record_to_dict(record) if with_fields else {}
        elif with_fields:
            kind, version, fields = _control(logged.key or b"", logged.value or b"")
        yield LogEntry(
            offset=logged.offset,
            epoch=header.leader_epoch,
            timestamp_ms=logged.timestamp_ms,
            type=kind,
            version=version,
            fields=fields,
            record=record,
        )


def _control(key: bytes, value: bytes) -> tuple[str, int, dict[str, Any]]:
    text = control_text(key, value) or ""
    kind, separator, body = text.partition(" ")
    if not separator or not body.startswith("{"):
        return "Control", 0, {"key": key.hex(), "value": value.hex()}
    fields: dict[str, Any] = json.loads(body)
    return kind.rstrip(":"), int(fields.pop("version", 0)), fields
