"""SASL of one connection: PLAIN, SCRAM, and the handshake around them. No sockets."""

from __future__ import annotations

import base64
import hashlib
import hmac
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.broker.sasl.core.authentication import (
    API_VERSIONS_KEY,
    VERSIONS_ASKED_MAX,
    Authentication,
)
from kvorum.broker.sasl.core.client import client_exchange
from kvorum.broker.sasl.core.exchange import AuthenticationFailed, Step
from kvorum.broker.sasl.core.mechanisms import SaslSettings, authenticator
from kvorum.broker.sasl.core.plain import PlainExchange
from kvorum.broker.sasl.core.scram import MESSAGE_BYTES_MAX, Credential, ScramExchange
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.metadata.image.records import ScramCredential
from kvorum.runtime.errors import ErrorCode, WireError, required
from tests.test_broker.credentials import SALT, credential_of

SHA_256 = "SCRAM-SHA-256"
#: The example of RFC 7677, section 3.
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
NONCE = f"rOprNGfwEbeRWgbNEkqO{SERVER_NONCE}"
SERVER_FIRST = f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = f"c=biws,r={NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SERVER_FINAL = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


CREDENTIAL = credential_of("pencil")


def scram(mechanism: str = SHA_256, credential: Credential = CREDENTIAL) -> ScramExchange:
    def find(user: str) -> Credential | None:
        return credential if user in ("user", "a,b=c") else None

    return ScramExchange(mechanism, find, SERVER_NONCE)


def test_scram_has_the_messages_of_the_rfcs_example():
    exchange = scram()
    assert exchange.step(CLIENT_FIRST.encode()) == Step(SERVER_FIRST.encode())
    assert exchange.step(CLIENT_FINAL.encode()) == Step(SERVER_FINAL.encode(), "user")


def proof_of(password: str, bare: str, first: str, without_proof: str, name: str) -> str:
    """The client's side of RFC 5802, section 3, for CREDENTIAL's salt."""
    salted = hashlib.pbkdf2_hmac(name, password.encode(), SALT, 4_096)
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    signature = hmac.digest(stored_key, f"{bare},{first},{without_proof}".encode(), name)
    return base64.b64encode(
        bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    ).decode()


def login(
    exchange,
    password,
    *,
    bare="n=user,r=abc",
    header="n,,",
    name="sha256",
    binding=None,
    nonce=None,
):
    """Runs a client; returns the server's last step. binding, nonce: wrong values that the client
    sends."""
    first = exchange.step(f"{header}{bare}".encode()).answer.decode()
    nonce = nonce or first.split(",")[0]
    bound = base64.b64encode((binding or header).encode()).decode()
    without_proof = f"c={bound},{nonce}"
    proof = proof_of(password, bare, first, without_proof, name)
    return exchange.step(f"{without_proof},p={proof}".encode())


def test_the_other_hash_the_escapes_and_the_extensions_of_clients():
    strong = scram("SCRAM-SHA-512", credential_of("pencil", name="sha512"))
    assert login(strong, "pencil", name="sha512").user == "user"
    assert login(scram(), "pencil", bare="n=a=2Cb=3Dc,r=abc").user == "a,b=c"
    assert login(scram(), "pencil", bare="n=user,r=abc,tokenauth=false,x=1").user == "user"
    assert login(scram(), "pencil", header="y,,").user == "user"
    assert login(scram(), "pencil", header="n,a=user,").user == "user"


def test_a_proof_over_another_header_or_nonce_is_refused():
    """A man in the middle could change the first message, but not the proof, which covers it."""
    for changed in ({"header": "n,,", "binding": "y,,"}, {"nonce": "r=abc"}, {"nonce": "r=x"}):
        with pytest.raises(AuthenticationFailed):
            login(scram(), "pencil", **changed)


@pytest.mark.parametrize("password", ["", "Pencil", "pencil "])
def test_a_wrong_password_fails(password):
    with pytest.raises(AuthenticationFailed):
        login(scram(), password)


@pytest.mark.parametrize(
    "first",
    [
        "n,,n=nobody,r=abc",
        "n,,n=user,r=",
        "n,,n=,r=abc",
        "n,,n=user",
        "n,,r=abc,n=user",
        "p=tls-unique,,n=user,r=abc",
        "n,,m=ext,n=user,r=abc",
        "n,a=admin,n=user,r=abc",
        "n,,n=us=2er,r=abc",
        "n,,n=user=,r=abc",
        "n,,n=user,r=a b",
        "n,,n=user,r=" + "a" * 1_025,
        "",
        "\xff",
    ],
)
def test_a_strange_first_message_fails_in_the_same_words_as_an_unknown_user(first):
    with pytest.raises(AuthenticationFailed) as failed:
        scram().step(first.encode("latin-1"))
    assert str(failed.value) == (
        "Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism SCRAM-SHA-256"
    )


