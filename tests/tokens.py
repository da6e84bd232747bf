"""An issuer of tokens for OAUTHBEARER: keys, their set as JSON, and tokens, good and bad."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

ISSUER, AUDIENCE = "https://issuer.example.org", "kafka"


class Issuer:
    """Keys by id; `rsa-1` and `ec-1` to begin with."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s
        self.keys: dict[str, Any] = {
            "rsa-1": rsa.generate_private_key(public_exponent=65_537, key_size=2_048),
            "ec-1": ec.generate_private_key(ec.SECP256R1()),
        }

    def key_set(self, *, changes: dict[str, Any] | None = None) -> str:
        """The JSON of the public keys. changes: fields that are set in each key."""
        return json.dumps({"keys": [self.public(key_id) | (changes or {}) for key_id in self.keys]})

    def public(self, key_id: str) -> dict[str, Any]:
        key = self.keys[key_id].public_key()
        is_rsa = isinstance(key, rsa.RSAPublicKey)
        kind = jwt.algorithms.RSAAlgorithm if is_rsa else jwt.algorithms.ECAlgorithm
        form: dict[str, Any] = kind.to_jwk(key, as_dict=True)
        return {**{k: v for k, v in form.items() if k != "key_ops"}, "kid": key_id, "use": "sig"}

    def claims(self, **changes: Any) -> dict[str, Any]:
        """The claims of a good token, with `changes`; a value of None removes the claim."""
        claims = {
            "sub": "alice",
            "iss": ISSUER,
            "aud": AUDIENCE,
            "iat": int(self.now_s),
            "exp": int(self.now_s) + 600,
            "scope": "produce",
        }
        return {name: v for name, v in (claims | changes).items() if v is not None}

    def token(
        self, key_id: str = "rsa-1", algorithm: str = "RS256", *, key: Any = None,
        headers: dict[str, Any] | None = None, **changes: Any,
    ) -> str:  # fmt: skip
        """Signed by one of the keys, or by `key`. changes: of the claims."""
        return jwt.encode(
            self.claims(**changes),
            self.keys[key_id] if key is None else key,
            algorithm=algorithm,
            headers={"kid": key_id} if headers is None else headers,
        )

    def unsigned(self, algorithm: str = "none", signature: str = "") -> str:
        """A token of another algorithm, made by hand."""
        header = {"alg": algorithm, "typ": "JWT", "kid": "rsa-1"}
        parts = [encoded(json.dumps(part).encode()) for part in (header, self.claims())]
        return ".".join([*parts, signature])

    def tampered(self, **changes: Any) -> str:
        """Other claims under the signature of a good token."""
        head, _, signature = self.token().split(".")
        return f"{head}.{encoded(json.dumps(self.claims(**changes)).encode())}.{signature}"


def encoded(data: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
