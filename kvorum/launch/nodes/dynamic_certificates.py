"""Certificates of a broker's listeners by dynamic configs of that broker (KIP-226).

`ssl.keystore.location` and its like, also behind `listener.name.NAME.`, set for one broker in the
metadata, override those in the broker's file. The broker refuses a request with a value that it
cannot use. One that comes by a controller changes nothing, with an error in the log; the broker
tries the same configs again at its next start.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from kvorum.launch.config.properties import broker_config
from kvorum.metadata.configs.config_keys import CERTIFICATE_KEYS, is_certificate_key
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import RESOURCE_BROKER, ClusterImage
from kvorum.runtime.certificates import TlsListener
from kvorum.runtime.errors import ConfigError

_log = logging.getLogger("kvorum.node")


class DynamicCertificates:
    """Keeps the TLS of a broker's listeners as the image has it. given: the properties in the
    broker's file."""

    def __init__(self, broker_id: int, given: Mapping[str, Any]) -> None:
        self._broker_id = broker_id
        self._given = given
        self._listeners: dict[str, TlsListener] = {}
        self._applied: dict[str, str] = {}

    def add(self, name: str, listener: TlsListener) -> None:
        """The TLS of a listener that follows the configs from now on."""
        self._listeners[name] = listener

    def _names(self) -> set[str]:
        """The names of the configs that apply. Configs of listeners that this broker does not have,
        perhaps any more, do not."""
        prefixes = ["", *(f"listener.name.{name.lower()}." for name in self._listeners)]
        return {prefix + key for prefix in prefixes for key in CERTIFICATE_KEYS}

    def problem(self, configs: Mapping[str, str]) -> str | None:
        """A sentence if this broker could not use its own dynamic configs `configs`; else None.
        Unlike those of an image, they may name no listener that this broker lacks."""
        wanted = {name: value for name, value in configs.items() if is_certificate_key(name)}
        try:
            for listener in broker_config({**self._given, **wanted})[0].listeners:
                tls = self._listeners.get(listener.name)
                if tls is not None and listener.tls is not None:
                    tls.check(listener.tls)
        except ConfigError as error:
            return str(error)
        return None

    def on_image(self, delta: Delta | None, image: ClusterImage) -> None:
        """Use the certificates that the image sets, if they have changed. delta: None if the image
        was loaded whole."""
        own = (RESOURCE_BROKER, str(self._broker_id))
        if not self._listeners or (delta is not None and own not in delta.changed_configs):
            return
        configs = image.broker_configs(self._broker_id)
        wanted = {name: value for name, value in configs.items() if name in self._names()}
        if wanted == self._applied:
            return
        self._applied = wanted
        try:
            config, _ = broker_config({**self._given, **wanted})
        except ConfigError as error:
            _log.error("%s: the certificates of before stay in use", error)
            return
        for listener in config.listeners:
            tls = self._listeners.get(listener.name)
            if tls is not None and listener.tls is not None:
                tls.reconfigure(listener.tls)
