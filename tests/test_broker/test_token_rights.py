"""The clients that may ask about delegation tokens, by the way they have logged in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kvorum.broker.api.context import RequestContext
from kvorum.broker.network.connection import ANONYMOUS


def context(user: str, authentication: Any = None) -> RequestContext:
    connection: Any = SimpleNamespace(user=user, authentication=authentication)
    return RequestContext(
        services=SimpleNamespace(),  # type: ignore[arg-type]
        api_version=3,
        correlation_id=1,
        client_id=None,
        listener="CLIENTS",
        slot=SimpleNamespace(connection=connection),  # type: ignore[arg-type]
    )


LOGIN = SimpleNamespace(is_token=False)
TOKEN = SimpleNamespace(is_token=True)


@pytest.mark.parametrize(
    ("user", "authentication", "may_ask"),
    [
        ("CN=alice", None, True),  # a client's certificate
        (ANONYMOUS, None, False),  # PLAINTEXT, or TLS without a certificate
        ("alice", LOGIN, True),
        ("alice", TOKEN, False),
        # A user of that name has proved who it is, as in Kafka.
        (ANONYMOUS, LOGIN, True),
    ],
)
def test_a_client_must_have_proved_who_it_is_and_not_by_a_token(
    user: str, authentication: Any, may_ask: bool
) -> None:
    found = context(user, authentication)
    assert found.may_ask_about_tokens is may_ask
    assert found.came_by_token is (authentication is TOKEN)
