"""The mechanisms of a listener, and how each of its clients begins to authenticate."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from kvorum.broker.sasl.core import oauthbearer, plain, scram
from kvorum.broker.sasl.core.authentication import Authentication, MakeExchange
from kvorum.broker.sasl.core.oauthbearer import OAuthBearerExchange, OAuthBearerSettings, Validate
from kvorum.broker.sasl.core.plain import PlainExchange
from kvorum.broker.sasl.core.scram import Credential, ScramExchange, no_token
from kvorum.broker.sasl.core.token_logins import TokenLogins
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.errors import required

MECHANISMS = (plain.NAME, *scram.MECHANISMS, oauthbearer.NAME)
"""All that this build knows."""
NONCE_BITS = 192


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings:
    """SASL of one listener. mechanisms: enabled ones, in the order of the configuration.

    plain_users: passwords by user.
    session_ms: connections.max.reauth.ms by mechanism; 0 or missing: no limit.
    oauth: for OAUTHBEARER.
    """

    mechanisms: tuple[str, ...]
    plain_users: Mapping[str, str] = field(default_factory=dict, repr=False)
    session_ms: Mapping[str, int] = field(default_factory=dict)
    oauth: OAuthBearerSettings | None = None


def authenticator(
    settings: SaslSettings,
    image: Callable[[], ClusterImage],
    rng: random.Random,
    *,
    validate: Validate | None = None,
    tokens: TokenLogins | None = None,
) -> Callable[[], Authentication]:
    """A function that begins the authentication of one connection.

    image: returns the metadata, which has the credentials for SCRAM.
    rng: source of nonces; it must be unpredictable.
    validate: validates tokens, for OAUTHBEARER.
    tokens: delegation tokens, for SCRAM; None if they are off.
    """
    exchanges: dict[str, MakeExchange] = {}
    for name in settings.mechanisms:
        if name == plain.NAME:
            exchanges[name] = partial(PlainExchange, settings.plain_users)
        elif name == oauthbearer.NAME:
            exchanges[name] = partial(
                OAuthBearerExchange, required(validate, "the judge of tokens")
            )
        else:
            exchanges[name] = partial(_scram, name, image, rng, tokens)
    return lambda: Authentication(exchanges, session_ms=settings.session_ms)


def _scram(
    name: str,
    image: Callable[[], ClusterImage],
    rng: random.Random,
    tokens: TokenLogins | None,
) -> ScramExchange:
    def find(user: str) -> Credential | None:
        of_user = image().scram_credentials.get(user)
        record = None if of_user is None else of_user.get(scram.MECHANISMS[name])
        if record is None:
            return None
        return Credential(
            salt=record.salt,
            iterations=record.iterations,
            stored_key=record.stored_key,
            server_key=record.server_key,
        )

    find_token = no_token if tokens is None else partial(tokens.find, name)
    return ScramExchange(name, find, f"{rng.getrandbits(NONCE_BITS):x}", find_token)
