"""The sessions of signed-in users: users of the cluster, each with its own connections and rights.

A session holds the user's password in memory, since each connection to a broker logs in anew. It
ends with the sign-out, after an idle time, after half a day, when brokers refuse the user, and with
the console.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

from kvorum.client.cluster.broker_backend import BrokerBackend
from kvorum.client.current import acting_as
from kvorum.client.failures import EXIT_NOT_AUTHORIZED, CommandFailed
from kvorum.client.security import ClientSecurity
from kvorum.console.core.attempts import Attempts
from kvorum.console.desk import Desk

SESSIONS_MAX = 100
IDLE_S = 30 * 60.0
LONGEST_S = 12 * 3600.0
LOGINS_AT_ONCE = 4
NAME_MAX = 255
TOKEN_BYTES = 32
WRONG = "user or password is wrong"
"""The same for an unknown user."""


class SignInRefused(Exception):
    """The sign-in failed. status: the HTTP status. The text is a sentence for the person who signs
    in."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(slots=True, kw_only=True)
class Session:
    """The session of one browser.

    is_over: the user has signed out, so its event streams end.
    began_s, used_s: monotonic seconds of the sign-in and of the last request.
    """

    user: str
    desk: Desk
    began_s: float
    used_s: float
    is_over: bool = False
    closing: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)


class Sessions:
    """The sessions of a console.

    addresses: of brokers.
    base: gives TLS and SASL mechanism of the logins; its user and client certificate are not used.
    make_desk: makes the desk of a user.
    """

    def __init__(
        self,
        addresses: list[tuple[str, int]],
        base: ClientSecurity,
        timeout_s: float,
        make_desk: Callable[[ClientSecurity], Desk],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._addresses = addresses
        self._base = without_certificate(base)
        self._timeout_s = timeout_s
        self._make_desk = make_desk
        self._now_s = now_s
        self._attempts = Attempts()
        self._by_token: dict[str, Session] = {}
        self._logins = asyncio.Semaphore(LOGINS_AT_ONCE)
        self._on_failure: Callable[[BaseException], None] = _raise

    @contextlib.asynccontextmanager
    async def running(self, on_failure: Callable[[BaseException], None]) -> AsyncIterator[None]:
        """Sessions can be made within this block, and end with it."""
        self._on_failure = on_failure
        try:
            yield
        finally:
            for token in list(self._by_token):
                await self.sign_out(token)

    def find(self, token: str | None) -> Session | None:
        """The session of a token that a browser sent."""
        session = self._by_token.get(token or "")
        if session is None or self._has_ended(session):
            return None
        session.used_s = self._now_s()
        return session

    async def sign_in(self, user: str, password: str, address: str) -> str:
        """Log in at a broker; the token of the new session. Raises SignInRefused."""
        if not user or not password or len(user) > NAME_MAX or not user.isprintable():
            raise SignInRefused(400, "a user and a password are needed")
        refusal = self._attempts.refusal(user, address, self._now_s())
        if refusal:
            raise SignInRefused(429, refusal)
        await self._end_old()
        if len(self._by_token) >= SESSIONS_MAX:
            raise SignInRefused(503, f"{SESSIONS_MAX} sessions are open; sign out of one first")
        security = replace(self._base, user=user, password=password)
        async with self._logins:
            # Another attempt may have failed while this one waited.
            refusal = self._attempts.refusal(user, address, self._now_s())
            if refusal:
                raise SignInRefused(429, refusal)
            try:
                await asyncio.to_thread(self._log_in, security)
            except CommandFailed as error:
                if error.exit_code != EXIT_NOT_AUTHORIZED:
                    raise SignInRefused(503, str(error)) from error
                self._attempts.failed(user, address, self._now_s())
                raise SignInRefused(401, WRONG) from error
        now_s = self._now_s()
        session = Session(user=user, desk=self._make_desk(security), began_s=now_s, used_s=now_s)
        await session.closing.enter_async_context(session.desk.running(self._on_failure))
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self._by_token[token] = session
        return token

    async def sign_out(self, token: str | None) -> None:
        """End a session, if there is one."""
        session = self._by_token.pop(token or "", None)
        if session is not None:
            session.is_over = True
            await session.closing.aclose()

    def _has_ended(self, session: Session) -> bool:
        now_s = self._now_s()
        is_old = now_s - session.used_s > IDLE_S or now_s - session.began_s > LONGEST_S
        return is_old or session.desk.is_user_refused

    async def _end_old(self) -> None:
        for token in [t for t, session in self._by_token.items() if self._has_ended(session)]:
            await self.sign_out(token)

    def _log_in(self, security: ClientSecurity) -> None:
        with acting_as(security):
            BrokerBackend(self._addresses, self._timeout_s).close()


def without_certificate(security: ClientSecurity) -> ClientSecurity:
    """The same TLS without the client certificate: it is the console's own, and must not stand for
    a user who signs in."""
    if security.tls is None:
        return security
    from kvorum.runtime.tls import client_context

    tls = replace(security.tls, keystore="", key_password="")
    return replace(security, tls=tls, context=client_context(tls))


def _raise(error: BaseException) -> None:
    raise error
