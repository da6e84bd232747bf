"""Columns of whole numbers that grow without bound in bounded memory: what does not fit is spooled
to files in a temporary folder, and read back one partition at a time."""

from __future__ import annotations

import os
import tempfile
from array import array

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: Bytes that all columns of a spool hold in memory before they are written out.
BUFFERED_BYTES_MAX = 32 << 20
#: Columns below this size stay in memory: a file for a few numbers costs more than it frees.
_SPOOLED_BYTES_MIN = 4 << 10


class Column:
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
        """Everything, as an array of shape (rows, width)."""
        tail = np.array(self.buffer, dtype=np.int64)
        if self._spooled:
            head = np.fromfile(self._spool.path(self._number), dtype=np.int64)
            tail = np.concatenate((head, tail)) if len(tail) else head
        return tail.reshape(-1, self.width)

    def values(self) -> Ints:
        """Everything, as a flat array."""
        return self.rows().reshape(-1)


class Spool:
    """The columns of one history, and the temporary folder of their files."""

    def __init__(self, buffered_bytes_max: int = BUFFERED_BYTES_MAX) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._buffered_bytes_max = buffered_bytes_max
        self._columns: list[Column] = []

    def column(self, width: int = 1) -> Column:
        """A new column of this width."""
        column = Column(self, len(self._columns), width)
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
