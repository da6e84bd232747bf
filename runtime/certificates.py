"""The certificates of a listener or of calling nodes, and their replacement while the node runs."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import ssl
from collections.abc import Callable, Sequence

from kvorum.runtime.errors import ConfigError
from kvorum.runtime.principals import PrincipalRules
from kvorum.runtime.tls import TlsSettings, client_context, server_context

_log = logging.getLogger(__name__)

CHECK_S = 5.0
"""Pause between two looks at the certificates' files."""

_Stamp = tuple[tuple[int, int, int], ...]


class _Certificates:
    """An SSL context that is replaced when its files or settings change.

    context: for connections that begin from now on; those that are open keep theirs. The
    constructor raises ConfigError for files that cannot be used.
    """

    def __init__(
        self, settings: TlsSettings, make: Callable[[TlsSettings], ssl.SSLContext]
    ) -> None:
        self.settings = settings
        self._make = make
        self._stamp = self._now()
        self.context: ssl.SSLContext = make(settings)

    def refresh(self, *, is_asked: bool = False) -> None:
        """Read the files again if they have changed, or if an operator asks for it. Bad ones leave
        everything as it was, with an error in the log."""
        stamp = self._now()
        if stamp == self._stamp and not is_asked:
            return
        self._stamp = stamp
        self._read(self.settings)

    def reconfigure(self, settings: TlsSettings) -> None:
        """Use other settings from now on, if they can be used; else those of before, with an error
        in the log."""
        if self._read(settings):
            self.settings = settings
            self._stamp = self._now()

    def _read(self, settings: TlsSettings) -> bool:
        try:
            self.context = self._make(settings)
        except ConfigError as error:
            _log.error("%s: the certificates of before stay in use", error)
            return False
        _log.info("%s: certificates read again", settings.what)
        return True

    def _now(self) -> _Stamp:
        found = []
        for path in self.settings.files:
            try:
                status = os.stat(path)
            except OSError:
                found.append((0, 0, 0))  # missing, or being replaced; `_read` reports what is wrong
                continue
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(found)


class TlsListener(_Certificates):
    """TLS of one listener. rules: from a caller's certificate to its user. protocols: of ALPN."""

    def __init__(
        self, settings: TlsSettings, rules: PrincipalRules, protocols: Sequence[str] = ()
    ) -> None:
        self.rules = rules
        super().__init__(settings, lambda settings: server_context(settings, protocols))


class TlsCaller(_Certificates):
    """TLS of connections that a node opens. protocols: of ALPN."""

    def __init__(self, settings: TlsSettings, protocols: Sequence[str] = ()) -> None:
        super().__init__(settings, lambda settings: client_context(settings, protocols))


class CertificateWatch:
    """All certificates of a node, read again when their files change, and at SIGHUP."""

    def __init__(self) -> None:
        self._watched: list[_Certificates] = []

    def add(self, certificates: _Certificates) -> None:
        """Watch these, too. From now on SIGHUP does not end the process."""
        if not self._watched:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_signal)
        self._watched.append(certificates)

    async def run(self) -> None:
        """Look at the files every CHECK_S, until cancelled; returns at once if there are none."""
        while self._watched:
            await asyncio.sleep(CHECK_S)
            for certificates in self._watched:
                certificates.refresh()

    def _on_signal(self) -> None:
        for certificates in self._watched:
            certificates.refresh(is_asked=True)
