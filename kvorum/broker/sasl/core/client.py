"""The client's side of SASL: PLAIN, SCRAM, OAUTHBEARER (RFC 4616, RFC 5802, RFC 7628). Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import Protocol

from kvorum.broker.sasl.core import oauthbearer, plain, scram
from kvorum.broker.sasl.core.exchange import AuthenticationFailed

_SERVER_FIRST = re.compile(
    "r=(?P<nonce>[^,]+),s=(?P<salt>[^,]+),i=(?P<iterations>[0-9]{1,9})(?:,[A-Za-z]=[^,]*)*",
    re.ASCII,
)
ITERATIONS_MAX = 1_000_000
"""Limit of the iterations that a server may ask for: a hostile server could keep a client busy."""


class ClientExchange(Protocol):
    """One authentication. is_over: it has succeeded, including the server's proof in SCRAM."""

    is_over: bool

    def step(self, token: bytes) -> bytes | None:
        """The client's next token; None if nothing is left to send. token: the server's last one,
        empty at first. Raises AuthenticationFailed if the server's token is invalid, or shows that
        the server does not know the password."""


def client_exchange(
    mechanism: str, user: str, password: str, nonce: str, *, is_token: bool = False
) -> ClientExchange | None:
    """An exchange of that mechanism; None for an unknown one.

    nonce: never used before.
    is_token: user and password are the id and the HMAC of a delegation token, for SCRAM.
    password: for OAUTHBEARER the issuer's token, which names the user.
    """
    if mechanism == plain.NAME:
        return PlainClient(user, password)
    if mechanism == oauthbearer.NAME:
        return OAuthBearerClient(password)
    if mechanism in scram.MECHANISMS:
        return ScramClient(mechanism, user, password, nonce, is_token=is_token)
    return None


class PlainClient:
    """Sends user and password."""

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()
        self._is_sent = False
        self.is_over = False

    def step(self, token: bytes) -> bytes | None:
        if self._is_sent:
            self.is_over = True
            return None
        self._is_sent = True
        return self._token


class OAuthBearerClient:
    """Sends a token. The server ends a refusal, which it explains in JSON, when that is confirmed
    (RFC 7628, section 3.2.3)."""

    def __init__(self, token: str) -> None:
        self._token = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        self._is_sent = False
        self.is_over = False

    def step(self, token: bytes) -> bytes | None:
        if not self._is_sent:
            self._is_sent = True
            return self._token
        if token:
            return b"\x01"
        self.is_over = True
        return None


class ScramClient:
    """Proves that it knows the password, and has the server prove that too."""

    def __init__(
        self, mechanism: str, user: str, password: str, nonce: str, *, is_token: bool = False
    ) -> None:
        self._hash = scram.HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        extension = f",{scram.TOKEN_EXTENSION}=true" if is_token else ""
        self._bare = f"n={escaped},r={nonce}{extension}"
        self._is_begun = False
        self._expected: bytes | None = None
        self.is_over = False

    def step(self, token: bytes) -> bytes | None:
        if not self._is_begun:
            self._is_begun = True
            return f"n,,{self._bare}".encode()
        if self._expected is None:
            return self._final(token.decode(errors="replace"))
        if not hmac.compare_digest(token, self._expected):
            raise AuthenticationFailed("the server does not know the password")
        self.is_over = True
        return None

    def _final(self, first: str) -> bytes:
        found = _SERVER_FIRST.fullmatch(first)
        if found is None:
            # This includes a mandatory extension ("m="): a client that does not know it must fail
            # (RFC 5802).
            raise AuthenticationFailed(f"the server's message is strange: {first[:200]!r}")
        nonce, iterations = found["nonce"], int(found["iterations"])
        try:
            salt = base64.b64decode(found["salt"], validate=True)
        except (ValueError, binascii.Error) as error:
            raise AuthenticationFailed("the server's salt is not base64") from error
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationFailed("the server answered another client's message")
        if not scram.ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise AuthenticationFailed(f"the server asks for {iterations} iterations")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        without_proof = f"c={base64.b64encode(b'n,,').decode()},r={nonce}"
        messages = f"{self._bare},{first},{without_proof}".encode()
        signature = hmac.digest(stored_key, messages, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        server_signature = hmac.digest(server_key, messages, self._hash)
        self._expected = b"v=" + base64.b64encode(server_signature)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
