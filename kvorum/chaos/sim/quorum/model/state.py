"""The replicated state of a simulated node, and voter sets as the checks compare them.

The state is the list that clients append to, stored as its length, its last value and a running
digest of every record, so that equal digests mean equal histories. A snapshot has this as its
payload.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from kvorum.chaos.sim.quorum.model.linearizability import Outcome
from kvorum.raft.model.voters import VoterSet
from kvorum.runtime.errors import CorruptData
from kvorum.runtime.ids import UUID_ZERO

Entry = tuple[int, bytes]
"""Epoch and value of one record. The value of a control record is empty, except for a VotersRecord,
whose value comes from `voters_value`."""

VoterKeys = frozenset[tuple[int, bytes]]
"""Voters as (node id, directory id). With a directory id of zero any disk of that node matches."""

VALUE_PREFIX = b"v"
"""The prefix of clients' values; barriers of reads and control records do not count as values."""

VOTERS_PREFIX = b"V"
_VOTER = struct.Struct(">i16s")
_PAYLOAD = struct.Struct(">IQ")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListState:
    """State after all records below end_offset, the last of which has `epoch`.

    count, last: the number of values, and the last one, empty if there is none.
    """

    end_offset: int = 0
    epoch: int = 0
    digest: int = 0
    count: int = 0
    last: bytes = b""

    def after(self, entries: Iterable[Entry]) -> ListState:
        """The state after these records too."""
        end_offset, epoch, digest = self.end_offset, self.epoch, self.digest
        count, last = self.count, self.last
        for epoch, value in entries:
            digest = next_digest(digest, epoch, value)
            end_offset += 1
            if value.startswith(VALUE_PREFIX):
                count, last = count + 1, value
        return ListState(end_offset=end_offset, epoch=epoch, digest=digest, count=count, last=last)

    def payloads(self) -> tuple[bytes, bytes]:
        """The data frames of a snapshot of this state."""
        return _PAYLOAD.pack(self.digest, self.count), self.last


def state_of(payloads: Sequence[bytes], *, end_offset: int, epoch: int, path: str) -> ListState:
    """The inverse of `ListState.payloads`. Raises CorruptData."""
    try:
        (digest, count), last = _PAYLOAD.unpack(payloads[0]), payloads[1]
    except (struct.error, IndexError) as error:
        raise CorruptData(path, 0, f"no state of the simulator: {error}") from error
    return ListState(end_offset=end_offset, epoch=epoch, digest=digest, count=count, last=last)


def next_digest(digest: int, epoch: int, value: bytes) -> int:
    """Digest of a prefix and one more record."""
    return zlib.crc32(b"%d:%b" % (epoch, value), digest)


class ChangeKind(enum.Enum):
    """The kind of a requested change."""

    ADD = "add"
    REMOVE = "remove"


@dataclass(slots=True, kw_only=True)
class Change:
    """One request.

    directory_id: of the disk, zero for any disk under that id.
    outcome: UNKNOWN unless and until an answer arrives.
    """

    kind: ChangeKind
    node_id: int
    directory_id: bytes
    outcome: Outcome = Outcome.UNKNOWN
    is_over: bool = False


def keys_of_set(voters: VoterSet) -> VoterKeys:
    """The keys of these voters."""
    return frozenset((voter.node_id, voter.directory_id) for voter in voters.voters)


def voters_value(voters: VoterSet) -> bytes:
    """A voter set as an entry's value: equal sets, listeners included, are equal bytes."""
    keys = b"".join(_VOTER.pack(v.node_id, v.directory_id) for v in voters.voters)
    listeners = ",".join(f"{v.host}:{v.port}" for v in voters.voters)
    return VOTERS_PREFIX + bytes((len(voters),)) + keys + listeners.encode()


def keys_in(value: bytes) -> VoterKeys | None:
    """The voters in an entry's value, None for any other entry."""
    if not value.startswith(VOTERS_PREFIX):
        return None
    return frozenset(_VOTER.iter_unpack(value[2 : 2 + value[1] * _VOTER.size]))


def most_of(voter_count: int) -> int:
    """A majority. Deliberately not `raft.model.quorum`'s, which is under test."""
    return voter_count // 2 + 1


def is_among(keys: Set[tuple[int, bytes]], node_id: int, directory_id: bytes) -> bool:
    """True if that node, with that disk, is one of these voters."""
    return (node_id, directory_id) in keys or (node_id, UUID_ZERO) in keys
