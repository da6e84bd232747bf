"""The fault board: the faults of one process's disk and clock, as the chaos lab sets them.

A file of fixed size that both sides map into memory. The lab writes the faults, the process reads
them at each call to its disk or clock, and counts the calls that a fault has hit. So a fault begins
and ends at once, without a signal or a request to the process, and an idle board costs a read of
memory. A process without a board has none of this code in its way (`runtime.machine`).

Every field is a signed 64-bit word in the machine's own byte order. A word is stored in one piece:
no reader sees half of a value. Code in other languages reads the same words.
"""

from __future__ import annotations

import enum
import mmap
import os
from array import array
from dataclasses import dataclass

from kvorum.runtime.errors import ConfigError

#: Identifies a board and the version of its layout: the bytes KVBOARD1.
MAGIC = int.from_bytes(b"KVBOARD1", "little")
WORDS = 16
SIZE_BYTES = 8 * WORDS
UNLIMITED = -1


class Word(enum.IntEnum):
    """The place of each field. The process under test writes USED_BYTES and what follows it."""

    MAGIC = 0
    SYNC_DELAY_US = 1
    SYNC_ERRNO = 2
    WRITE_ERRNO = 3
    ROOM_BYTES = 4
    CLOCK_OFFSET_MS = 5
    USED_BYTES = 8
    DELAYED_SYNCS = 9
    FAILED_CALLS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The faults of one process's disk and clock; the defaults are those of a healthy one.

    sync_delay_us: added to every fsync.
    sync_errno, write_errno: of every fsync, of every write; 0 for none.
    room_bytes: by which files may still grow, UNLIMITED for no limit.
    clock_offset_ms: added to the wall clock.
    """

    sync_delay_us: int = 0
    sync_errno: int = 0
    write_errno: int = 0
    room_bytes: int = UNLIMITED
    clock_offset_ms: int = 0


HEALTHY = Conditions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """The calls of the process that faults have hit since the board was made."""

    delayed_syncs: int
    failed_calls: int


class FaultBoard:
    """One mapped board. The words are the attribute `words`, for the hot paths of the reader."""

    __slots__ = ("_map", "path", "words")

    def __init__(self, path: str) -> None:
        """Map a board that `create_board` has made. Raises ConfigError for any other file."""
        self.path = path
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigError(f"the fault board {path} cannot be opened: {error}") from error
        try:
            size = os.fstat(fd).st_size
            if size != SIZE_BYTES:
                raise ConfigError(
                    f"{path} is no fault board: it has {size} bytes, not {SIZE_BYTES}; the chaos "
                    "lab makes these files"
                )
            self._map = mmap.mmap(fd, SIZE_BYTES)
        finally:
            os.close(fd)
        self.words: memoryview[int] = memoryview(self._map).cast("q")
        found = self.words[Word.MAGIC]
        if found != MAGIC:
            self.close()
            raise ConfigError(
                f"{path} is no fault board of this version: it begins with {found:#x}, not "
                f"{MAGIC:#x}; use nodes and a chaos lab of one build"
            )

    def set(self, conditions: Conditions) -> None:
        """Put these faults into force, in place of those before. The lab's side only.

        The bytes in use count from zero again when the room changes.
        """
        words = self.words
        if words[Word.ROOM_BYTES] != conditions.room_bytes:
            words[Word.USED_BYTES] = 0
        words[Word.ROOM_BYTES] = conditions.room_bytes
        words[Word.SYNC_DELAY_US] = conditions.sync_delay_us
        words[Word.SYNC_ERRNO] = conditions.sync_errno
        words[Word.WRITE_ERRNO] = conditions.write_errno
        words[Word.CLOCK_OFFSET_MS] = conditions.clock_offset_ms

    def conditions(self) -> Conditions:
        """The faults in force."""
        words = self.words
        return Conditions(
            sync_delay_us=words[Word.SYNC_DELAY_US],
            sync_errno=words[Word.SYNC_ERRNO],
            write_errno=words[Word.WRITE_ERRNO],
            room_bytes=words[Word.ROOM_BYTES],
            clock_offset_ms=words[Word.CLOCK_OFFSET_MS],
        )

    def hits(self) -> Hits:
        """The counts that the process under test has written."""
        return Hits(
            delayed_syncs=self.words[Word.DELAYED_SYNCS],
            failed_calls=self.words[Word.FAILED_CALLS],
        )

    def close(self) -> None:
        """Unmap the board; may be called again."""
        self.words.release()
        self._map.close()


def create_board(path: str) -> FaultBoard:
    """Write a board of a healthy disk and clock, and map it. Raises OSError."""
    words = array("q", bytes(SIZE_BYTES))
    words[Word.MAGIC] = MAGIC
    words[Word.ROOM_BYTES] = UNLIMITED
    with open(path, "wb") as file:
        words.tofile(file)
    return FaultBoard(path)
