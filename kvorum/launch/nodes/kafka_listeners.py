"""The listeners of a node that speak Kafka's protocol: those of a broker, and those of a controller
for Kafka's tools."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from kvorum.broker.sasl.core.mechanisms import SaslSettings, authenticator
from kvorum.broker.sasl.core.oauthbearer import Validate
from kvorum.broker.sasl.core.token_logins import TokenLogins
from kvorum.broker.server import KafkaServer
from kvorum.launch.config.listeners import Listener
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.certificates import TlsListener
from kvorum.runtime.clock import Clock
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.resolving import until_resolved
from kvorum.runtime.text import address_text

if TYPE_CHECKING:
    from kvorum.broker.sasl.key_source import KeySource

logger = logging.getLogger("kvorum.node")


class KafkaListeners:
    """Binds listeners of `server`, with the TLS and the logins that their properties ask for.

    on_tls: called with a listener's name and its TLS, whose certificates must be watched.
    """

    def __init__(
        self,
        server: KafkaServer,
        image: Callable[[], ClusterImage],
        clock: Clock,
        on_tls: Callable[[str, TlsListener], None],
    ) -> None:
        self._server = server
        self._image = image
        self._clock = clock
        self._on_tls = on_tls
        self._key_sources: list[KeySource] = []

    async def bind(self, listener: Listener, *, is_for_brokers: bool = False) -> None:
        """Bind and listen; `KafkaServer.serve` accepts. Raises ConfigError."""
        host, port = listener.listen
        await until_resolved(host, port, logger)
        authenticate = None
        if listener.sasl is not None:
            # The nonces of logins must be unpredictable.
            rng = random.SystemRandom()
            authenticate = authenticator(
                listener.sasl,
                self._image,
                rng,
                validate=self._judge_of_tokens(listener.sasl),
                tokens=self._token_logins(),
            )
        tls = None
        if listener.tls is not None:
            tls = TlsListener(listener.tls, listener.principals)
            self._on_tls(listener.name, tls)
        try:
            await self._server.bind(
                host,
                port,
                listener_name=listener.name,
                authenticate=authenticate,
                tls=tls,
                is_for_brokers=is_for_brokers,
                connections_max=listener.connections_max,
            )
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {address_text(host, port)}, the listener {listener.name}: "
                f"{error.strerror}; give listeners a free port and an address of this machine"
            ) from error

    def stop(self) -> None:
        """Stop fetching the keys of issuers."""
        for source in self._key_sources:
            source.stop()

    def _token_logins(self) -> TokenLogins | None:
        key = self._server.services.token_key
        return None if key is None else TokenLogins(key, self._image, self._clock.wall_ms)

    def _judge_of_tokens(self, sasl: SaslSettings) -> Validate | None:
        """The check of OAUTHBEARER tokens; None for a listener without OAUTHBEARER. Raises
        ConfigError."""
        if sasl.oauth is None:
            return None
        # Imported here: it brings cryptography, which no other node needs.
        from kvorum.broker.sasl.key_source import KeySource, validator_of

        source = KeySource(sasl.oauth.key_set)
        source.start()
        self._key_sources.append(source)
        return validator_of(sasl.oauth.expected, source, self._clock)