@pytest.mark.parametrize(
    "final",
    [
        CLIENT_FINAL.replace("c=biws", "c=eSws"),  # "y,,": the header was another
        CLIENT_FINAL.replace("c=biws", "c=*"),
        CLIENT_FINAL.replace(SERVER_NONCE, ""),
        CLIENT_FINAL.replace("p=dHzb", "p=AAAA"),
        CLIENT_FINAL.partition(",p=")[0],
        CLIENT_FINAL.partition(",p=")[0] + ",p=",
        CLIENT_FINAL.partition(",p=")[0] + ",p=AAAA",
        CLIENT_FINAL + ",x=y",
        CLIENT_FIRST,
    ],
)
def test_a_changed_final_message_fails_and_ends_the_exchange(final):
    exchange = scram()
    exchange.step(CLIENT_FIRST.encode())
    with pytest.raises(AuthenticationFailed):
        exchange.step(final.encode())
    with pytest.raises(AuthenticationFailed):
        exchange.step(CLIENT_FINAL.encode())


def test_a_final_message_is_good_for_its_own_exchange_alone():
    replayed = ScramExchange(SHA_256, lambda _: CREDENTIAL, "another")
    replayed.step(CLIENT_FIRST.encode())
    with pytest.raises(AuthenticationFailed):
        replayed.step(CLIENT_FINAL.encode())


def test_a_message_larger_than_any_login_is_not_looked_at():
    exchange = scram()
    extension = ",a=" + "x" * MESSAGE_BYTES_MAX
    with pytest.raises(AuthenticationFailed):
        exchange.step((CLIENT_FIRST + extension).encode())
    exchange = scram()
    exchange.step(CLIENT_FIRST.encode())
    with pytest.raises(AuthenticationFailed):
        exchange.step(CLIENT_FINAL.replace(",p=", f"{extension},p=").encode())
    assert scram().step((CLIENT_FIRST + ",a=x").encode()).user is None


def test_a_credential_of_too_few_iterations_is_not_used():
    weak = credential_of("pencil", iterations=4_095)
    with pytest.raises(AuthenticationFailed):
        scram(credential=weak).step(CLIENT_FIRST.encode())


@given(st.lists(st.binary(max_size=200), max_size=3))
def test_no_bytes_authenticate_or_break_the_server(tokens):
    exchange = scram()
    for token in tokens:
        try:
            step = exchange.step(token)
        except AuthenticationFailed:
            break
        assert step.user is None


def plain(token: bytes) -> Step:
    return PlainExchange({"user": "pencil", "Ünal": "pässword"}).step(token)


def test_plain_takes_the_right_password():
    assert plain(b"\0user\0pencil") == Step(b"", "user")
    assert plain(b"user\0user\0pencil").user == "user"
    assert plain("\0Ünal\0pässword".encode()).user == "Ünal"


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (b"\0user\0Pencil", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0pencil", "Authentication failed: Invalid username or password"),
        (b"\0\0pencil", "Authentication failed: username not specified"),
        (b"\0user\0", "Authentication failed: password not specified"),
        (b"root\0user\0pencil", "an authorization id that is different from username"),
        (b"user\0pencil", "expected 3 tokens, got 2"),
        (b"\0user\0pencil\0", "expected 3 tokens, got 4"),
        (b"\0\xff\0pencil", "no UTF-8"),
        (b"", "expected 3 tokens, got 1"),
    ],
)
def test_plain_refuses_in_kafkas_words(token, said):
    with pytest.raises(AuthenticationFailed) as failed:
        plain(token)
    assert said in str(failed.value)


PASSWORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1)


@given(PASSWORDS, PASSWORDS)
def test_our_client_and_our_server_agree_on_who_knows_the_password(right, tried):
    for mechanism, name in ((SHA_256, "sha256"), ("SCRAM-SHA-512", "sha512")):
        server = scram(mechanism, credential_of(right, name=name))
        client = required(client_exchange(mechanism, "user", tried, "client"), "known")
        first = server.step(required(client.step(b""), "a message"))
        final = required(client.step(first.answer), "a message")
        if right == tried:
            last = server.step(final)
            assert (client.step(last.answer), client.is_over, last.user) == (None, True, "user")
        else:
            with pytest.raises(AuthenticationFailed):
                server.step(final)


