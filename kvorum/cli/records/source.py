"""Lines of a file or a pipe as they come, so that a slow writer's lines are sent at once."""

from __future__ import annotations

import os
import select

from kvorum.client.failures import CommandFailed

CHUNK_BYTES = 256 << 10
LINE_BYTES_MAX = 100 << 20
"""Kafka's own limit of a request; a longer line is a binary file by mistake."""


class LineSource:
    """The lines of an open file, without their ends. The last line may lack its end."""

    def __init__(self, number: int, name: str) -> None:
        self._number = number
        self._name = name
        self._parts: list[bytes] = []
        self._size = 0
        self.is_at_end = False

    def read(self, wait_s: float | None) -> list[bytes]:
        """The next lines; none if nothing comes within the time (None: for ever), or at the end.

        Raises CommandFailed for a line that no record can hold.
        """
        if self.is_at_end or not select.select([self._number], [], [], wait_s)[0]:
            return []
        chunk = os.read(self._number, CHUNK_BYTES)
        if not chunk:
            self.is_at_end = True
            rest = b"".join(self._parts)
            self._parts.clear()
            return [rest] if rest else []
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if lines:
            self._parts.append(lines[0])
            lines[0] = b"".join(self._parts)
            self._parts, self._size = [], 0
        self._parts.append(rest)
        self._size += len(rest)
        if self._size > LINE_BYTES_MAX:
            raise CommandFailed(
                f"{self._name}: a line has more than {LINE_BYTES_MAX} bytes; "
                "--whole-file sends a file as one record"
            )
        return lines
