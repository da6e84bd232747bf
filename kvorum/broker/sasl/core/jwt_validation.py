"""Validates the signed tokens (JWT, RFC 7519) of OAUTHBEARER, as Kafka's broker does. Pure.

PyJWT checks the signature. Only asymmetric algorithms are accepted: `none` has no signature, and
with HS256 a client could sign a token with the public key, which is no secret.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from kvorum.broker.sasl.core.oauthbearer import Expected, TokenRefused, VerifiedToken

_RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES = {"ES256": "secp256r1", "ES384": "secp384r1", "ES512": "secp521r1"}
ALGORITHMS = (*_RSA_ALGORITHMS, *_CURVES)
RSA_BITS_MIN = 2_048
TOKEN_CHARACTERS_MAX = 65_536
KEYS_MAX = 200
_KEY_ID_CHARACTERS_MAX = 1_000
_CANDIDATES_MAX = 8
"""Keys that a token without a key id is tried with; each costs a verification."""

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey


class NoKeySet(ValueError):
    """A text that is no JSON Web Key Set (RFC 7517) with a usable key."""


class KeyUnknown(TokenRefused):
    """The key set does not have the token's key; a newer key set may have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A public key of the issuer. algorithm: the only one that the key is for; None for all
    algorithms of its type."""

    key_id: str | None
    algorithm: str | None
    key: PublicKey

    def fits(self, algorithm: str) -> bool:
        if self.algorithm is not None and self.algorithm != algorithm:
            return False
        if isinstance(self.key, rsa.RSAPublicKey):
            return algorithm in _RSA_ALGORITHMS
        return _CURVES.get(algorithm) == self.key.curve.name


def parse_key_set(text: str | bytes) -> tuple[Key, ...]:
    """The keys that can verify a signature; others of the set are left out, symmetric ones among
    them. Raises NoKeySet."""
    try:
        listed = json.loads(text)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NoKeySet('it is not JSON of the form {"keys": [...]}') from error
    if not isinstance(listed, list) or len(listed) > KEYS_MAX:
        raise NoKeySet(f"its keys are no list of at most {KEYS_MAX}")
    keys = tuple(key for key in map(_key, listed) if key is not None)
    if not keys:
        raise NoKeySet(f"none of its {len(listed)} keys is an RSA or EC key for signatures")
    return keys


def _key(form: Any) -> Key | None:
    if not isinstance(form, dict) or form.get("kty") not in ("RSA", "EC"):
        return None
    algorithm, key_id = form.get("alg"), form.get("kid")
    if form.get("use", "sig") != "sig" or not isinstance(key_id, str | None):
        return None
    if algorithm is not None and algorithm not in ALGORITHMS:
        return None
    public = {name: form[name] for name in ("kty", "n", "e", "crv", "x", "y") if name in form}
    try:
        key = jwt.PyJWK(public).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if isinstance(key, rsa.RSAPublicKey):
        return Key(key_id=key_id, algorithm=algorithm, key=key) if _is_strong(key) else None
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVES.values():
        return Key(key_id=key_id, algorithm=algorithm, key=key)
    return None


def _is_strong(key: rsa.RSAPublicKey) -> bool:
    return key.key_size >= RSA_BITS_MIN


class JwtValidator:
    """Validates tokens; a `Validate`.

    keys: returns the newest key set.
    wall_ms: returns the ms since 1970.
    """

    def __init__(
        self,
        expected: Expected,
        *,
        keys: Callable[[], Sequence[Key]],
        wall_ms: Callable[[], int],
    ) -> None:
        self._expected = expected
        self._keys = keys
        self._wall_ms = wall_ms

    def __call__(self, token: str) -> VerifiedToken:
        """Raises TokenRefused; KeyUnknown if a newer key set may help."""
        if len(token) > TOKEN_CHARACTERS_MAX:
            raise TokenRefused(f"a token of {len(token)} characters")
        claims = self._verified_claims(token)
        now_ms = self._wall_ms()
        expires_ms = self._check_times(claims, now_ms)
        self._check_audience(claims.get("aud"))
        issuer = self._expected.issuer
        if issuer and claims.get("iss") != issuer:
            raise TokenRefused("the issuer (iss) is not the expected one")
        _check_scope(self._expected.scope_claim, claims.get(self._expected.scope_claim))
        user = claims.get(self._expected.sub_claim)
        if not isinstance(user, str) or not user.strip():
            raise TokenRefused(f"no {self._expected.sub_claim} with a user")
        return VerifiedToken(user=user, lifetime_ms=expires_ms - now_ms)

    def _verified_claims(self, token: str) -> Mapping[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise TokenRefused("not a signed token (JWS)") from error
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise TokenRefused(f"the algorithm is none of {', '.join(ALGORITHMS)}")
        if key_id is not None and (
            not isinstance(key_id, str) or len(key_id) > _KEY_ID_CHARACTERS_MAX
        ):
            raise TokenRefused("a key id (kid) that is no short text")
        for key in self._candidates(algorithm, key_id):
            try:
                claims: Mapping[str, Any] = jwt.decode(
                    token,
                    key.key,
                    algorithms=[algorithm],
                    # The claims are checked here, by the clock of the argument and Kafka's rules.
                    options={
                        "verify_signature": True,
                        "verify_exp": False, "verify_nbf": False, "verify_iat": False,
                        "verify_aud": False, "verify_iss": False, "verify_sub": False,
                        "verify_jti": False,
                    },
                )  # fmt: skip
            except jwt.InvalidSignatureError:
                continue
            except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
                raise TokenRefused("its header or claims are no JSON objects") from error
            return claims
        raise TokenRefused("the signature is not of the issuer's key")

    def _candidates(self, algorithm: str, key_id: str | None) -> list[Key]:
        keys = self._keys()
        named = [key for key in keys if key_id is None or key.key_id == key_id]
        if not named:
            raise KeyUnknown("the key set has not the key (kid) of the token")
        found = [key for key in named if key.fits(algorithm)]
        if not found:
            raise TokenRefused("the key is not one for the algorithm of the token")
        return found[:_CANDIDATES_MAX]

    def _check_times(self, claims: Mapping[str, Any], now_ms: int) -> int:
        """Check exp, iat and nbf; returns the time at which the token expires, in ms since 1970."""
        skew_ms = self._expected.clock_skew_ms
        expires_ms = _time_ms(claims, "exp")
        if _time_ms(claims, "iat") < 0:
            raise TokenRefused("iat is before 1970")
        if now_ms - skew_ms >= expires_ms:
            raise TokenRefused("the token has expired")
        if "nbf" in claims and now_ms + skew_ms < _time_ms(claims, "nbf"):
            raise TokenRefused("the token is not valid yet (nbf)")
        return expires_ms

    def _check_audience(self, audience: Any) -> None:
        named = [audience] if isinstance(audience, str) else audience
        if named is None and not self._expected.audience:
            return
        if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
            raise TokenRefused("no audience (aud), or one that is no text")
        if not set(named) & set(self._expected.audience):
            raise TokenRefused("the audience (aud) is not an expected one")


def _time_ms(claims: Mapping[str, Any], name: str) -> int:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefused(f"no {name}, or one that is no number")
    # Beyond the year 9999 a number is no time; neither is a float's infinity.
    if not math.isfinite(value) or abs(value) > 253_402_300_800:
        raise TokenRefused(f"{name} is no time")
    return int(value * 1_000)


def _check_scope(name: str, scope: Any) -> None:
    """Raise TokenRefused unless the scope is missing, a text, or a list of distinct texts, as in
    Kafka."""
    scopes = [scope] if isinstance(scope, str) else [] if scope is None else scope
    if not isinstance(scopes, list) or not all(isinstance(s, str) and s.strip() for s in scopes):
        raise TokenRefused(f"{name} is no text or list of texts")
    if len(set(scopes)) < len(scopes):
        raise TokenRefused(f"{name} has a scope twice")
