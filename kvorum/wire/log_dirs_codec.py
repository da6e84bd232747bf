"""DescribeLogDirs: additional fields beyond Kafka's, and a hand-written reader of the response.

Kafka's response has no field for a directory's id, nor for the reason why it is offline. Kvorum
adds tagged fields, which by KIP-482 every client must skip. Not every library does, so only
Kvorum's own command line gets them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from kvorum.wire.primitives import Reader

OWN_CLIENT_ID = "kvorum-cli"
"""The client id that gets the additional fields."""

DIRECTORY_ID_TAG = 10_000
REASON_TAG = 10_001
OFFLINE_TAG = 10_002
CORDONED_TAG = 10_003
"""Tags within a directory's result, far above those that Kafka will use."""
OFFLINE_NAMES_MAX = 20
"""Limit of named offline replicas in an online directory; all of them are counted."""
_COUNT = struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedReplica:
    """One replica in a data directory.

    is_future: a move fills it, and it will take the place of the replica in another directory.
    """

    topic: str
    partition_id: int
    size_bytes: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedDirectory:
    """One data directory of a DescribeLogDirs response.

    directory_id: 16 bytes; None if the broker does not send it or could not read it.
    contents: the replicas in it, those that move to it included.
    is_cordoned: it takes no new replicas (KIP-1066).
    total_bytes, usable_bytes: of the file system, -1 if unknown.
    offline: number of offline (damaged) replicas in an online directory, None if the broker does
        not send it.
    offline_names: the folder names of the first of them.
    """

    error: int
    path: str
    directory_id: bytes | None
    reason: str
    contents: tuple[DescribedReplica, ...]
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool = False
    offline: int | None = None
    offline_names: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Of all that is in it."""
        return sum(replica.size_bytes for replica in self.contents)

    @property
    def replicas(self) -> int:
        """Number of replicas, without those that move to it."""
        return sum(not replica.is_future for replica in self.contents)


def pack_offline(names: Sequence[str]) -> bytes:
    """The value of OFFLINE_TAG: the number, and the first names in a space-separated text."""
    return _COUNT.pack(len(names)) + " ".join(names[:OFFLINE_NAMES_MAX]).encode()


def _read_offline(data: bytes | None) -> tuple[int | None, tuple[str, ...]]:
    if data is None or len(data) < _COUNT.size:
        return None, ()
    text = data[_COUNT.size :].decode("utf-8", "replace")
    return _COUNT.unpack_from(data)[0], tuple(text.split())


def read_answer(data: bytes) -> tuple[int, list[DescribedDirectory]]:
    """(error code, directories) from the body of a v4 response. Raises WireError."""
    reader = Reader(data, 0, len(data))
    reader.int32()  # throttle time
    error = reader.int16()
    found = [_directory(reader) for _ in range(reader.array_count(True))]
    reader.skip_tags()
    return error, found


def _directory(reader: Reader) -> DescribedDirectory:
    error, path = reader.int16(), reader.string(True)
    contents = []
    for _ in range(reader.array_count(True)):
        topic = reader.string(True) or ""
        for _ in range(reader.array_count(True)):
            partition_id, size_bytes, _ = reader.int32(), reader.int64(), reader.int64()
            contents.append(
                DescribedReplica(
                    topic=topic,
                    partition_id=partition_id,
                    size_bytes=size_bytes,
                    is_future=reader.buffer[reader.skip(1)] != 0,
                )
            )
            reader.skip_tags()
        reader.skip_tags()
    total_bytes, usable_bytes = reader.int64(), reader.int64()
    own = {tag: bytes(reader.buffer[at : at + length]) for tag, at, length in reader.tags()}
    offline, names = _read_offline(own.get(OFFLINE_TAG))
    return DescribedDirectory(
        error=error,
        path=path,
        directory_id=own.get(DIRECTORY_ID_TAG),
        reason=own.get(REASON_TAG, b"").decode("utf-8", "replace"),
        contents=tuple(contents),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        is_cordoned=CORDONED_TAG in own,
        offline=offline,
        offline_names=names,
    )
