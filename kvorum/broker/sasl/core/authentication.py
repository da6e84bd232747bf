"""The authentication of one connection, over Kafka's handshake (KIP-43, KIP-152, KIP-368).

A client sends SaslHandshake with the name of a mechanism, then the tokens of the exchange: each in
a SaslAuthenticate, or bare in a frame after a handshake of version 0. Before it is authenticated,
nothing but these and ApiVersions is served.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kvorum.broker.sasl.core.exchange import AuthenticationFailed, Exchange
from kvorum.runtime.errors import ErrorCode, WireError

HANDSHAKE_KEY, AUTHENTICATE_KEY, API_VERSIONS_KEY = 17, 36, 18
_BEFORE = frozenset({HANDSHAKE_KEY, AUTHENTICATE_KEY, API_VERSIONS_KEY})

VERSIONS_ASKED_MAX = 16
"""Limit of a client's ApiVersions requests before its login. A client sends one, and a second if
the first had a version that is not served."""

AGAIN_MS_MIN = 1_000
"""Pause between two re-authentications of a client, as in Kafka."""

MakeExchange = Callable[[], Exchange]


class SessionExpired(WireError):
    """A client sends requests although its session has ended (KIP-368)."""


class _State(enum.Enum):
    NEW = "no handshake yet"
    EXCHANGE = "tokens are exchanged"
    DONE = "authenticated"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handshake:
    """The answer to a SaslHandshake. After an error the connection is closed, unless the client is
    authenticated: it stays so."""

    error: ErrorCode
    mechanisms: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenAnswer:
    """The answer to a token. After an error the connection is closed.

    session_lifetime_ms: the client must authenticate again within this time; 0: never.
    reason: of a refusal, for the log.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    token: bytes = b""
    session_lifetime_ms: int = 0
    reason: str = ""


class Authentication:
    """The state of one connection's authentication.

    mechanisms: makes an exchange, by name of the mechanism.
    session_ms: by mechanism, the time after which the client must authenticate again
        (connections.max.reauth.ms); 0 or missing: never.
    """

    def __init__(
        self, mechanisms: Mapping[str, MakeExchange], *, session_ms: Mapping[str, int]
    ) -> None:
        self._mechanisms = mechanisms
        self._session_ms_of = session_ms
        #: Length of the client's current session; 0: it does not end.
        self._session_ms = 0
        self._state = _State.NEW
        self.mechanism = ""
        """The mechanism that the client named in its last handshake."""
        self._is_bare = False
        self._exchange: Exchange | None = None
        self._expires_ms = 0
        self._again_from_ms = 0
        self._versions_asked = 0
        self.claimed = ""
        """The user of the last exchange, as the client names it: for a log, and proved by
        nothing."""
        self.user = ""
        """The authenticated user, "" before; it stays while the client authenticates again."""
        self.is_token = False
        """True if the client has logged in with a delegation token."""

    @property
    def is_done(self) -> bool:
        """True once the client is authenticated; it stays so while it authenticates again."""
        return bool(self.user)

    @property
    def is_settled(self) -> bool:
        """True if the last exchange has succeeded."""
        return self._state is _State.DONE

    @property
    def takes_bare_token(self) -> bool:
        """True if the next frame is a token without a header."""
        return self._state is _State.EXCHANGE and self._is_bare

    def is_broken_by(self, api_key: int) -> bool:
        """True if this request comes in place of the next token: the login has failed then. Its
        answer has ILLEGAL_SASL_STATE, as in Kafka."""
        if self._state is not _State.EXCHANGE or api_key in (HANDSHAKE_KEY, AUTHENTICATE_KEY):
            return False
        self._state = _State.FAILED
        return True

    def check(self, api_key: int, now_ms: int) -> None:
        """Raise WireError for a request that this client may not send now; the connection is then
        closed, without an answer."""
        if self._state is _State.DONE:
            is_expired = self._session_ms and now_ms >= self._expires_ms
            if is_expired and api_key not in _BEFORE:
                raise SessionExpired("the client did not authenticate again in time")
        elif api_key not in _BEFORE or self._state is _State.FAILED:
            raise WireError(f"API {api_key} on a SASL listener: {self._state.value}")
        elif api_key == API_VERSIONS_KEY and not self.user:
            self._versions_asked += 1
            if self._versions_asked > VERSIONS_ASKED_MAX:
                raise WireError("the client asks for versions again and again, and does not log in")

    def handshake(self, mechanism: str, version: int, now_ms: int) -> Handshake:
        """Handle a SaslHandshake, in which the client names its mechanism. version: of the
        request. Raises WireError if an authenticated client names another mechanism (KIP-368)."""
        names = tuple(self._mechanisms)
        if self._state is _State.DONE:
            if not self._session_ms or now_ms < self._again_from_ms:
                return Handshake(error=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=())
            self._again_from_ms = now_ms + AGAIN_MS_MIN
            if mechanism != self.mechanism:
                self._state = _State.FAILED
                raise WireError(
                    f"the client logged in by {self.mechanism} and names {mechanism[:40]!r} to "
                    "authenticate again; the mechanism must stay the same"
                )
        elif self._state is not _State.NEW:
            return self._refused(ErrorCode.ILLEGAL_SASL_STATE, names)
        elif mechanism not in self._mechanisms:
            return self._refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, names)
        self.mechanism = mechanism
        self.claimed = ""
        self._is_bare = version == 0
        self._exchange = self._mechanisms[mechanism]()
        self._state = _State.EXCHANGE
        return Handshake(error=ErrorCode.NONE, mechanisms=names)

    def _refused(self, error: ErrorCode, names: tuple[str, ...]) -> Handshake:
        self._state = _State.FAILED
        return Handshake(error=error, mechanisms=names)

    def token(self, token: bytes, now_ms: int) -> TokenAnswer:
        """Handle the client's next token."""
        exchange = self._exchange
        if self._state is not _State.EXCHANGE or exchange is None:
            return TokenAnswer(
                error=ErrorCode.ILLEGAL_SASL_STATE,
                message="SaslAuthenticate without a SaslHandshake before it",
            )
        try:
            step = exchange.step(token)
        except AuthenticationFailed as failure:
            return self._fail(str(failure), failure.reason)
        finally:
            self.claimed = exchange.claimed
        if step.user is None:
            return TokenAnswer(token=step.answer, reason=step.reason)
        if self.user and self.user != step.user:
            return self._fail(
                "Cannot change principals during re-authentication from "
                f"User:{self.user} to User:{step.user}"
            )
        self.user = step.user
        self.is_token = step.is_token
        self._exchange = None
        self._state = _State.DONE
        self._session_ms = self._lifetime_ms(step.lifetime_ms)
        self._expires_ms = now_ms + self._session_ms
        return TokenAnswer(token=step.answer, session_lifetime_ms=self._session_ms)

    def _lifetime_ms(self, of_proof_ms: int | None) -> int:
        """The length of the session: the shorter of the configured time and the proof's lifetime.
        With a lifetime it is at least 1, because 0 means that the session does not end."""
        most_ms = self._session_ms_of.get(self.mechanism, 0)
        if of_proof_ms is None:
            return most_ms
        return max(min(of_proof_ms, most_ms) if most_ms else of_proof_ms, 1)

    def _fail(self, message: str, reason: str = "") -> TokenAnswer:
        self._state = _State.FAILED
        self._exchange = None
        return TokenAnswer(
            error=ErrorCode.SASL_AUTHENTICATION_FAILED, message=message, reason=reason
        )
