"""Server-side TLS contexts from PEM files, by the settings of Kafka's `ssl.*` names."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kvorum.runtime.errors import ConfigError

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
"""Older ones are not served."""
CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """what: the listener, for messages. keystore: file with the certificate's chain and its key.

    certificate_chain, key: the same as PEM text, in place of a file. truststore, trusted: file or
    text of the CAs that sign clients' certificates. versions: keys of VERSIONS.
    """

    what: str
    keystore: str = ""
    certificate_chain: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    truststore: str = ""
    trusted: str = field(default="", repr=False)
    client_auth: str = "none"
    versions: tuple[str, ...] = tuple(VERSIONS)

    @property
    def files(self) -> tuple[str, ...]:
        """The files whose change makes another context."""
        return tuple(filter(None, (self.keystore, self.truststore)))


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Raises ConfigError, which names the file or the property and shows no key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    known = [VERSIONS[version] for version in settings.versions]
    context.minimum_version, context.maximum_version = min(known), max(known)
    # Compression leaks secrets, and renegotiation costs the server more than the client.
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.verify_mode = ssl.CERT_NONE
    with _key_file(settings) as path:
        try:
            # Without a password, OpenSSL would ask for one on the terminal.
            context.load_cert_chain(path, password=lambda: settings.key_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ConfigError(
                f"{settings.what}: no certificate and key in "
                f"{settings.keystore or 'ssl.keystore.certificate.chain and ssl.keystore.key'}: "
                f"{_reason(error)}; a PEM file has the key, then the certificate and its chain"
            ) from error
    if settings.truststore or settings.trusted:
        try:
            context.load_verify_locations(
                cafile=settings.truststore or None, cadata=settings.trusted or None
            )
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ConfigError(
                f"{settings.what}: no certificates in "
                f"{settings.truststore or 'ssl.truststore.certificates'}: {_reason(error)}"
            ) from error
    elif settings.client_auth != "none":
        raise ConfigError(
            f"{settings.what}: ssl.client.auth={settings.client_auth} needs the CAs of clients, "
            "ssl.truststore.location or ssl.truststore.certificates"
        )
    context.verify_mode = CLIENT_AUTH[settings.client_auth]
    return context


@contextmanager
def _key_file(settings: TlsSettings) -> Iterator[str]:
    """A path that OpenSSL can read; a key that is given as text touches no disk."""
    if settings.keystore:
        yield settings.keystore
        return
    fd = os.memfd_create("kvorum-tls", os.MFD_CLOEXEC)
    try:
        os.write(fd, f"{settings.key}\n{settings.certificate_chain}\n".encode())
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return getattr(error, "strerror", None) or str(error)
