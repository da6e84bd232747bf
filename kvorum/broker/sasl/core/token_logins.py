"""Logins by delegation token (KIP-48): SCRAM, with the token's id as the user and its HMAC in
base64 as the password. Pure: the time comes from a function that is an argument.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from kvorum.broker.sasl.core.scram import (
    HASHES,
    ITERATIONS_MIN,
    Credential,
    TokenLogin,
    derived_keys,
)
from kvorum.metadata.access.tokens import TokenKey
from kvorum.metadata.image.acl import USER_PREFIX
from kvorum.metadata.image.image import ClusterImage

CREDENTIALS_MAX = 10_000
"""Limit of the cached credentials, about 4 MB; deriving one takes milliseconds. Only a token that
exists has one, so that guessed ids cost nothing."""
_SALT_BYTES = 16


class TokenLogins:
    """The tokens of the metadata that clients may log in with. wall_ms: the time since 1970."""

    def __init__(
        self, key: TokenKey, image: Callable[[], ClusterImage], wall_ms: Callable[[], int]
    ) -> None:
        self._key = key
        self._image = image
        self._wall_ms = wall_ms
        self._credentials: dict[tuple[str, str], Credential] = {}

    def find(self, mechanism: str, token_id: str) -> TokenLogin | None:
        """The token of this id, None if it is unknown, removed or expired. mechanism: of SCRAM."""
        token = self._image().delegation_tokens.get(token_id)
        if token is None or not token.owner.startswith(USER_PREFIX):
            return None
        expires_ms = min(token.expiration_timestamp_ms, token.max_timestamp_ms)
        lifetime_ms = expires_ms - self._wall_ms()
        if lifetime_ms <= 0:
            return None
        return TokenLogin(
            credential=self._credential(mechanism, token_id),
            user=token.owner.removeprefix(USER_PREFIX),
            lifetime_ms=lifetime_ms,
        )

    def _credential(self, mechanism: str, token_id: str) -> Credential:
        known = self._credentials.get((mechanism, token_id))
        if known is not None:
            return known
        hash_name, password = HASHES[mechanism], self._key.password(token_id).encode()
        salt = hashlib.sha256(b"salt of " + password).digest()[:_SALT_BYTES]
        salted = hashlib.pbkdf2_hmac(hash_name, password, salt, ITERATIONS_MIN)
        stored_key, server_key = derived_keys(hash_name, salted)
        credential = Credential(
            salt=salt, iterations=ITERATIONS_MIN, stored_key=stored_key, server_key=server_key
        )
        while len(self._credentials) >= CREDENTIALS_MAX:
            del self._credentials[next(iter(self._credentials))]
        self._credentials[mechanism, token_id] = credential
        return credential
