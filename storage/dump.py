"""What kafka-dump-log prints for a .log, .index or .timeindex file; the file is never changed.

Reads with its own checks and goes on behind nothing: at the first bytes that are no batch it says
so and stops. Values print as UTF-8. `.snapshot` and `.txnindex` files are not supported.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from runtime.disk import Disk, DiskFile
from runtime.errors import KvorumError
from storage.batch import (
    BATCH_LENGTH_MIN,
    HEADER_BYTES,
    BatchError,
    BatchHeader,
    Record,
    check_crc,
    iter_records,
    read_header,
)
from storage.compression import Codec
from storage.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX

_CONTROL_NAMES = {0: "ABORT", 1: "COMMIT"}


class DumpError(KvorumError):
    """A file that cannot be dumped; the message says which can."""


ControlText = Callable[[bytes, bytes], str | None]
"""What to print for a control record, given its key and value; None if it does not know it."""


def dump_lines(
    disk: Disk,
    path: str,
    *,
    deep_iteration: bool = False,
    print_data_log: bool = False,
    control_text: ControlText = lambda key, value: None,
) -> Iterator[str]:
    """Lines of text without newline. `print_data_log` adds keys and values to `deep_iteration`.

    control_text: names control records that mean nothing to storage, those of the quorum.
    Raises DumpError on a missing file or another kind of file, OSError.
    """
    if not disk.exists(path):
        raise DumpError(f"no such file: {path}")
    name = path.rpartition("/")[2]
    base, dot, _ = name.partition(".")
    suffix = name[len(base) :]
    if not dot or not base.isdigit() or suffix not in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        raise DumpError(f"cannot dump {name}: need a segment's .log, .index or .timeindex")
    yield f"Dumping {path}"
    if suffix == INDEX_SUFFIX:
        for offset, position in struct.iter_unpack(">ii", _entries(disk, path, 8)):
            yield f"offset: {int(base) + offset} position: {position}"
        return
    if suffix == TIME_INDEX_SUFFIX:
        for timestamp_ms, offset in struct.iter_unpack(">qi", _entries(disk, path, 12)):
            yield f"timestamp: {timestamp_ms} offset: {int(base) + offset}"
        return
    yield f"Log starting offset: {int(base)}"
    file = disk.open(path)
    try:
        is_deep = deep_iteration or print_data_log
        for line, control in _log_lines(file, is_deep, print_data_log):
            yield line if control is None else line + _control_text(control, control_text)
    finally:
        file.close()


def _entries(disk: Disk, path: str, entry_bytes: int) -> bytes:
    data = disk.read_bytes(path)
    # A preallocated index ends in zeros; none of its entries is all zero.
    kept = len(data) // entry_bytes
    while kept and not any(data[(kept - 1) * entry_bytes : kept * entry_bytes]):
        kept -= 1
    return data[: kept * entry_bytes]


def _log_lines(
    file: DiskFile, deep_iteration: bool, print_data_log: bool
) -> Iterator[tuple[str, Record | None]]:
    """Lines, each with the control record whose meaning is to follow."""
    position, size = 0, file.size()
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
        if deep_iteration and is_valid:
            try:
                for record in iter_records(batch, 0, header):
                    line = _record_line(header, record, print_data_log)
                    yield line, record if header.is_control else None
            except BatchError as error:
                yield f"| not readable: {error.reason}", None
        position += header.size_bytes
    if position < size:
        name = file.path.rpartition("/")[2]
        yield f"Found {size - position} invalid bytes at the end of {name}", None


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


def _record_line(header: BatchHeader, record: Record, print_data_log: bool) -> str:
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
    if print_data_log and not header.is_control:
        if record.key is not None:
            line += f" key: {record.key.decode('utf-8', 'replace')}"
        if record.value is not None:
            line += f" payload: {record.value.decode('utf-8', 'replace')}"
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
