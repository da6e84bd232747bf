"""OAUTHBEARER: the exchange, what makes a token good, and the issuer's keys. No sockets."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from kvorum.broker.sasl.core.authentication import Authentication
from kvorum.broker.sasl.core.exchange import AuthenticationFailed, Step
from kvorum.broker.sasl.core.jwt_validation import (
    KEYS_MAX,
    TOKEN_CHARACTERS_MAX,
    JwtValidator,
    Key,
    KeyUnknown,
    NoKeySet,
    parse_key_set,
)
from kvorum.broker.sasl.core.mechanisms import SaslSettings, authenticator
from kvorum.broker.sasl.core.oauthbearer import (
    MESSAGE_BYTES_MAX,
    Expected,
    KeySetPlace,
    OAuthBearerExchange,
    TokenRefused,
    VerifiedToken,
)
from kvorum.broker.sasl.key_source import (
    BYTES_MAX,
    EXPEDITED_MS_MIN,
    KeySource,
    fetch_text,
    validator_of,
)
from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.runtime.errors import ConfigError, ErrorCode
from tests.polling import eventually
from tests.tokens import AUDIENCE, ISSUER, Issuer, encoded

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1_000
ISSUED = Issuer(NOW_S)
KEYS = parse_key_set(ISSUED.key_set())
STRICT = Expected(audience=("other", AUDIENCE), issuer=ISSUER)
INVALID = b'{"status":"invalid_token"}'


def judge(
    token: str, *, expected: Expected = STRICT, now_ms: int = NOW_MS, keys: tuple[Key, ...] = KEYS
) -> VerifiedToken:
    return JwtValidator(expected, keys=lambda: keys, wall_ms=lambda: now_ms)(token)


def refused(token: str, **more: Any) -> str:
    with pytest.raises(TokenRefused) as refusal:
        judge(token, **more)
    assert len(token) < 100 or token not in str(refusal.value)
    return str(refusal.value)


# --- tokens -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key_id", "algorithm"),
    [*(("rsa-1", name) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
     ("ec-1", "ES256")],
)  # fmt: skip
def test_a_good_token_names_its_user_until_it_expires(key_id: str, algorithm: str) -> None:
    assert judge(ISSUED.token(key_id, algorithm)) == VerifiedToken(
        user="alice", lifetime_ms=600_000
    )


@pytest.mark.parametrize(
    ("curve", "algorithm"), [(ec.SECP384R1(), "ES384"), (ec.SECP521R1(), "ES512")]
)
def test_the_other_curves_are_for_their_algorithms(curve: Any, algorithm: str) -> None:
    issuer = Issuer(NOW_S)
    issuer.keys = {"own": ec.generate_private_key(curve)}
    keys = parse_key_set(issuer.key_set())
    assert judge(issuer.token("own", algorithm), keys=keys).user == "alice"
    assert "not one for the algorithm" in refused(
        ISSUED.token("ec-1", "ES256", headers={"kid": "own"}), keys=keys
    )


def test_a_token_without_a_key_id_is_tried_with_the_keys_of_its_kind() -> None:
    assert judge(ISSUED.token("ec-1", "ES256", headers={})).user == "alice"
    stranger = ec.generate_private_key(ec.SECP256R1())
    assert "signature" in refused(ISSUED.token("ec-1", "ES256", key=stranger, headers={}))


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", "", "HS256", "RS1", "EdDSA"])
def test_an_algorithm_without_a_signature_of_the_issuer_is_refused(name: str) -> None:
    for signature in ("", encoded(b"x" * 256)):
        assert "the algorithm is none of RS256" in refused(ISSUED.unsigned(name, signature))


@pytest.mark.parametrize("form", ["pem", "jwk"])
def test_the_public_key_is_no_secret_of_a_symmetric_algorithm(form: str) -> None:
    key = ISSUED.keys["rsa-1"].public_key()
    pem = key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    secret = pem if form == "pem" else json.dumps(ISSUED.public("rsa-1")).encode()
    unsigned = ISSUED.unsigned("HS256").rstrip(".")
    signature = hmac.digest(secret, unsigned.encode(), hashlib.sha256)
    assert "the algorithm is none of" in refused(f"{unsigned}.{encoded(signature)}")


def test_changed_claims_are_refused() -> None:
    assert "signature" in refused(ISSUED.tampered(sub="admin"))
    head, claims, signature = ISSUED.token().split(".")
    assert "signature" in refused(f"{head}.{claims}.{encoded(b'x' * 256)}")
    other = ISSUED.token(sub="bob").split(".")
    assert "signature" in refused(f"{head}.{other[1]}.{signature}")


def test_a_key_that_the_issuer_does_not_have_is_refused() -> None:
    stranger = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    assert "signature" in refused(ISSUED.token(key=stranger))
    with pytest.raises(KeyUnknown):
        judge(ISSUED.token(headers={"kid": "rsa-2"}))
    # A key in the token's own header is ignored.
    mine = Issuer(NOW_S)
    headers = {"kid": "rsa-1", "jwk": mine.public("rsa-1")}
    assert "signature" in refused(mine.token(headers=headers))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"aud": "another"}, "audience"),
        ({"aud": ["another", "third"]}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": [AUDIENCE, 5]}, "audience"),
        ({"iss": "https://issuer.example.org/"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"exp": NOW_S - 31}, "expired"),
        ({"exp": NOW_S - 30}, "expired"),
        ({"exp": None}, "exp"),
        ({"exp": "soon"}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": 10**30}, "exp"),
        ({"iat": None}, "iat"),
        ({"iat": -1}, "iat"),
        ({"iat": "now"}, "iat"),
        ({"nbf": NOW_S + 31}, "nbf"),
        ({"nbf": "x"}, "nbf"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": " "}, "sub"),
        ({"scope": 5}, "scope"),
        ({"scope": ["a", "a"]}, "scope twice"),
        ({"scope": [""]}, "scope"),
    ],
)  # fmt: skip
def test_a_signed_token_that_is_not_for_this_broker_now_is_refused(
    changes: dict[str, Any], words: str
) -> None:
    assert words in refused(ISSUED.token(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": ["x", AUDIENCE]},
        {"exp": NOW_S - 29},
        {"exp": NOW_S + 5.5},
        {"nbf": NOW_S + 30},
        {"iat": NOW_S + 3_600},  # as in Kafka
        {"scope": None},
        {"scope": ["a", "b"]},
    ],
)
def test_what_kafka_takes_is_taken(changes: dict[str, Any]) -> None:
    assert judge(ISSUED.token(**changes)).user == "alice"


def test_an_audience_is_refused_where_none_is_expected() -> None:
    lenient = Expected()
    assert "audience" in refused(ISSUED.token(), expected=lenient)
    assert judge(ISSUED.token(aud=None, iss=None), expected=lenient).user == "alice"


def test_the_names_of_claims_are_settings() -> None:
    expected = Expected(audience=(AUDIENCE,), sub_claim="email", scope_claim="scp")
    token = ISSUED.token(email="a@example.org", scp=["x"], scope=5)
    assert judge(token, expected=expected).user == "a@example.org"
    assert "email" in refused(ISSUED.token(), expected=expected)


@pytest.mark.parametrize(
    "token",
    [
        "", ".", "..", "...", "a.b", "a.b.c", "a.b.c.d.e",
        f"{encoded(b'[]')}.{encoded(b'{}')}.x",
        f"{encoded(b'{}')}.{encoded(b'{}')}.x",
        f"{encoded(b'{' * 50_000)}.x.x",
        f"{encoded(b'[' * 50_000)}.x.x",
        "x" * (TOKEN_CHARACTERS_MAX + 1),
    ],
)  # fmt: skip
def test_what_is_no_token_is_refused(token: str) -> None:
    refused(token)


def test_signed_claims_that_are_no_object_are_refused() -> None:
    import jwt

    for claims in (b"[]", b"5", b"null", b"x", b"\xff"):
        token = jwt.api_jws.PyJWS().encode(
            claims, ISSUED.keys["rsa-1"], "RS256", headers={"kid": "rsa-1"}
        )
        assert "no JSON objects" in refused(token)


def test_a_key_id_must_be_a_short_text() -> None:
    assert "key id" in refused(ISSUED.token(headers={"kid": "x" * 1_001}))


@given(st.text(alphabet="abcXYZ019-_.", max_size=60))
def test_no_text_of_the_alphabet_of_tokens_breaks_the_validator(token: str) -> None:
    refused(token)


# --- key sets ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "[]", "{}", '{"keys": {}}', '{"keys": []}', "[" * 100_000,
        '{"keys": [null, 5, "x", {}]}',
        json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "rsa-1"}]}),
        json.dumps({"keys": [{}] * (KEYS_MAX + 1)}),
        ISSUED.key_set(changes={"use": "enc"}),
        ISSUED.key_set(changes={"alg": "HS256"}),
        ISSUED.key_set(changes={"alg": "none"}),
        ISSUED.key_set(changes={"kid": 5}),
        ISSUED.key_set(changes={"n": "!", "x": "!"}),
    ],
)  # fmt: skip
def test_a_set_without_a_key_for_signatures_is_none(text: str) -> None:
    with pytest.raises(NoKeySet):
        parse_key_set(text)


def test_short_rsa_keys_and_other_curves_are_left_out() -> None:
    issuer = Issuer(NOW_S)
    issuer.keys |= {
        "short": rsa.generate_private_key(public_exponent=65_537, key_size=1_024),
        "curve": ec.generate_private_key(ec.SECP256K1()),
    }
    assert [key.key_id for key in parse_key_set(issuer.key_set())] == ["rsa-1", "ec-1"]


def test_the_algorithm_of_a_key_is_its_only_one() -> None:
    issuer = Issuer(NOW_S)
    issuer.keys.pop("ec-1")
    keys = parse_key_set(issuer.key_set(changes={"alg": "RS256"}))
    assert judge(issuer.token(), keys=keys).user == "alice"
    assert "not one for the algorithm" in refused(issuer.token(algorithm="PS256"), keys=keys)


# --- the exchange -----------------------------------------------------------------------------


def first(token: str = "a.b.c", header: str = "n,,", extensions: str = "") -> bytes:
    return f"{header}\x01auth=Bearer {token}\x01{extensions}\x01".encode()


def exchange(user: str = "alice") -> OAuthBearerExchange:
    def validate(token: str) -> VerifiedToken:
        if token != "a.b.c":
            raise TokenRefused("a reason for the log")
        return VerifiedToken(user=user, lifetime_ms=5_000)

    return OAuthBearerExchange(validate)


@pytest.mark.parametrize(
    "message",
    [
        first(),
        first(header="n,a=alice,"),
        first(extensions="traceId=123\x01logicalCluster=lkc-1\x01"),
        b"n,,\x01auth=bearer  a.b.c\x01\x01",
        b"n,,\x01ext=1\x01auth=Bearer a.b.c\x01\x01",
    ],
)
def test_a_good_token_is_answered_with_nothing(message: bytes) -> None:
    assert exchange().step(message) == Step(b"", "alice", 5_000)


def test_a_refused_client_gets_json_and_then_the_failure() -> None:
    refusing = exchange()
    assert refusing.step(first("x.y.z")) == Step(INVALID, reason="a reason for the log")
    with pytest.raises(AuthenticationFailed) as failure:
        refusing.step(b"\x01")
    assert str(failure.value).encode() == INVALID


@pytest.mark.parametrize("second", [b"", first(), b"\x01\x01", b"\x00"])
def test_a_refused_client_cannot_go_on_with_another_token(second: bytes) -> None:
    refusing = exchange()
    refusing.step(first("x.y.z"))
    with pytest.raises(AuthenticationFailed, match="invalid credentials"):
        refusing.step(second)
    with pytest.raises(AuthenticationFailed):
        refusing.step(first())


def test_nothing_comes_behind_a_good_token() -> None:
    done = exchange()
    done.step(first())
    with pytest.raises(AuthenticationFailed):
        done.step(first())


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\x01", b"n,,", b"n,,\x01\x01", b"\xff\xfe",
        first(header="y,,"), first(header="p=tls-unique,,"), first(header="n,a=,"),
        first(header="n,a=b=c,"), first(token=""), first(token="a b"), first(token="a/b"),
        b"n,,\x01auth=Basic a.b.c\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01",
        b"n,,\x01auth=Bearer a.b.c\x01\x01 ",
        b"n,,\x01auth=Bearer a.b.c\x01auth=Bearer d.e.f\x01\x01",
        b"n,,\x01ext=1\x01\x01",
        first(extensions=f"a={'x' * MESSAGE_BYTES_MAX}\x01"),
        first(extensions="a-b=1\x01"), first(extensions="a=\x01"), first(extensions="a=\x7f\x01"),
    ],
)  # fmt: skip
def test_a_malformed_first_message_is_refused_in_kafkas_words(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed, match="invalid credentials with SASL mechanism"):
        exchange().step(message)


@given(st.binary(max_size=80))
def test_no_bytes_break_the_exchange(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        exchange().step(message)


def test_a_client_acts_for_itself_alone() -> None:
    with pytest.raises(AuthenticationFailed, match="authorization id"):
        exchange().step(first(header="n,a=admin,"))
    assert exchange("a,b=c").step(first(header="n,a=a=2Cb=3Dc,")).user == "a,b=c"


# --- sessions ---------------------------------------------------------------------------------


def authenticated(max_reauth_ms: int, lifetime_ms: int) -> tuple[Authentication, int]:
    """A client that has logged in at 1000, and the lifetime that it was told."""
    settings = SaslSettings(mechanisms=("OAUTHBEARER",), session_ms={"OAUTHBEARER": max_reauth_ms})
    begin = authenticator(
        settings, lambda: EMPTY_IMAGE, random.Random(0),
        validate=lambda token: VerifiedToken(user="alice", lifetime_ms=lifetime_ms),
    )  # fmt: skip
    made = begin()
    assert made.handshake("OAUTHBEARER", 1, NOW_MS).error == ErrorCode.NONE
    answer = made.token(first(), 1_000)
    assert answer.error == ErrorCode.NONE
    return made, answer.session_lifetime_ms


@pytest.mark.parametrize(
    ("max_reauth_ms", "lifetime_ms", "told_ms"),
    [(0, 5_000, 5_000), (3_000, 5_000, 3_000), (9_000, 5_000, 5_000), (0, -10, 1), (9, -10, 1)],
)
def test_a_session_ends_with_the_token_or_the_configured_time(
    max_reauth_ms: int, lifetime_ms: int, told_ms: int
) -> None:
    from kvorum.runtime.errors import WireError

    made, told = authenticated(max_reauth_ms, lifetime_ms)
    assert told == told_ms
    made.check(3, 1_000 + told_ms - 1)
    with pytest.raises(WireError, match="did not authenticate again"):
        made.check(3, 1_000 + told_ms)
    # It may log in again, and has another session then.
    assert made.handshake("OAUTHBEARER", 1, NOW_MS).error == ErrorCode.NONE
    assert made.token(first(), 1_000 + told_ms).error == ErrorCode.NONE
    made.check(3, 1_000 + 2 * told_ms - 1)


def test_a_refused_token_is_an_answer_and_then_a_failure_with_a_reason() -> None:
    settings = SaslSettings(mechanisms=("OAUTHBEARER",))

    def validate(token: str) -> VerifiedToken:
        raise TokenRefused("a reason")

    made = authenticator(settings, lambda: EMPTY_IMAGE, random.Random(0), validate=validate)()
    made.handshake("OAUTHBEARER", 1, NOW_MS)
    answer = made.token(first(), 0)
    assert (answer.error, answer.token) == (ErrorCode.NONE, INVALID)
    assert answer.reason == "a reason"
    assert not made.is_done
    failed = made.token(b"\x01", 0)
    assert failed.error == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert failed.message == INVALID.decode()
    assert not made.is_done


# --- the source of the keys -------------------------------------------------------------------


class Endpoint:
    """The server from which a key source fetches."""

    def __init__(self) -> None:
        self.text: bytes | Exception = ISSUED.key_set().encode()
        self.count = 0
        self.lock = threading.Lock()

    def __call__(self, url: str) -> bytes:
        with self.lock:
            self.count += 1
        if isinstance(self.text, Exception):
            raise self.text
        return self.text


def place(url: str = "https://issuer.example.org/keys", **more: int) -> KeySetPlace:
    return KeySetPlace(what="the listener X", url=url, **more)


@pytest.fixture
def started() -> Any:
    sources: list[KeySource] = []

    def start(fetch: Callable[[str], bytes] | None, of: KeySetPlace) -> KeySource:
        source = KeySource(of, fetch)
        sources.append(source)
        source.start()
        return source

    yield start
    for source in sources:
        source.stop()


def test_keys_come_without_waiting_at_the_start(started: Any) -> None:
    source = started(Endpoint(), place())
    eventually(lambda: len(source.keys) == 2, "the keys are fetched")


def test_keys_are_fetched_again_after_their_time(started: Any) -> None:
    endpoint = Endpoint()
    started(endpoint, place(refresh_ms=5))
    eventually(lambda: endpoint.count > 3, "they are fetched again and again")


def test_a_failed_fetch_is_repeated_and_keeps_the_keys_of_before(
    started: Any, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = Endpoint()
    source = started(endpoint, place(refresh_ms=5, backoff_ms=1, backoff_max_ms=2))
    eventually(lambda: bool(source.keys), "the keys are fetched")
    for bad in (OSError("no route"), b"not JSON", ValueError("strange")):
        endpoint.text = bad
        before = endpoint.count
        eventually(lambda before=before: endpoint.count > before + 2, "it tries again")
        assert len(source.keys) == 2
    said = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == 1  # not one for each try
    assert "no key set from https://issuer.example.org/keys: no route" in said[0].getMessage()


def test_an_unknown_key_is_looked_for_once_in_a_while() -> None:
    endpoint = Endpoint()
    source = KeySource(place(), endpoint)
    assert source.refresh()

    class Clock:
        now_ms = 50_000

        def wall_ms(self) -> int:
            return NOW_MS

        def monotonic_ms(self) -> int:
            return self.now_ms

    clock: Any = Clock()
    validate = validator_of(STRICT, source, clock)
    assert validate(ISSUED.token()).user == "alice"
    assert not source._asked.is_set()
    newer = ISSUED.token(headers={"kid": "rsa-2"})
    for after_ms, is_asked in ((0, True), (1, False), (EXPEDITED_MS_MIN - 2, False), (1, True)):
        clock.now_ms += after_ms
        source._asked.clear()
        with pytest.raises(TokenRefused):
            validate(newer)
        assert source._asked.is_set() is is_asked
    # No other refusal makes the broker fetch the keys.
    source._asked.clear()
    clock.now_ms += EXPEDITED_MS_MIN
    with pytest.raises(TokenRefused):
        validate(ISSUED.token(aud="another"))
    assert not source._asked.is_set()


def test_a_key_that_is_asked_for_is_fetched_before_its_time(started: Any) -> None:
    endpoint = Endpoint()
    source = started(endpoint, place(refresh_ms=3_600_000))
    eventually(lambda: endpoint.count == 1, "the first fetch")
    source.expedite(0)
    eventually(lambda: endpoint.count == 2, "the second one, an hour early")


def test_a_file_of_keys_is_read_at_the_start_or_refused(tmp_path: Path, started: Any) -> None:
    file = tmp_path / "key set.json"
    url = f"file://{str(file).replace(' ', '%20')}"
    with pytest.raises(ConfigError, match="the listener X: no key set in file:"):
        started(None, place(url))
    file.write_text("{}")
    with pytest.raises(ConfigError, match="no key set"):
        started(None, place(url))
    file.write_text(ISSUED.key_set())
    source = started(None, place(url, refresh_ms=5))
    assert len(source.keys) == 2
    other = Issuer(NOW_S)
    other.keys.pop("ec-1")
    part = tmp_path / "part"
    part.write_text(other.key_set())
    part.replace(file)
    eventually(lambda: len(source.keys) == 1, "the file is read again")


def test_a_text_without_end_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(b" " * (BYTES_MAX + 1))
    with pytest.raises(OSError, match="more than"):
        fetch_text(f"file://{file}")
