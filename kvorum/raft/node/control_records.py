"""Control records of the quorum, in Kafka's own format (KIP-595, KIP-853).

The key of a control record is an int16 version and an int16 type; its value is a flexible struct.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kvorum.raft.model.voters import VOTERS_MAX, Voter, VoterSet
from kvorum.runtime.errors import WireError, invariant
from kvorum.storage.format.batch import build_batch

LEADER_CHANGE = 2
KRAFT_VERSION = 5
KRAFT_VOTERS = 6

LISTENER_NAME = "CONTROLLER"
_KEY = struct.Struct(">hh")


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The first record of an epoch: the leader, the voters, and the voters that voted for the
    leader."""

    leader_id: int
    voters: VoterSet
    granting_voters: tuple[int, ...]


class ParsedLeaderChange(NamedTuple):
    """A LeaderChange record as it is read from a log, with voters as ids."""

    version: int
    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


def leader_change_batch(
    change: LeaderChange,
    *,
    base_offset: int,
    epoch: int,
    timestamp_ms: int,
    has_voter_set: bool = False,
) -> bytearray:
    """The control batch that opens an epoch; has_voter_set adds kraft.version and the voter set."""
    records = [(_KEY.pack(0, LEADER_CHANGE), _leader_change(change))]
    if has_voter_set:
        # KRaftVersionRecord version 0: kraft.version 1.
        records.append((_KEY.pack(0, KRAFT_VERSION), struct.pack(">hh", 0, 1) + b"\x00"))
        records.append((_KEY.pack(0, KRAFT_VOTERS), _voters_record(change.voters)))
    return build_batch(
        records,
        base_offset=base_offset,
        leader_epoch=epoch,
        timestamp_ms=timestamp_ms,
        is_control=True,
    )


def voters_batch(voters: VoterSet, *, base_offset: int, epoch: int, timestamp_ms: int) -> bytearray:
    """The control batch that changes the voter set."""
    return build_batch(
        [(_KEY.pack(0, KRAFT_VOTERS), _voters_record(voters))],
        base_offset=base_offset,
        leader_epoch=epoch,
        timestamp_ms=timestamp_ms,
        is_control=True,
    )


def parse_voters(key: bytes, value: bytes) -> VoterSet | None:
    """The voter set of a VotersRecord, None for any other control record. Raises WireError."""
    if len(key) != _KEY.size or _KEY.unpack(key)[1] != KRAFT_VOTERS:
        return None
    try:
        return _Reader(value).voters()
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise WireError(f"a VotersRecord that cannot be read: {error}") from error


def parsed_set(voters: Sequence[Voter]) -> VoterSet:
    """A voter set that came from outside this process. Raises WireError if two voters have one
    id."""
    ids = [voter.node_id for voter in voters]
    if len(set(ids)) != len(ids):
        raise WireError(f"voters named twice: {ids}")
    return VoterSet.of(voters)


def parse_leader_change(key: bytes, value: bytes) -> ParsedLeaderChange | None:
    """The fields of a LeaderChange record, None for other records. Raises WireError."""
    if len(key) != _KEY.size or _KEY.unpack(key)[1] != LEADER_CHANGE:
        return None
    try:
        version, leader_id = struct.unpack_from(">hi", value)
        position = 6
        lists = []
        for _ in range(2):
            count = value[position] - 1
            entries = value[position + 1 : position + 1 + 5 * count]
            lists.append(tuple(voter_id for voter_id, _ in struct.iter_unpack(">iB", entries)))
            position += 1 + 5 * count
    except (struct.error, IndexError) as error:
        raise WireError(f"a LeaderChange record that cannot be read: {error}") from error
    return ParsedLeaderChange(version, leader_id, *lists)


def _leader_change(change: LeaderChange) -> bytes:
    # LeaderChangeMessage version 0, without directory ids, for dynamic voters too: Apache Kafka 4.1
    # reads and writes no other version. The VotersRecord holds the directory ids.
    granting = [change.voters.get(i) or Voter(i) for i in change.granting_voters]
    return (
        struct.pack(">hi", 0, change.leader_id)
        + _ids(change.voters.voters)
        + _ids(granting)
        + b"\x00"
    )


def _ids(voters: Sequence[Voter]) -> bytes:
    # A compact array: count + 1, then for each voter its id and an empty tagged-field section.
    invariant(len(voters) <= VOTERS_MAX, f"{len(voters)} voters are more than a quorum has")
    entries = b"".join(struct.pack(">i", voter.node_id) + b"\x00" for voter in voters)
    return bytes((len(voters) + 1,)) + entries


def _voters_record(voters: VoterSet) -> bytes:
    invariant(len(voters) <= VOTERS_MAX, f"{len(voters)} voters are more than a quorum has")
    out = struct.pack(">h", 0) + bytes((len(voters) + 1,))
    for voter in voters.voters:
        out += struct.pack(">i", voter.node_id) + voter.directory_id
        # One endpoint (name, host, port, no tags), then kraft.version 0 to 1 (KRaftVersionFeature).
        out += b"\x02" + _text(LISTENER_NAME) + _text(voter.host)
        out += struct.pack(">H", voter.port) + b"\x00"
        out += struct.pack(">hh", 0, 1) + b"\x00\x00"
    return out + b"\x00"


def _text(text: str) -> bytes:
    data = text.encode()
    invariant(len(data) < 127, f"{text!r} is too long for a listener")
    return bytes((len(data) + 1,)) + data


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def voters(self) -> VoterSet:
        (version,) = self._unpack(">h")
        if version != 0:
            raise WireError(f"a VotersRecord of version {version}; this build reads version 0")
        found = []
        for _ in range(self._count()):
            (node_id,) = self._unpack(">i")
            directory_id = self._bytes(16)
            endpoints = [self._endpoint() for _ in range(self._count())]
            host, port = endpoints[0] if endpoints else ("", 0)
            self._unpack(">hh")
            self._tags()
            self._tags()
            found.append(Voter(node_id, directory_id, host, port))
        self._tags()
        if self._at != len(self._data):
            raise WireError(f"{len(self._data) - self._at} bytes behind a VotersRecord")
        return parsed_set(found)

    def _endpoint(self) -> tuple[str, int]:
        self._bytes(self._count())  # the listener's name
        host = self._bytes(self._count()).decode()
        (port,) = self._unpack(">H")
        self._tags()
        return host, port

    def _count(self) -> int:
        """A compact length below 127: one byte that holds it plus one."""
        length = self._bytes(1)[0] - 1
        if not 0 <= length <= VOTERS_MAX:
            raise WireError(f"a compact length of {length}")
        return length

    def _tags(self) -> None:
        if self._bytes(1) != b"\x00":
            raise WireError("a VotersRecord with tagged fields that this build does not know")

    def _unpack(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self._bytes(struct.calcsize(form)))

    def _bytes(self, count: int) -> bytes:
        piece = self._data[self._at : self._at + count]
        if len(piece) != count:
            raise WireError("a VotersRecord that is cut off")
        self._at += count
        return piece
