"""The certificates of a listener, and their change under way."""

from __future__ import annotations

import logging
import os
import ssl

from kvorum.runtime.errors import ConfigError
from kvorum.runtime.principals import PrincipalRules
from kvorum.runtime.tls import TlsSettings, server_context

_log = logging.getLogger(__name__)

_Stamp = tuple[tuple[int, int, int], ...]


class TlsListener:
    """TLS of one listener. context: for clients that connect from now on; those that are connected
    keep theirs. Raises ConfigError at the start for files that cannot be used."""

    def __init__(self, settings: TlsSettings, rules: PrincipalRules) -> None:
        self.settings = settings
        self.rules = rules
        self._stamp = self._now()
        self.context: ssl.SSLContext = server_context(settings)

    def refresh(self, *, is_asked: bool = False) -> None:
        """Read the files again if they have changed, or if an operator asks for it. Bad ones leave
        everything as it was, with an error in the log."""
        stamp = self._now()
        if stamp == self._stamp and not is_asked:
            return
        self._stamp = stamp
        try:
            self.context = server_context(self.settings)
        except ConfigError as error:
            _log.error("%s: the certificates of before stay in use", error)
            return
        _log.info("%s: certificates read again", self.settings.what)

    def _now(self) -> _Stamp:
        found = []
        for path in self.settings.files:
            try:
                status = os.stat(path)
            except OSError:
                found.append((0, 0, 0))  # half of a replacement; reading it says what is wrong
                continue
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(found)
