"""The HMACs of delegation tokens (KIP-48), which only `delegation.token.secret.key` can compute.

A client proves by the HMAC that it has the token. No record and no message between nodes has it: a
broker that asks a controller about a token sends the HMAC's fingerprint, with which nobody can log
in. Pure.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

from kvorum.metadata.image.records import DelegationToken

FORGOTTEN_MAX = 1_000
"""Fingerprints of removed tokens that are kept; with more, all fingerprints are computed anew."""


def fingerprint(token_hmac: bytes) -> bytes:
    """The name of an HMAC in messages between nodes."""
    return hashlib.sha256(token_hmac).digest()


class TokenKey:
    """The secret key from which the HMACs of delegation tokens are made. It must be the same on
    every broker and controller."""

    def __init__(self, secret: str) -> None:
        """secret: delegation.token.secret.key, not empty."""
        self._secret = secret.encode()
        self._ids: dict[bytes, str] = {}
        self._known: set[str] = set()
        self._indexed: Mapping[str, DelegationToken] | None = None

    def hmac(self, token_id: str) -> bytes:
        """The token's HMAC (SHA-512, as in Kafka)."""
        return hmac.digest(self._secret, token_id.encode(), "sha512")

    def password(self, token_id: str) -> str:
        """The HMAC as clients have it in their properties: base64."""
        return base64.b64encode(self.hmac(token_id)).decode()

    def find(self, tokens: Mapping[str, DelegationToken], wanted: bytes) -> DelegationToken | None:
        """The token whose HMAC has the fingerprint `wanted`; None if there is none.

        The fingerprints are kept from call to call, so that a wrong one costs no hashing.
        """
        if tokens is not self._indexed:
            self._index(tokens)
        return tokens.get(self._ids.get(wanted, ""))

    def _index(self, tokens: Mapping[str, DelegationToken]) -> None:
        if len(self._known) > len(tokens) + FORGOTTEN_MAX:
            self._ids.clear()
            self._known.clear()
        for token_id in tokens:
            if token_id not in self._known:
                self._known.add(token_id)
                self._ids[fingerprint(self.hmac(token_id))] = token_id
        self._indexed = tokens


def token_key(secret: str) -> TokenKey | None:
    """The key for a node's property; None if delegation tokens are off."""
    return TokenKey(secret) if secret else None
