"""SCRAM (RFC 5802, RFC 7677): the client proves that it knows the password without sending it.

The credentials are those of the metadata log (KIP-554). No library is used: scramp's server refuses
the short salts that Kafka's tools may set, and knows no extensions.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass

from kvorum.broker.sasl.core.exchange import AuthenticationFailed, Step

MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""The number of each mechanism in the metadata."""
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

TOKEN_EXTENSION = "tokenauth"
"""The extension that a client sends if it logs in with a delegation token."""

ITERATIONS_MIN = 4_096
MESSAGE_BYTES_MAX = 8 * 1024
"""Largest message of a client. Kafka accepts larger ones. They would only cost the broker time and
memory: it keeps the first message of a client that has not logged in until the last."""
NONCE_BYTES_MAX = 1_024
"""Kafka's clients send 22 to 32 characters."""

_PRINTABLE = "[\\x21-\\x2b\\x2d-\\x7e]"
#: No channel binding ("n"; or "y": the client supports it and believes that the server does not);
#: no mandatory extension ("m="); optional extensions after the nonce.
_CLIENT_FIRST = re.compile(
    f"(?P<header>[ny],(?:a=(?P<authorization_id>[^,]+))?,)"
    f"(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>{_PRINTABLE}+)"
    "(?P<extensions>(?:,[a-z]+=[^,]*)*))",
    re.DOTALL | re.IGNORECASE,
)
_CLIENT_FINAL = re.compile(
    f"(?P<without_proof>c=(?P<binding>[^,]+),r=(?P<nonce>{_PRINTABLE}+)(?:,[a-z]=[^,]*)*)"
    f",p=(?P<proof>[^,]+)",
    re.DOTALL | re.IGNORECASE,
)
_ESCAPE = re.compile("=(2C|3D|.{0,2})", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A user's credential: salt, iterations, and the keys of RFC 5802, section 3."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def derived_keys(hash_name: str, salted_password: bytes) -> tuple[bytes, bytes]:
    """Stored key and server key of RFC 5802, section 3. hash_name: a value of HASHES."""
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    server_key = hmac.digest(salted_password, b"Server Key", hash_name)
    return hashlib.new(hash_name, client_key).digest(), server_key


FindCredential = Callable[[str], Credential | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogin:
    """A delegation token that is valid now.

    user: its owner, whom the client becomes.
    lifetime_ms: until it expires.
    """

    credential: Credential
    user: str
    lifetime_ms: int


FindToken = Callable[[str], TokenLogin | None]


def no_token(token_id: str) -> TokenLogin | None:
    """The `FindToken` of a broker on which delegation tokens are off."""
    return None


class ScramExchange:
    """One exchange: client-first, server-first, client-final, server-final.

    mechanism: a key of MECHANISMS.
    find: a user's credential, None for an unknown user.
    find_token: a valid delegation token by its id, which a client with TOKEN_EXTENSION sends as its
        user name (KIP-48); None if there is none.
    nonce: the server's part, never used before.
    """

    def __init__(
        self, mechanism: str, find: FindCredential, nonce: str, find_token: FindToken = no_token
    ) -> None:
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._find = find
        self._find_token = find_token
        self._is_token = False
        self._nonce = nonce
        self._user = ""
        self.claimed = ""
        self._credential: Credential | None = None
        self._header = b""
        self._messages = b""
        self._is_over = False

    def step(self, token: bytes) -> Step:
        """See `Exchange`. AuthenticationFailed has the same message for every cause."""
        if self._is_over:
            raise self._failed()
        self._is_over = True  # unless the first message is answered
        if len(token) > MESSAGE_BYTES_MAX:
            raise self._failed()
        try:
            text = token.decode()
        except UnicodeDecodeError as error:
            raise self._failed() from error
        if self._credential is None:
            answer = self._first(text)
            self._is_over = False
            return Step(answer.encode())
        answer_bytes = self._final(self._credential, text)
        if not self._is_token:
            return Step(answer_bytes, self._user)
        # Once more: the token may have expired, or been removed, since the first message.
        login = self._find_token(self._user)
        if login is None:
            raise self._failed()
        return Step(answer_bytes, login.user, login.lifetime_ms, is_token=True)

    def _first(self, text: str) -> str:
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None or len(found["nonce"]) > NONCE_BYTES_MAX:
            raise self._failed()
        user = self.claimed = self._unescaped(found["user"])
        authorization_id = found["authorization_id"]
        if authorization_id and self._unescaped(authorization_id) != user:
            raise self._failed()
        self._is_token = _names_token(found["extensions"])
        credential = self._credential_of(user)
        if credential is None or credential.iterations < ITERATIONS_MIN:
            raise self._failed()
        self._user, self._credential = user, credential
        self._header = found["header"].encode()
        self._nonce = found["nonce"] + self._nonce
        salt = base64.b64encode(credential.salt).decode()
        first = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._messages = f"{found['bare']},{first}".encode()
        return first

    def _credential_of(self, user: str) -> Credential | None:
        if not self._is_token:
            return self._find(user)
        token = self._find_token(user)
        return None if token is None else token.credential

    def _final(self, credential: Credential, text: str) -> bytes:
        found = _CLIENT_FINAL.fullmatch(text)
        if found is None:
            raise self._failed()
        binding, proof = self._decoded(found["binding"]), self._decoded(found["proof"])
        # The client repeats the header of its first message: an attacker on the path could have
        # changed "y" to "n" there.
        if binding != self._header or found["nonce"] != self._nonce:
            raise self._failed()
        messages = self._messages + b"," + found["without_proof"].encode()
        signature = hmac.digest(credential.stored_key, messages, self._hash)
        if len(proof) != len(signature):
            raise self._failed()
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        stored_key = hashlib.new(self._hash, client_key).digest()
        if not hmac.compare_digest(stored_key, credential.stored_key):
            raise self._failed()
        server_signature = hmac.digest(credential.server_key, messages, self._hash)
        return b"v=" + base64.b64encode(server_signature)

    def _decoded(self, text: str) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise self._failed() from error

    def _unescaped(self, text: str) -> str:
        """A name with `=2C` for a comma and `=3D` for an equals sign."""
        if any(escape not in ("2C", "3D") for escape in _ESCAPE.findall(text)):
            raise self._failed()
        return text.replace("=2C", ",").replace("=3D", "=")

    def _failed(self) -> AuthenticationFailed:
        return AuthenticationFailed(
            "Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {self._mechanism}"
        )


def _names_token(extensions: str) -> bool:
    """True if the extensions of a client's first message have TOKEN_EXTENSION."""
    pairs = (pair.partition("=") for pair in extensions.split(","))
    return {name: value for name, _, value in pairs}.get(TOKEN_EXTENSION, "").lower() == "true"
