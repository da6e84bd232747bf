"""Fetches the issuer's key set (JWKS) from a file or an address, in a thread of its own.

The event loop only reads `keys`, which the thread replaces as a whole. A failed fetch keeps the
earlier keys. A token with an unknown key causes an early fetch, at most once in EXPEDITED_MS_MIN:
otherwise a client could cause one with each login.
"""

from __future__ import annotations

import logging
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

from kvorum.broker.sasl.core.jwt_validation import (
    JwtValidator,
    Key,
    KeyUnknown,
    NoKeySet,
    parse_key_set,
)
from kvorum.broker.sasl.core.oauthbearer import Expected, KeySetPlace, Validate, VerifiedToken
from kvorum.runtime.clock import Clock
from kvorum.runtime.errors import ConfigError

_log = logging.getLogger(__name__)

BYTES_MAX = 1 << 20
TIMEOUT_S = 10.0
EXPEDITED_MS_MIN = 10_000


class KeySource:
    """The key set of one issuer, and the thread that fetches it. fetch: returns the text at an
    address; raises OSError."""

    def __init__(self, place: KeySetPlace, fetch: Callable[[str], bytes] | None = None) -> None:
        self._place = place
        self._fetch = fetch_text if fetch is None else fetch
        self._asked = threading.Event()
        self._is_stopping = False
        self._is_failing = False
        self._asked_ms: int | None = None
        self._thread: threading.Thread | None = None
        self.keys: tuple[Key, ...] = ()
        """The keys of the last successful fetch; empty before the first."""

    def start(self) -> None:
        """Start the thread; a file is read before. Raises ConfigError for a file that is no key
        set. A server at an http or https address may be reachable later, so it is left to the
        thread."""
        if self._place.url.startswith("file:"):
            try:
                self.keys = parse_key_set(self._fetch(self._place.url))
            except (OSError, NoKeySet) as error:
                raise ConfigError(
                    f"{self._place.what}: no key set in {self._place.url}: {_reason(error)}"
                ) from error
        self._thread = threading.Thread(target=self._run, name="kvorum-jwks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end. It may be in a fetch, so it is not waited for."""
        self._is_stopping = True
        self._asked.set()

    def expedite(self, now_ms: int) -> None:
        """Fetch soon: a token names a key that is not among `keys`."""
        if self._asked_ms is None or now_ms - self._asked_ms >= EXPEDITED_MS_MIN:
            self._asked_ms = now_ms
            self._asked.set()

    def _run(self) -> None:
        wait_ms = self._place.refresh_ms if self.keys else 0
        backoff_ms = self._place.backoff_ms
        while True:
            self._asked.wait(min(wait_ms / 1000, threading.TIMEOUT_MAX))
            self._asked.clear()
            if self._is_stopping:
                return
            if self.refresh():
                wait_ms, backoff_ms = self._place.refresh_ms, self._place.backoff_ms
            else:
                wait_ms = backoff_ms
                backoff_ms = min(2 * backoff_ms, self._place.backoff_max_ms)

    def refresh(self) -> bool:
        """Fetch once; True if the text was a key set."""
        url = self._place.url
        try:
            self.keys = parse_key_set(self._fetch(url))
        except (OSError, NoKeySet, ValueError) as error:
            if not self._is_failing:
                _log.error(
                    "%s: no key set from %s: %s; the %d keys of before stay in use",
                    self._place.what, url, _reason(error), len(self.keys),
                )  # fmt: skip
            self._is_failing = True
            return False
        if self._is_failing:
            _log.info("%s: %d keys from %s again", self._place.what, len(self.keys), url)
        self._is_failing = False
        return True


def fetch_text(url: str) -> bytes:
    """The text at a file:, http: or https: address, at most BYTES_MAX. Raises OSError."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        with open(urllib.request.url2pathname(parts.path), "rb") as file:
            return _limited(file)
    # No proxy from the environment, as in Java. A redirect may lead to another server, but not from
    # https to http, where an attacker on the path could insert keys.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Redirects())
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    with opener.open(request, timeout=TIMEOUT_S) as answer:
        return _limited(answer)


def _limited(source: Any) -> bytes:
    data: bytes = source.read(BYTES_MAX + 1)
    if len(data) > BYTES_MAX:
        raise OSError(f"more than {BYTES_MAX} bytes")
    return data


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        scheme = urllib.parse.urlsplit(newurl).scheme
        if scheme not in ("http", "https") or (req.type == "https" and scheme != "https"):
            raise urllib.error.URLError(f"a redirect to {scheme}:")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return str(reason)


def validator_of(expected: Expected, source: KeySource, clock: Clock) -> Validate:
    """A function that validates tokens by the newest keys of `source`, and asks `source` for newer
    keys if a token's key is unknown."""
    judge = JwtValidator(expected, keys=lambda: source.keys, wall_ms=clock.wall_ms)

    def validate(token: str) -> VerifiedToken:
        try:
            return judge(token)
        except KeyUnknown:
            source.expedite(clock.monotonic_ms())
            raise

    return validate
