"""A decaying disk: flips one stored byte, and examines the result of recovery.

It flips bytes of snapshots, which are all under a checksum, and bytes that Kafka's batch format
protects: the length, the magic and everything under the CRC. The base offset and the leader epoch
of a batch are outside its checksum (brokers write them into clients' batches), and quorum-state has
no checksum. Recovery cannot notice damage there, so the simulator does not flip those bytes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kvorum.chaos.sim.kernel.checks import check
from kvorum.chaos.sim.quorum.model.mirror import Mirror
from kvorum.chaos.sim.quorum.model.recovery import DiskSettings, open_node
from kvorum.runtime.errors import CorruptData
from kvorum.runtime.memory_disk import MemoryDisk
from kvorum.snapshots.format import parse_file_name
from kvorum.storage.files.file_names import LOG_SUFFIX
from kvorum.storage.format.batch import iter_headers

_LENGTH_START, _LENGTH_END = 8, 12
_MAGIC_START = 16


class Damage(enum.Enum):
    """The outcome of a flipped byte."""

    NONE = "there was nothing to damage"
    HARMLESS = "everything that was fsynced is still read as it was"
    CUT = "taken for a torn tail, which costs what had been fsynced"
    REFUSED = "refused by name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flipped:
    """The place of a flipped byte. end_offset: of its batch, -1 for a byte of a snapshot."""

    path: str
    position: int
    end_offset: int

    def __str__(self) -> str:
        return f"{self.path} at byte {self.position}"


def flip_byte(disk: MemoryDisk, directory: str, *, draw: int, mask: int) -> Flipped | None:
    """Flip byte number `draw` of the protected bytes, modulo their number; None if there are
    none."""
    spans: list[tuple[str, int, int, int]] = []
    for name in disk.list_dir(directory):
        path = f"{directory}/{name}"
        if parse_file_name(name) is not None:
            spans.append((path, 0, len(disk.read_bytes(path)), -1))
        if not name.endswith(LOG_SUFFIX):
            continue
        for position, header in iter_headers(disk.read_bytes(path)):
            for start, end in ((_LENGTH_START, _LENGTH_END), (_MAGIC_START, header.size_bytes)):
                spans.append((path, position + start, position + end, header.end_offset))
    total = sum(end - start for _, start, end, _ in spans)
    index = draw % total if total else 0
    for path, start, end, end_offset in spans:
        if index < end - start:
            disk.flip_bits(path, start + index, mask)
            return Flipped(path=path, position=start + index, end_offset=end_offset)
        index -= end - start
    return None


def examine(
    disk: MemoryDisk,
    directory: str,
    settings: DiskSettings,
    *,
    flipped: Flipped,
    durable: Mirror,
    durable_end_offset: int,
    now_ms: int,
) -> Damage:
    """Open the damaged disk as a starting node would, and return the outcome.

    Raises CheckFailed if recovery reads anything but the fsynced bytes, or drops fsynced records
    after the damage: it may cut a torn tail and must refuse any other damage. Changes the disk as
    recovery does; save the disk before.
    """
    try:
        opened = open_node(disk, settings, now_ms=now_ms)
    except CorruptData as error:
        check(error.path.startswith(directory), "DamageDetected", f"names no file: {error}")
        return Damage.REFUSED
    if flipped.end_offset < 0:
        names = [error.path for error in opened.metadata.damaged]
        check(
            flipped.path in names or not disk.exists(flipped.path),
            "DamageDetected",
            f"{flipped}: recovery takes the damaged snapshot, it refuses {names}",
        )
    found = opened.mirror
    kept_end = min(found.end_offset, durable_end_offset)
    digest = durable.digest_at(kept_end)
    if found.start_offset >= durable_end_offset:
        # A snapshot that had been received before the stop replaced the log. The checks that every
        # start of a node passes compare that snapshot with the committed state.
        return Damage.HARMLESS
    check(
        found.digest_at(kept_end) == digest,
        "DamageDetected",
        f"{directory} serves damaged records from {found.differs_at(durable)} on",
    )
    if kept_end == durable_end_offset:
        return Damage.HARMLESS
    check(
        flipped.end_offset >= durable_end_offset,
        "DamageDetected",
        f"{flipped}: recovery kept {kept_end} of {durable_end_offset} fsynced records, although "
        f"good ones follow the damaged batch, which ends at {flipped.end_offset}",
    )
    return Damage.CUT
