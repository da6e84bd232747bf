"""Verifies that the files of a log's folder are valid and consistent. Reads only.

Nobody may write to the folder meanwhile: a running broker may have written only half of the last
batch. Memory: one buffer of batches. Gaps between offsets are reported as notes, because compaction
leaves them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData
from kvorum.storage.files.checkpoints import (
    LOG_START_OFFSET,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT,
    read_offsets,
    read_partition_metadata,
)
from kvorum.storage.files.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    METADATA_LOG_FOLDER,
    RECOVERY_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
    offsets_of,
    replica_of,
)
from kvorum.storage.files.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from kvorum.storage.files.leader_epochs import CHECKPOINT_NAME, LeaderEpochCache, read_epochs
from kvorum.storage.files.producer_state import read_snapshot
from kvorum.storage.format.batch_stream import StoredBatch, stored_batches
from kvorum.storage.recovery.missing_files import check_first_segment
from kvorum.storage.recovery.recovery_state import verify_recovery_state
from kvorum.storage.tools.dump_indexes import Complaints, IndexOptions, dump_index, dump_time_index
from kvorum.storage.tools.verify_transactions import TransactionCheck

_BUFFER_BYTES = 1 << 20
_LEFTOVERS = (DELETED_SUFFIX, ".cleaned", ".swap", ".tmp")


@dataclass(slots=True)
class Verified:
    """The result for a folder.

    problems: sentences, each naming its file.
    notes: unusual facts that are no fault, such as files that the next start removes.
    missing_offsets: number of offsets between start and end that no batch holds.
    largest_gap: the longest run of them, [first, next).
    """

    segments: int = 0
    batches: int = 0
    records: int = 0
    start_offset: int = 0
    end_offset: int = 0
    missing_offsets: int = 0
    largest_gap: tuple[int, int] = (0, 0)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def pass_to(self, offset: int) -> None:
        """Count the gap, if any, before the next batch or segment, which begins at `offset`."""
        gap = offset - self.end_offset
        if gap <= 0:
            return
        self.missing_offsets += gap
        if gap > self.largest_gap[1] - self.largest_gap[0]:
            self.largest_gap = (self.end_offset, offset)
        self.end_offset = offset


def verify_log(disk: Disk, directory: str) -> Verified:
    """Check every batch and every other file in the folder. Raises OSError."""
    found = Verified()
    names = disk.list_dir(directory)
    present = set(names)
    bases = offsets_of(names, LOG_SUFFIX)
    epochs = _epochs(disk, directory, present, found)
    complaints = Complaints()
    transactions = TransactionCheck()
    is_sound = True
    for base_offset in bases:
        if found.segments and base_offset < found.end_offset:
            found.problems.append(
                f"{directory}/{file_name(base_offset, LOG_SUFFIX)}: begins at {base_offset}, below"
                f" the end of the segment before it, {found.end_offset}"
            )
        if not found.segments:
            found.start_offset = found.end_offset = base_offset
        found.segments += 1
        found.pass_to(base_offset)
        transactions.begin_segment()
        largest_ms = -1
        path = f"{directory}/{file_name(base_offset, LOG_SUFFIX)}"
        try:
            for batch in _verify_batches(disk, path, base_offset, epochs, found):
                transactions.take(path, batch)
                largest_ms = max(largest_ms, batch[1].record_timestamp_max_ms)
        except CorruptData as damage:
            found.problems.append(str(damage))
            is_sound = False
        # Kafka pads the index files of the active segment with zeros, and only those.
        is_padded = base_offset == bases[-1]
        found.problems += _index_problems(
            disk, directory, base_offset, present, complaints, largest_ms, is_padded=is_padded
        )
        if present & {file_name(base_offset, suffix) for suffix in INDEX_SUFFIXES}:
            # The transaction index of an active segment is still in memory.
            found.problems += transactions.problems(disk, directory, base_offset, present)
    if bases and file_name(bases[-1], RECOVERY_SUFFIX) in present:
        # The recovery state of a sealed segment is a leftover and is never read.
        found.problems += verify_recovery_state(disk, directory, bases[-1])
    found.problems += complaints.lines()
    found.problems += _missing_logs(directory, names)
    found.problems += _identity_problems(disk, directory, present)
    if bases:
        try:
            check_first_segment(directory, names, epochs, bases[0])
        except CorruptData as damage:
            found.problems.append(str(damage))
    if is_sound:
        # After damage the end of the log is unknown.
        found.problems += _missing_end(disk, directory, found.end_offset)
    for offset in offsets_of(names, SNAPSHOT_SUFFIX):
        path = f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"
        try:
            read_snapshot(disk, path)
        except CorruptData as damage:
            found.problems.append(str(damage))
    if not bases and not found.problems:
        _note_no_log(directory, present, found)
    _note_unusual(directory, names, found)
    return found


def _note_no_log(directory: str, present: set[str], found: Verified) -> None:
    is_metadata_log = directory.rpartition("/")[2] == METADATA_LOG_FOLDER
    if PARTITION_METADATA in present or is_metadata_log:
        found.notes.append(
            f"{directory}: nothing to verify: there is no .log file yet, since a replica's files "
            "are made with its first record"
        )
    else:
        found.problems.append(
            f"{directory}: there is no .log file in it; name the folder of a partition, such as "
            "data/broker-101/orders-0"
        )


def _note_unusual(directory: str, names: list[str], found: Verified) -> None:
    leftovers = Counter(
        f".{name.rpartition('.')[2]}" for name in names if name.endswith(_LEFTOVERS)
    )
    if found.missing_offsets:
        first, following = found.largest_gap
        found.notes.append(
            f"{directory}: {found.missing_offsets} offsets are in no batch, the most of them at "
            f"once from {first} to {following - 1}. Compaction leaves such gaps, and so does a "
            "removed file"
        )
    if leftovers:
        kinds = ", ".join(f"{count} {suffix}" for suffix, count in sorted(leftovers.items()))
        found.notes.append(
            f"{directory}: {leftovers.total()} files left over ({kinds}); a broker at work removes "
            "them in a while, the next start sees to what a crash has left"
        )


def _missing_logs(directory: str, names: list[str]) -> Iterator[str]:
    """Index files without their .log; each shows that a .log is missing."""
    bases = set(offsets_of(names, LOG_SUFFIX))
    for suffix in INDEX_SUFFIXES:
        for base_offset in offsets_of(names, suffix):
            if base_offset not in bases:
                yield (
                    f"{directory}/{file_name(base_offset, suffix)}: there is no "
                    f"{file_name(base_offset, LOG_SUFFIX)}"
                )


def _identity_problems(disk: Disk, directory: str, present: set[str]) -> Iterator[str]:
    """Faults that keep a broker from opening the log, even if its records are valid."""
    above, _, name = directory.rpartition("/")
    try:
        read_partition_metadata(disk, directory)
    except CorruptData as damage:
        yield str(damage)
    is_in_place = replica_of(name) is not None and disk.exists(f"{above or '.'}/{META_PROPERTIES}")
    # The topic of the metadata log has a fixed id, so Kvorum writes no file for it; Kafka does.
    needs_file = is_in_place and name != METADATA_LOG_FOLDER
    if needs_file and PARTITION_METADATA not in present:
        yield (
            f"{directory}/{PARTITION_METADATA}: is not there, so nothing says whose log this is; "
            "put it back (version: 0, topic_id: as `kvorum topics describe` has it)"
        )


def _missing_end(disk: Disk, directory: str, end_offset: int) -> Iterator[str]:
    """Signs that the log was longer: the checkpoint above, if the folder is in a data directory."""
    above, _, name = directory.rpartition("/")
    key = replica_of(name)
    if key is None:
        return
    checkpoint = f"{above or '.'}/{RECOVERY_POINT}"
    try:
        flushed = read_offsets(disk, checkpoint).get(key, 0)
        # A log whose records were all deleted is empty and begins at its old end.
        start = read_offsets(disk, f"{above or '.'}/{LOG_START_OFFSET}").get(key, 0)
    except CorruptData as damage:
        yield str(damage)
        return
    if max(end_offset, start) < flushed:
        yield (
            f"{directory}: ends at {end_offset}, and {checkpoint} says that it was flushed up to "
            f"{flushed}: .log files are gone, or the end of one is"
        )


def _epochs(
    disk: Disk, directory: str, present: set[str], found: Verified
) -> LeaderEpochCache | None:
    if CHECKPOINT_NAME not in present:
        return None
    try:
        return read_epochs(disk, f"{directory}/{CHECKPOINT_NAME}")
    except CorruptData as damage:
        found.problems.append(str(damage))
        return None


def _verify_batches(
    disk: Disk,
    path: str,
    base_offset: int,
    epochs: LeaderEpochCache | None,
    found: Verified,
) -> Iterator[StoredBatch]:
    """All batches of the segment, each checked. Raises CorruptData on a damaged batch."""
    latest_epoch = -1
    file = disk.open(path)
    try:
        for run in stored_batches(
            file, size=file.size(), base_offset=base_offset, buffer_bytes=_BUFFER_BYTES
        ):
            for batch in run:
                position, header, _ = batch
                epoch = header.leader_epoch
                if epoch < latest_epoch:
                    found.problems.append(
                        f"{path}: byte {position}: epoch {epoch} after epoch {latest_epoch}"
                    )
                latest_epoch = max(epoch, latest_epoch)
                known = -1 if epochs is None else epochs.epoch_of(header.last_offset)
                if known not in (-1, epoch):
                    found.problems.append(
                        f"{path}: byte {position}: epoch {epoch}, {CHECKPOINT_NAME} says {known}"
                    )
                found.pass_to(header.base_offset)
                found.batches += 1
                found.records += header.record_count
                found.end_offset = header.end_offset
                yield batch
    finally:
        file.close()


def _index_problems(
    disk: Disk,
    directory: str,
    base_offset: int,
    present: set[str],
    complaints: Complaints,
    largest_ms: int,
    *,
    is_padded: bool,
) -> Iterator[str]:
    """Faults of the index files. largest_ms: the largest timestamp found in the segment."""

    def path_of(suffix: str) -> str | None:
        name = file_name(base_offset, suffix)
        return f"{directory}/{name}" if name in present else None

    options = IndexOptions(verify_only=True)
    log_size_bytes = _size_of(disk, f"{directory}/{file_name(base_offset, LOG_SUFFIX)}")
    if (path := path_of(INDEX_SUFFIX)) is not None:
        data = disk.read_bytes(path)
        entries = _used(data, OFFSET_ENTRY_BYTES) if is_padded else data
        reason = OffsetIndex(base_offset).load(entries, log_size_bytes=log_size_bytes)
        if reason is not None:
            yield f"{path}: {reason}"
        elif entries:
            list(dump_index(disk, path, base_offset, options, complaints))
    if (path := path_of(TIME_INDEX_SUFFIX)) is not None:
        data = disk.read_bytes(path)
        entries = _used(data, TIME_ENTRY_BYTES) if is_padded else data
        time_index = TimeIndex(base_offset)
        reason = time_index.load(entries)
        if reason is not None:
            yield f"{path}: {reason}"
        elif entries:
            list(dump_time_index(disk, path, base_offset, options, complaints))
        if reason is None and not is_padded and time_index.last()[0] < largest_ms:
            # A sealed segment has an entry for its largest timestamp.
            yield (
                f"{path}: has nothing of timestamp {largest_ms}, the largest in the segment; a "
                "search by time would pass records over"
            )


def _size_of(disk: Disk, path: str) -> int:
    file = disk.open(path)
    try:
        return file.size()
    finally:
        file.close()


def _used(data: bytes, entry_bytes: int) -> bytes:
    """The entries without the zeros with which a running broker of Apache Kafka pads the file."""
    used = len(data.rstrip(b"\0"))
    return data[: min(len(data), -(-used // entry_bytes) * entry_bytes)]
