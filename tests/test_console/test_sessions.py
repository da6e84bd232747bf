"""Sessions end when brokers refuse the user."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from kvorum.client.connection import UserRefused
from kvorum.client.failures import EXIT_NOT_AUTHORIZED, EXIT_UNREACHABLE, CommandFailed
from kvorum.client.security import ClientSecurity
from kvorum.console import sessions as sessions_module
from kvorum.console.app import Console
from kvorum.console.core.guard import Rules
from kvorum.console.desk import Desk
from kvorum.console.sessions import Sessions
from tests.polling import eventually
from tests.test_console.samples import StandingSource

OWN = "http://127.0.0.1:9900"
FORM = {"origin": OWN, "content-type": "application/x-www-form-urlencoded"}
REFUSED = UserRefused("broker b:1 refused user alice: SASL_AUTHENTICATION_FAILED", "alice")


class Broker:
    """Lets every user in."""

    def __init__(self, *_: object) -> None: ...

    def close(self) -> None: ...


@contextlib.contextmanager
def signed_in(source: StandingSource, user: str = "alice") -> Iterator[TestClient]:
    """A browser of a console at which a user has just signed in."""

    def desk(security: ClientSecurity) -> Desk:
        return Desk(source, timeout_s=1.0, lab=None, runs=None, security=security)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions_module, "BrokerBackend", Broker)
        base = ClientSecurity(mechanism="SCRAM-SHA-512")
        sessions = Sessions([("b", 1)], base, 1.0, desk)
        console = Console(sessions, Rules(cookie="c", signs_in=True))
        with TestClient(console.app, base_url=OWN, follow_redirects=False) as client:
            form = {"user": user, "password": "p"}
            assert client.post("/sign-in", data=form, headers=FORM).status_code == 303
            eventually(lambda: client.get("/api/view/quorum").status_code == 200, "the first look")
            yield client


def test_a_session_ends_when_brokers_refuse_the_user() -> None:
    source = StandingSource()
    with signed_in(source) as client:
        source.error = REFUSED
        eventually(lambda: client.get("/api/view/quorum").status_code == 401, "the sign-out")
        assert client.get("/topics").headers["location"] == "/sign-in"


def test_the_events_of_a_page_end_when_brokers_refuse_the_user() -> None:
    source = StandingSource()
    with signed_in(source) as client:
        source.error = REFUSED
        # An answer without an end would never be complete.
        assert client.get("/api/events/quorum").status_code in (200, 401)
        eventually(lambda: client.get("/api/events/quorum").status_code == 401, "the sign-out")


@pytest.mark.parametrize(
    "error",
    [
        CommandFailed("no right", EXIT_NOT_AUTHORIZED),
        CommandFailed("no broker", EXIT_UNREACHABLE),
        UserRefused("the console's own user is refused", "console"),
    ],
)
def test_a_session_outlives_missing_rights_brokers_that_are_gone_and_refusals_of_others(
    error: CommandFailed,
) -> None:
    source = StandingSource()
    with signed_in(source) as client:
        source.error = error
        eventually(
            lambda: client.get("/api/view/quorum").json()["meta"]["status"] == "stale", "the error"
        )
        assert client.get("/api/session").json()["user"] == "alice"
