"""Logins by delegation token: SCRAM with the token's id and HMAC, on one connection. No sockets."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kvorum.broker.sasl.core.authentication import Authentication
from kvorum.broker.sasl.core.client import client_exchange
from kvorum.broker.sasl.core.mechanisms import SaslSettings, authenticator
from kvorum.broker.sasl.core.token_logins import CREDENTIALS_MAX, TokenLogins
from kvorum.metadata.access.tokens import TokenKey
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.metadata.image.records import RemoveDelegationToken, ScramCredential
from kvorum.runtime.errors import ErrorCode, required
from tests.test_broker.credentials import credential_of
from tests.test_metadata.tokens import DAY_MS, KEY, NOW_MS, token

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class Side:
    """A broker's side of logins, at NOW_MS."""

    def __init__(self, *records: Any, session_ms: int = 0, has_key: bool = True) -> None:
        self.image = EMPTY_IMAGE
        self.commit(*records)
        self.wall_ms = NOW_MS
        self.logins = TokenLogins(KEY, lambda: self.image, lambda: self.wall_ms)
        settings = SaslSettings(
            mechanisms=MECHANISMS, session_ms=dict.fromkeys(MECHANISMS, session_ms)
        )
        self.begin = authenticator(
            settings,
            lambda: self.image,
            random.Random(1),
            tokens=self.logins if has_key else None,
        )

    def commit(self, *records: Any) -> None:
        delta = Delta(self.image)
        delta.replay_all(records)
        self.image = delta.apply(end_offset=self.image.end_offset + len(records), epoch=1)


def log_in(
    authentication: Authentication,
    user: str = "id-1",
    password: str = KEY.password("id-1"),
    *,
    mechanism: str = MECHANISMS[0],
    is_token: bool = True,
    between: Any = lambda: None,
    now_ms: int = 0,
) -> Any:
    """The last answer. between: is called between the client's two messages."""
    client = required(client_exchange(mechanism, user, password, "n", is_token=is_token), "known")
    assert authentication.handshake(mechanism, 1, now_ms).error is ErrorCode.NONE
    message = client.step(b"")
    while message is not None:
        answer = authentication.token(message, now_ms)
        if answer.error is not ErrorCode.NONE:
            break
        message = client.step(answer.token)
        between()
    return answer


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_client_is_the_owner_until_the_token_expires(mechanism: str) -> None:
    made = token(owner="User:carol", requester="User:alice", renewers=("User:bob",))
    authentication = Side(made).begin()
    answer = log_in(authentication, mechanism=mechanism)
    assert (answer.error, answer.session_lifetime_ms) == (ErrorCode.NONE, DAY_MS)
    assert (authentication.user, authentication.is_token) == ("carol", True)


def test_a_shorter_session_of_the_configuration_counts() -> None:
    assert log_in(Side(token(), session_ms=5_000).begin()).session_lifetime_ms == 5_000
    long = log_in(Side(token(), session_ms=2 * DAY_MS).begin())
    assert long.session_lifetime_ms == DAY_MS
    short = token(max_timestamp_ms=NOW_MS + 7)
    assert log_in(Side(short).begin()).session_lifetime_ms == 7


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_hmac_is_refused(mechanism: str) -> None:
    for wrong in (KEY.password("id-2"), TokenKey("another key").password("id-1"), "id-1"):
        authentication = Side(token(), token("id-2")).begin()
        answer = log_in(authentication, password=wrong, mechanism=mechanism)
        assert answer.error is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert (authentication.user, authentication.is_token) == ("", False)


def test_a_token_that_is_unknown_expired_or_removed_refuses_logins() -> None:
    side = Side(token(), token("id-2"), token("group", owner="Group:alice"))
    refused = ErrorCode.SASL_AUTHENTICATION_FAILED
    assert log_in(side.begin(), "id-3", KEY.password("id-3")).error is refused
    assert log_in(side.begin(), "group", KEY.password("group")).error is refused
    assert log_in(side.begin()).error is ErrorCode.NONE
    side.commit(RemoveDelegationToken("id-2"))
    assert log_in(side.begin(), "id-2", KEY.password("id-2")).error is refused
    side.wall_ms = NOW_MS + DAY_MS - 1
    assert log_in(side.begin()).session_lifetime_ms == 1
    side.wall_ms += 1
    answer = log_in(side.begin())
    assert answer.error is refused
    assert "due to invalid credentials with SASL mechanism SCRAM-SHA-256" in answer.message


def test_a_token_that_ends_during_the_login_refuses_it() -> None:
    side = Side(token(), token("id-2"))

    def expire() -> None:
        side.wall_ms = NOW_MS + DAY_MS

    def remove() -> None:
        if "id-2" in side.image.delegation_tokens:
            side.commit(RemoveDelegationToken("id-2"))

    refused = ErrorCode.SASL_AUTHENTICATION_FAILED
    removed = log_in(side.begin(), "id-2", KEY.password("id-2"), between=remove)
    assert removed.error is refused
    assert log_in(side.begin(), between=expire).error is refused


def test_users_and_tokens_of_one_name_are_two_things() -> None:
    known = credential_of("pencil")
    record = ScramCredential(
        "id-1", 1, known.iterations, known.salt, known.stored_key, known.server_key
    )
    side = Side(token(), record)
    refused = ErrorCode.SASL_AUTHENTICATION_FAILED
    assert log_in(side.begin(), password="pencil").error is refused
    assert log_in(side.begin(), is_token=False).error is refused
    user = side.begin()
    assert log_in(user, password="pencil", is_token=False).error is ErrorCode.NONE
    assert (user.user, user.is_token) == ("id-1", False)


def test_without_a_key_no_token_logs_in() -> None:
    answer = log_in(Side(token(), has_key=False).begin())
    assert answer.error is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_who_comes_back_with_a_renewed_token_stays_longer_and_with_another_is_refused() -> None:
    side = Side(token(), token("bobs", owner="User:bob"))
    authentication = side.begin()
    log_in(authentication)
    side.wall_ms += 1_000
    side.commit(token(expiration_timestamp_ms=NOW_MS + 1_000 + DAY_MS))
    assert log_in(authentication).session_lifetime_ms == DAY_MS
    changed = log_in(authentication, "bobs", KEY.password("bobs"), now_ms=1_000)
    assert changed.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "Cannot change principals" in changed.message


def test_a_credential_is_derived_once_and_few_are_kept(monkeypatch) -> None:
    side = Side(token(), token("id-2"))
    first = side.logins.find(MECHANISMS[0], "id-1")
    assert first.credential is side.logins.find(MECHANISMS[0], "id-1").credential
    assert first.credential != side.logins.find(MECHANISMS[0], "id-2").credential
    assert first.credential.salt != side.logins.find(MECHANISMS[0], "id-2").credential.salt
    assert CREDENTIALS_MAX > 2
    monkeypatch.setattr("kvorum.broker.sasl.core.token_logins.CREDENTIALS_MAX", 2)
    side.logins.find(MECHANISMS[1], "id-1")
    assert list(side.logins._credentials) == [
        (MECHANISMS[0], "id-2"), (MECHANISMS[1], "id-1"),
    ]  # fmt: skip
    assert KEY.password("id-1") not in repr(first)
