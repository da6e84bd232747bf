"""Requests to the active controller about SCRAM credentials (KIP-554), and its replies.

A request holds derived keys, never a password or a salted password. The broker that gets the
client's request derives them, so that a password neither crosses the network between nodes nor
reaches the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvorum.runtime.errors import ErrorCode

SHA_256, SHA_512 = 1, 2
"""Kafka's numbers of the mechanisms SCRAM-SHA-256 and SCRAM-SHA-512."""
HASHES = {SHA_256: "sha256", SHA_512: "sha512"}
"""Name of a mechanism's hash in `hashlib`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramDeletion:
    user: str
    mechanism: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUpsertion:
    """A credential to set. mechanism: as the client sent it; the keys of an unknown one are
    empty."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterScramCredentials:
    deletions: tuple[ScramDeletion, ...] = ()
    upsertions: tuple[ScramUpsertion, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredScramUser:
    """The result for one user."""

    user: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
