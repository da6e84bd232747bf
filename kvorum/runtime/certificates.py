"""The certificates of a listener or of calling nodes, and their replacement while the node runs."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import ssl
import time
from collections.abc import Callable, Sequence

from kvorum.runtime.certificate_checks import (
    Certificate,
    read_certificate,
    replacement_problem,
)
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.principals import PrincipalRules
from kvorum.runtime.tls import TlsSettings, client_context, server_context

_log = logging.getLogger(__name__)

CHECK_S = 5.0
"""Pause between two looks at the certificates' files."""

_Stamp = tuple[tuple[int, int, int], ...]


class _Certificates:
    """An SSL context that is replaced when its files or settings change.

    context: for connections that begin from now on; those that are open keep theirs.
    shown: the certificate there, None if there is none. The constructor raises ConfigError for
        files that cannot be used.
    """

    is_server = True

    def __init__(
        self, settings: TlsSettings, make: Callable[[TlsSettings], ssl.SSLContext]
    ) -> None:
        self.settings = settings
        self._make = make
        self._stamp = self._now()
        self.context: ssl.SSLContext = make(settings)
        self.shown = read_certificate(settings, is_server=self.is_server)

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

    def check(self, settings: TlsSettings) -> None:
        """Raise ConfigError, with file and reason, for settings that `reconfigure` would not
        use."""
        self._made(settings)

    def _made(self, settings: TlsSettings) -> tuple[ssl.SSLContext, Certificate | None]:
        context = self._make(settings)
        shown = read_certificate(settings, is_server=self.is_server)
        if shown is not None:
            problem = replacement_problem(settings, self.shown, shown, now_s=time.time())
            if problem:
                raise ConfigError(f"{settings.what}: {shown.where} is not used: {problem}")
        return context, shown

    def _read(self, settings: TlsSettings) -> bool:
        try:
            self.context, self.shown = self._made(settings)
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
    """TLS of one listener.

    rules: from a caller's certificate to its user.
    protocols: of ALPN.
    """

    def __init__(
        self, settings: TlsSettings, rules: PrincipalRules, protocols: Sequence[str] = ()
    ) -> None:
        self.rules = rules
        super().__init__(settings, lambda settings: server_context(settings, protocols))


class TlsCaller(_Certificates):
    """TLS of connections that a node opens. protocols: of ALPN."""

    is_server = False

    def __init__(self, settings: TlsSettings, protocols: Sequence[str] = ()) -> None:
        super().__init__(settings, lambda settings: client_context(settings, protocols))


class CertificateWatch:
    """All certificates of a node, read again when their files change, and at SIGHUP. The end of one
    is reported when it is near, and when it has come."""

    def __init__(self) -> None:
        self.watched: list[_Certificates] = []
        self._warned: set[tuple[str, float, bool]] = set()

    def add(self, certificates: _Certificates) -> None:
        """Watch these, too. From now on SIGHUP does not end the process."""
        if not self.watched:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_signal)
        self.watched.append(certificates)
        self._warn(certificates)

    async def run(self) -> None:
        """Look at the files every CHECK_S, until cancelled; returns at once if there are none."""
        while self.watched:
            await asyncio.sleep(CHECK_S)
            for certificates in self.watched:
                certificates.refresh()
                self._warn(certificates)

    def end_warnings(self) -> list[str]:
        """A sentence for each file whose certificate has expired, or ends soon."""
        now_s = time.time()
        shown = [each.shown for each in self.watched if each.shown is not None]
        return list(dict.fromkeys(filter(None, (each.end_warning(now_s) for each in shown))))

    def _warn(self, certificates: _Certificates) -> None:
        """Log the end of a certificate once when it is near, and once when it has come: several
        listeners may share a file."""
        shown, now_s = certificates.shown, time.time()
        text = "" if shown is None else shown.end_warning(now_s)
        if shown is None or not text:
            return
        told = (shown.where, shown.ends_s, shown.seconds_left(now_s) <= 0)
        if told not in self._warned:
            self._warned.add(told)
            _log.warning("%s: %s", certificates.settings.what, text)

    def _on_signal(self) -> None:
        for certificates in self.watched:
            certificates.refresh(is_asked=True)
