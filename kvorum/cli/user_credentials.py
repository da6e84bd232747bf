"""Credentials of users who log in by SCRAM, as `kvorum users` makes them."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from kvorum.broker.sasl.core.scram import MECHANISMS
from kvorum.metadata.requests.scram_requests import HASHES

NAMES = {number: name for name, number in MECHANISMS.items()}
SALT_BYTES = 16

Users = Mapping[str, Mapping[int, int]]
"""User -> mechanism -> iterations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCredential:
    """salted_password: of RFC 5802; no request has the password itself."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


def new_credential(user: str, mechanism: int, iterations: int, password: str) -> NewCredential:
    """The credential of a password, with a salt of its own."""
    salt = secrets.token_bytes(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
    return NewCredential(
        user=user, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
    )
