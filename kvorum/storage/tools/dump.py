"""The output of kafka-dump-log for a file of a log's folder; the file is never changed.

The dump stops with a message at the first bytes that are not a batch. Values are printed as UTF-8.
For files other than .log see `dump_indexes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvorum.runtime.disk import Disk, DiskFile
from kvorum.runtime.errors import CorruptData, KvorumError
from kvorum.storage.files.file_names import INDEX_SUFFIXES, LOG_SUFFIX, SNAPSHOT_SUFFIX
from kvorum.storage.files.leader_epochs import CHECKPOINT_NAME
from kvorum.storage.format.batch import (
    BATCH_LENGTH_MIN,
    HEADER_BYTES,
    BatchError,
    BatchHeader,
    Record,
    check_crc,
    iter_records,
    read_header,
)
from kvorum.storage.format.compression import Codec
from kvorum.storage.tools.dump_indexes import (
    Complaints,
    IndexOptions,
    dump_epochs,
    dump_index,
    dump_snapshot,
    dump_time_index,
    dump_transaction_index,
)

_KINDS = (LOG_SUFFIX, *INDEX_SUFFIXES, SNAPSHOT_SUFFIX)
_CONTROL_NAMES = {0: "ABORT", 1: "COMMIT"}


class DumpError(KvorumError):
    """A file that cannot be dumped; the message names the kinds that can."""


ControlText = Callable[[bytes, bytes], str | None]
"""Returns the text of a control record for its key and value, None if it is unknown."""

RecordText = Callable[[bytes, bytes | None], tuple[str, str]]
"""Returns the texts of key and value for a record of an internal topic. Raises CorruptData."""


def dump_lines(
    disk: Disk,
    path: str,
    *,
    deep_iteration: bool = False,
    print_data_log: bool = False,
    index_options: IndexOptions = IndexOptions(),  # noqa: B008 frozen
    complaints: Complaints | None = None,
    control_text: ControlText = lambda key, value: None,
    record_text: RecordText | None = None,
) -> Iterator[str]:
    """The dump as lines without newline. `print_data_log` adds keys and values to `deep_iteration`.

    Raises DumpError on a missing file or an unknown kind of file, CorruptData on a damaged
    snapshot, transaction index or checkpoint, and OSError.

    complaints: collects inconsistencies.
    control_text: the texts of the quorum's control records, which storage does not know.
    record_text: prints keys and values in another form than UTF-8; implies print_data_log.
    """
    if not disk.exists(path):
        raise DumpError(f"no such file: {path}")
    complaints = Complaints() if complaints is None else complaints
    name = path.rpartition("/")[2]
    base, dot, kind = name.partition(".")
    suffix = dot + kind
    if name == CHECKPOINT_NAME:
        yield f"Dumping {path}"
        yield from dump_epochs(disk, path)
        return
    if not base.isdigit() or suffix not in _KINDS:
        raise DumpError(f"cannot dump {name}: need {CHECKPOINT_NAME} or {', '.join(_KINDS)}")
    yield f"Dumping {path}"
    match suffix:
        case ".index":
            yield from dump_index(disk, path, int(base), index_options, complaints)
        case ".timeindex":
            yield from dump_time_index(disk, path, int(base), index_options, complaints)
        case ".txnindex":
            yield from dump_transaction_index(disk, path)
        case ".snapshot":
            yield from dump_snapshot(disk, path)
        case _:
            yield f"Log starting offset: {int(base)}"
            is_deep = deep_iteration or print_data_log or record_text is not None
            text = record_text or (_as_utf8 if print_data_log else None)
            jumps: list[tuple[int, int]] = []
            file = disk.open(path)
            try:
                for line, control in _log_lines(file, is_deep, text, jumps, complaints.damage):
                    yield line if control is None else line + _control_text(control, control_text)
            finally:
                file.close()
            if jumps:
                complaints.not_consecutive[path] = jumps


def _log_lines(
    file: DiskFile,
    deep_iteration: bool,
    text: RecordText | None,
    jumps: list[tuple[int, int]],
    damage: list[str],
) -> Iterator[tuple[str, Record | None]]:
    """Lines of the dump, each with the control record whose text the caller appends to the line, or
        None.

    jumps: receives pairs of neighbouring offsets with a gap between.
    damage: receives faults.
    """
    position, size = 0, file.size()
    last_offset = -1
    while position < size:
        prefix = file.pread(HEADER_BYTES, position)
        if len(prefix) < HEADER_BYTES:
            break
        header = read_header(prefix, 0)
        if header.batch_length < BATCH_LENGTH_MIN or position + header.size_bytes > size:
            break
        batch = file.pread(header.size_bytes, position)
        is_valid = check_crc(batch, 0, header)
        yield _batch_line(header, position, is_valid), None
        if not is_valid:
            damage.append(f"{file.path} at byte {position}: the CRC does not match")
        if deep_iteration:
            try:
                for record in iter_records(batch, 0, header):
                    if last_offset >= 0 and record.offset != last_offset + 1:
                        jumps.append((last_offset, record.offset))
                    last_offset = record.offset
                    line = _record_line(header, record, text)
                    yield line, record if header.is_control else None
            except (BatchError, CorruptData) as error:
                damage.append(f"{file.path} at byte {position}: {error.reason}")
                yield f"| not readable: {error.reason}", None
        position += header.size_bytes
    if position < size:
        name = file.path.rpartition("/")[2]
        yield f"Found {size - position} invalid bytes at the end of {name}", None
        damage.append(f"{file.path} at byte {position}: {size - position} bytes are no batch")


def _timestamp_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _batch_line(header: BatchHeader, position: int, is_valid: bool) -> str:
    horizon = "OptionalLong.empty"
    if header.has_delete_horizon:
        horizon = f"OptionalLong[{header.base_timestamp_ms}]"
    codec = header.compression_code
    codec_name = Codec(codec).name.lower() if codec <= max(Codec) else f"unknown({codec})"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset}"
        f" count: {header.record_count} baseSequence: {header.base_sequence}"
        f" lastSequence: {header.last_sequence} producerId: {header.producer_id}"
        f" producerEpoch: {header.producer_epoch}"
        f" partitionLeaderEpoch: {header.leader_epoch}"
        f" isTransactional: {_java(header.is_transactional)}"
        f" isControl: {_java(header.is_control)} deleteHorizonMs: {horizon}"
        f" position: {position} {_timestamp_type(header)}: {header.max_timestamp_ms}"
        f" size: {header.size_bytes} magic: {header.magic} compresscodec: {codec_name}"
        f" crc: {header.crc} isvalid: {_java(is_valid)}"
    )


def _as_utf8(key: bytes, value: bytes | None) -> tuple[str, str]:
    return key.decode("utf-8", "replace"), (value or b"").decode("utf-8", "replace")


def _record_line(header: BatchHeader, record: Record, text: RecordText | None) -> str:
    key_size = -1 if record.key is None else len(record.key)
    value_size = -1 if record.value is None else len(record.value)
    sequence = -1
    if header.base_sequence >= 0:
        sequence = (header.base_sequence + record.offset - header.base_offset) % (1 << 31)
    header_keys = ",".join(key.decode("utf-8", "replace") for key, _ in record.headers)
    line = (
        f"| offset: {record.offset} {_timestamp_type(header)}: {record.timestamp_ms}"
        f" keySize: {key_size} valueSize: {value_size} sequence: {sequence}"
        f" headerKeys: [{header_keys}]"
    )
    if text is not None and not header.is_control:
        key, payload = text(record.key or b"", record.value)
        if record.key is not None:
            line += f" key: {key}"
        if record.value is not None or (text is not _as_utf8 and payload):
            line += f" payload: {payload}"
    return line


def _control_text(record: Record, control_text: ControlText) -> str:
    if record.key is None or len(record.key) < 4:
        return ""
    known = control_text(record.key, record.value or b"")
    if known is not None:
        return f" {known}"
    kind = int.from_bytes(record.key[2:4], "big", signed=True)
    if kind in _CONTROL_NAMES and record.value is not None and len(record.value) >= 6:
        epoch = int.from_bytes(record.value[2:6], "big", signed=True)
        return f" endTxnMarker: {_CONTROL_NAMES[kind]} coordinatorEpoch: {epoch}"
    return f" controlType: {kind}"


def _java(value: bool) -> str:
    return "true" if value else "false"
