"""Columns of whole numbers that grow without bound in bounded memory: what does not fit is spooled
to files in a temporary folder, and read back one partition and one field at a time.

A field is read in 32 bits where all its numbers fit, as values and offsets mostly do. NumPy's own
functions would take 64 bits for each place that they return, so those over a whole partition work
in blocks of BLOCK numbers.
"""

from __future__ import annotations

import os
import tempfile
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Whole numbers of 32 or of 64 bits.
Ints = NDArray[np.signedinteger[Any]]
Bools = NDArray[np.bool_]

#: Bytes that all columns of a spool hold in memory before they are written out.
BUFFERED_BYTES_MAX = 32 << 20
#: Numbers, or rows, that are worked on at once where a whole partition would not fit.
BLOCK = 1 << 18
_NARROW = np.iinfo(np.int32)
#: Columns below this size stay in memory: a file for a few numbers costs more than it frees.
_SPOOLED_BYTES_MIN = 4 << 10


class SpooledColumn:
    """Rows of `width` numbers of 64 bits. `extend` takes the numbers of one or more rows."""

    __slots__ = ("_number", "_spool", "_spooled", "buffer", "extend", "width")

    def __init__(self, spool: Spool, number: int, width: int) -> None:
        self.width = width
        self.buffer = array("q")
        self.extend = self.buffer.extend
        self._spool = spool
        self._number = number
        self._spooled = False

    def spool(self) -> None:
        """Append what is in memory to the file."""
        with open(self._spool.path(self._number), "ab") as file:
            self.buffer.tofile(file)
        self._spooled = True
        # The same array: `extend` is bound to it.
        del self.buffer[:]

    def rows(self) -> Ints:
        """Everything, as an array of shape (rows, width), in 64 bits."""
        blocks = list(self._blocks())
        if len(blocks) == 1:
            return blocks[0]
        return np.concatenate(blocks)

    def field(self, at: int = 0) -> Ints:
        """The number at this place of every row."""
        count = len(self.buffer) // self.width
        if self._spooled:
            count += os.path.getsize(self._spool.path(self._number)) // (8 * self.width)
        found: Ints = np.empty(count, dtype=np.int32)
        filled = 0
        for block in self._blocks():
            part = block[:, at]
            if found.dtype == np.int32 and not fits(part):
                found = found.astype(np.int64)
            found[filled : filled + len(part)] = part
            filled += len(part)
        return found

    def _blocks(self) -> Iterator[Ints]:
        """The rows in the order in which they came."""
        if self._spooled:
            with open(self._spool.path(self._number), "rb") as file:
                while len(read := np.fromfile(file, dtype=np.int64, count=BLOCK * self.width)):
                    yield read.reshape(-1, self.width)
        yield np.array(self.buffer, dtype=np.int64).reshape(-1, self.width)


def fits(numbers: Ints) -> bool:
    """True if 32 bits hold all of the numbers."""
    return not len(numbers) or bool(numbers.min() >= _NARROW.min and numbers.max() <= _NARROW.max)


def narrow(numbers: Ints) -> Ints:
    """The numbers in 32 bits, if they fit."""
    return numbers.astype(np.int32) if fits(numbers) else numbers


def blocks_of(count: int) -> Iterator[slice]:
    """Slices that cover `count` places, in order."""
    return (slice(begin, min(begin + BLOCK, count)) for begin in range(0, count, BLOCK))


class Spool:
    """The columns of one history, and the temporary folder of their files."""

    def __init__(self, buffered_bytes_max: int = BUFFERED_BYTES_MAX) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._buffered_bytes_max = buffered_bytes_max
        self._columns: list[SpooledColumn] = []

    def column(self, width: int = 1) -> SpooledColumn:
        """A new column of this width."""
        column = SpooledColumn(self, len(self._columns), width)
        self._columns.append(column)
        return column

    def path(self, number: int) -> str:
        """The file of a column. The first call makes the folder."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="kvorum-checks-")
        return os.path.join(self._folder.name, str(number))

    def trim(self) -> None:
        """Write the large columns out if all together hold too much memory."""
        held = sum(len(column.buffer) for column in self._columns) * 8
        if held <= self._buffered_bytes_max:
            return
        for column in self._columns:
            if len(column.buffer) * 8 >= _SPOOLED_BYTES_MIN:
                column.spool()

    def close(self) -> None:
        """Remove the files."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
