"""SCRAM credentials for tests."""

from __future__ import annotations

import base64
import hashlib
import hmac

from kvorum.broker.sasl.core.scram import Credential

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def credential_of(password: str, *, name: str = "sha256", iterations: int = 4_096) -> Credential:
    salted = hashlib.pbkdf2_hmac(name, password.encode(), SALT, iterations)
    client_key = hmac.digest(salted, b"Client Key", name)
    return Credential(
        salt=SALT,
        iterations=iterations,
        stored_key=hashlib.new(name, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", name),
    )
