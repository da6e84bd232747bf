"""OAUTHBEARER of a listener, by Kafka's properties (KIP-768)."""

from __future__ import annotations

import re
import urllib.parse
from typing import Protocol

from kvorum.broker.sasl.core.jaas import parse_jaas
from kvorum.broker.sasl.core.oauthbearer import (
    NAME,
    Expected,
    KeySetPlace,
    OAuthBearerSettings,
)
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.text import whole_number

URL = "sasl.oauthbearer.jwks.endpoint.url"
_AUDIENCE = "sasl.oauthbearer.expected.audience"
_ISSUER = "sasl.oauthbearer.expected.issuer"
_SKEW = "sasl.oauthbearer.clock.skew.seconds"
_SCOPE = "sasl.oauthbearer.scope.claim.name"
_SUB = "sasl.oauthbearer.sub.claim.name"
_REFRESH = "sasl.oauthbearer.jwks.endpoint.refresh.ms"
_BACKOFF = "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"
_BACKOFF_MAX = "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
OF_OAUTH = (URL, _AUDIENCE, _ISSUER, _SKEW, _SCOPE, _SUB, _REFRESH, _BACKOFF, _BACKOFF_MAX)
"""Properties that a broker may have, and each of its listeners."""
HANDLER = "sasl.server.callback.handler.class"
"""Files for Kafka set it, because Kafka's default handler accepts unsigned tokens."""

_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
MODULE = f"{_PACKAGE}OAuthBearerLoginModule"
_HANDLERS = (
    f"{_PACKAGE}OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}secured.OAuthBearerValidatorCallbackHandler",
)


class Own(Protocol):
    """The properties of one listener."""

    name: str
    prefix: str

    def of_mechanism(self, mechanism: str, name: str) -> str:
        """A mechanism's own value, else the listener's, else the broker's."""


def oauthbearer_settings(own: Own) -> OAuthBearerSettings:
    """The OAUTHBEARER settings of a listener. Raises ConfigError, also for settings by which
    unsigned tokens would be accepted."""
    what = f"the listener {own.name}"
    handler = own.of_mechanism(NAME, HANDLER)
    if handler and handler not in _HANDLERS:
        raise ConfigError(
            f"{what}: {HANDLER}={handler} is not served; leave it out, or give {_HANDLERS[0]}"
        )
    _check_jaas(f"{own.prefix}{NAME.lower()}.sasl.jaas.config", own)
    return OAuthBearerSettings(
        expected=Expected(
            audience=_list(own.of_mechanism(NAME, _AUDIENCE)),
            issuer=own.of_mechanism(NAME, _ISSUER),
            clock_skew_ms=1_000 * _number(own, _SKEW),
            scope_claim=_name(own, _SCOPE),
            sub_claim=_name(own, _SUB),
        ),
        key_set=KeySetPlace(
            what=what,
            url=_url(what, own.of_mechanism(NAME, URL)),
            refresh_ms=_number(own, _REFRESH, least=1),
            backoff_ms=_number(own, _BACKOFF, least=1),
            backoff_max_ms=_number(own, _BACKOFF_MAX, least=1),
        ),
    )


def _check_jaas(name: str, own: Own) -> None:
    text = own.of_mechanism(NAME, "sasl.jaas.config")
    if not text:
        return
    entry = parse_jaas(name, text)
    if entry.module != MODULE:
        raise ConfigError(f"{name} must name {MODULE}")
    unsecured = [option for option in entry.options if option.startswith("unsecured")]
    if unsecured:
        raise ConfigError(
            f"{name} has {unsecured[0]}: unsigned tokens are not served; set {URL} to the key set "
            "of an issuer that signs them"
        )


def _url(what: str, text: str) -> str:
    try:
        parts = urllib.parse.urlsplit(text)
        has_user = "@" in parts.netloc
        host = parts.hostname
    except ValueError:
        has_user, host = "@" in text, None
    if has_user:
        raise ConfigError(f"{what}: {URL} must not have a user or a password in it")
    if not re.fullmatch("file:.+" if host is None else "(file|https?):.+", text):
        raise ConfigError(_no_key_set(what, text))
    return text


def _no_key_set(what: str, text: str) -> str:
    return (
        f"{what}: {URL}={text!r} must be the address of the issuer's key set (JWKS), file:, https: "
        "or http:; without it a signature proves nothing"
    )


def _number(own: Own, name: str, *, least: int = 0) -> int:
    text = own.of_mechanism(NAME, name)
    value = whole_number(text)
    if value is None or value < least:
        raise ConfigError(f"the listener {own.name}: {name}={text!r} is no number from {least} on")
    return value


def _name(own: Own, name: str) -> str:
    text = own.of_mechanism(NAME, name).strip()
    if not text:
        raise ConfigError(f"the listener {own.name}: {name} is empty; it names a claim")
    return text


def _list(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))