def test_our_client_sends_the_messages_of_the_rfcs_example():
    client = required(client_exchange(SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO"), "known")
    assert client.step(b"") == CLIENT_FIRST.encode()
    assert client.step(SERVER_FIRST.encode()) == CLIENT_FINAL.encode()
    assert client.step(SERVER_FINAL.encode()) is None and client.is_over


@pytest.mark.parametrize(
    "first",
    [
        SERVER_FIRST.replace(NONCE, "another"),
        SERVER_FIRST.replace(NONCE, "rOprNGfwEbeRWgbNEkqO"),
        SERVER_FIRST.replace("4096", "4095"),
        SERVER_FIRST.replace("4096", "100000000"),
        SERVER_FIRST.replace("4096", "many"),
        SERVER_FIRST.replace("4096", "9" * 5_000),
        f"m=unknown,{SERVER_FIRST}",
        SERVER_FIRST.replace(",s=", ",s=,s="),
        "e=other-error",
        "",
    ],
)
def test_our_client_proves_nothing_to_a_strange_server(first):
    client = required(client_exchange(SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO"), "known")
    client.step(b"")
    with pytest.raises(AuthenticationFailed):
        client.step(first.encode())


def test_our_client_does_not_believe_a_server_without_the_password():
    client = required(client_exchange(SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO"), "known")
    client.step(b"")
    client.step(SERVER_FIRST.encode())
    with pytest.raises(AuthenticationFailed):
        client.step(SERVER_FINAL.replace("6rri", "AAAA").encode())
    assert not client.is_over


# --- the connection -------------------------------------------------------------------------------

NOW_MS = 1_000
GOOD, BAD = b"\0user\0pencil", b"\0user\0wrong"


def connection(session_ms: int = 0) -> Authentication:
    users = {"user": "pencil", "other": "pen"}
    settings = SaslSettings(
        mechanisms=("PLAIN", SHA_256), plain_users=users, session_ms={"PLAIN": session_ms}
    )
    return authenticator(settings, lambda: EMPTY_IMAGE, random.Random(1))()


def authenticated(session_ms: int = 0) -> Authentication:
    made = connection(session_ms)
    assert made.handshake("PLAIN", 1, NOW_MS).error == ErrorCode.NONE
    assert made.token(GOOD, NOW_MS).session_lifetime_ms == session_ms
    return made


@pytest.mark.parametrize("key", [0, 1, 3, 10, 22, 50])
def test_before_the_client_is_authenticated_other_requests_close_the_connection(key):
    made = connection()
    for step in (lambda: None, lambda: made.handshake("PLAIN", 1, NOW_MS)):
        step()
        with pytest.raises(WireError):
            made.check(key, NOW_MS)
        for allowed in (17, 18, 36):
            made.check(allowed, NOW_MS)
    made.token(GOOD, NOW_MS)
    made.check(key, NOW_MS)
    assert (made.is_done, made.user) == (True, "user")


def test_a_client_that_only_asks_for_versions_is_dropped():
    made = connection()
    for _ in range(VERSIONS_ASKED_MAX):
        made.check(API_VERSIONS_KEY, NOW_MS)
    with pytest.raises(WireError, match="again and again"):
        made.check(API_VERSIONS_KEY, NOW_MS)
    made = authenticated(session_ms=500)
    for step in (lambda: None, lambda: made.handshake("PLAIN", 1, NOW_MS)):
        step()
        for _ in range(2 * VERSIONS_ASKED_MAX):
            made.check(API_VERSIONS_KEY, NOW_MS)


def test_after_a_failure_nothing_is_served():
    made = connection()
    made.handshake("PLAIN", 1, NOW_MS)
    answer = made.token(BAD, NOW_MS)
    assert answer.error == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not made.is_done
    for key in (0, 17, 18, 36):
        with pytest.raises(WireError):
            made.check(key, NOW_MS)


def test_an_unknown_mechanism_gets_the_list_of_the_enabled_ones():
    answer = connection().handshake("GSSAPI", 1, NOW_MS)
    assert answer.error == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ("PLAIN", SHA_256)


def test_a_token_needs_a_handshake_and_one_handshake_is_enough():
    assert connection().token(GOOD, NOW_MS).error == ErrorCode.ILLEGAL_SASL_STATE
    made = connection()
    made.handshake("PLAIN", 1, NOW_MS)
    assert made.handshake("PLAIN", 1, NOW_MS).error == ErrorCode.ILLEGAL_SASL_STATE
    made = authenticated()
    assert made.handshake("PLAIN", 1, NOW_MS).error == ErrorCode.ILLEGAL_SASL_STATE
    assert made.token(GOOD, NOW_MS).error == ErrorCode.ILLEGAL_SASL_STATE
    # The client stays logged in as the same user.
    made.check(0, NOW_MS)


def test_only_a_handshake_of_version_0_is_followed_by_bare_tokens():
    for version, is_bare in ((0, True), (1, False)):
        made = connection()
        made.handshake("PLAIN", version, NOW_MS)
        assert made.takes_bare_token is is_bare
    made.handshake("PLAIN", 0, NOW_MS)
    made.token(GOOD, NOW_MS)
    assert not made.takes_bare_token


def test_a_session_ends_unless_the_client_authenticates_again_as_the_same_user():
    made = authenticated(session_ms=500)
    made.check(0, NOW_MS + 499)
    with pytest.raises(WireError):
        made.check(0, NOW_MS + 500)
    made.check(17, NOW_MS + 500)
    assert made.handshake("PLAIN", 1, NOW_MS + 500).error == ErrorCode.NONE
    assert made.token(GOOD, NOW_MS + 500).error == ErrorCode.NONE
    made.check(0, NOW_MS + 999)

    assert made.handshake("PLAIN", 1, NOW_MS + 1_500).error == ErrorCode.NONE
    refused = made.token(b"\0other\0pen", NOW_MS)
    assert refused.message is not None and "Cannot change principals" in refused.message
    with pytest.raises(WireError):
        made.check(0, NOW_MS)


def test_a_client_authenticates_again_once_a_second_at_most():
    made = authenticated(session_ms=5_000)
    assert made.handshake("PLAIN", 1, NOW_MS).error == ErrorCode.NONE
    assert made.token(GOOD, NOW_MS).error == ErrorCode.NONE
    assert made.handshake("PLAIN", 1, NOW_MS + 999).error == ErrorCode.ILLEGAL_SASL_STATE
    made.check(0, NOW_MS + 999)  # it stays authenticated
    assert made.handshake("PLAIN", 1, NOW_MS + 1_000).error == ErrorCode.NONE


def test_a_client_that_names_another_mechanism_to_authenticate_again_is_disconnected():
    made = authenticated(session_ms=5_000)
    with pytest.raises(WireError, match="logged in by PLAIN and names 'SCRAM-SHA-256'"):
        made.handshake(SHA_256, 1, NOW_MS)
    with pytest.raises(WireError):
        made.check(0, NOW_MS)


def test_scram_takes_the_credentials_of_the_metadata():
    record = ScramCredential("user", 1, 4_096, SALT, CREDENTIAL.stored_key, CREDENTIAL.server_key)
    delta = Delta(EMPTY_IMAGE)
    delta.replay_all([record])
    image = delta.apply(end_offset=1, epoch=1)
    settings = SaslSettings(mechanisms=(SHA_256, "SCRAM-SHA-512"))
    make = authenticator(settings, lambda: image, random.Random(1))
    made = make()
    made.handshake(SHA_256, 1, NOW_MS)
    first = made.token(b"n,,n=user,r=abc", NOW_MS).token.decode()
    assert first.startswith("r=abc") and first.endswith(",i=4096")
    other = make()
    other.handshake(SHA_256, 1, NOW_MS)
    assert other.token(b"n,,n=user,r=abc", NOW_MS).token.decode() != first, "a nonce came twice"
    # The credential is of the other mechanism.
    strong = make()
    strong.handshake("SCRAM-SHA-512", 1, NOW_MS)
    assert strong.token(b"n,,n=user,r=abc", NOW_MS).error == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_failed_scram_login_has_claimed_its_user():
    wrong = SaslSettings(mechanisms=("SCRAM-SHA-256",))
    authentication = authenticator(wrong, lambda: EMPTY_IMAGE, random.Random(1))()
    authentication.handshake(SHA_256, 1, NOW_MS)
    answer = authentication.token(b"n,,n=mal=2Clory,r=abc", 0)
    assert answer.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert (authentication.user, authentication.claimed) == ("", "mal,lory")
