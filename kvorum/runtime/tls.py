"""TLS contexts from PEM files, by the settings of Kafka's `ssl.*` names; words for failures."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from kvorum.runtime.errors import ConfigError

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
"""The versions of TLS that are served, by Kafka's names."""
CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The `ssl.*` settings of one listener, or of connections that a node or client opens.

    what: names the listener or the file in messages.
    keystore: file with the certificate's chain and its key.

    certificate_chain, key: the same as PEM text, in place of a file; a client may have neither.
    truststore, trusted: file or text of the CAs that sign the other side's certificates; a client
        without them trusts the CAs of the system.
    client_auth: a server's; a key of CLIENT_AUTH.
    versions: keys of VERSIONS.
    checks_name: a client's; False accepts a certificate of any host.
    allows_other_name, allows_fewer_hosts: of the certificate that takes the place of another in a
        running node.
    listener: its name, "" for none.
    """

    what: str
    listener: str = ""
    keystore: str = ""
    certificate_chain: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    truststore: str = ""
    trusted: str = field(default="", repr=False)
    client_auth: str = "none"
    versions: tuple[str, ...] = tuple(VERSIONS)
    checks_name: bool = True
    allows_other_name: bool = False
    allows_fewer_hosts: bool = False

    @property
    def has_certificate(self) -> bool:
        """True if there is one to show."""
        return bool(self.keystore or self.key)

    @property
    def files(self) -> tuple[str, ...]:
        """The files whose change makes another context."""
        return tuple(filter(None, (self.keystore, self.truststore)))


def server_context(settings: TlsSettings, protocols: Sequence[str] = ()) -> ssl.SSLContext:
    """The context of a listener. protocols: of ALPN. Raises ConfigError, which names the file or
    the property and shows no key."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings, protocols)
    context.verify_mode = ssl.CERT_NONE
    _load_certificate(context, settings)
    if settings.truststore or settings.trusted:
        _load_trusted(context, settings)
    elif settings.client_auth != "none":
        raise ConfigError(
            f"{settings.what}: ssl.client.auth={settings.client_auth} needs the CAs of clients, "
            "ssl.truststore.location or ssl.truststore.certificates"
        )
    context.verify_mode = CLIENT_AUTH[settings.client_auth]
    return context


def client_context(settings: TlsSettings, protocols: Sequence[str] = ()) -> ssl.SSLContext:
    """The context of the side that connects. Raises ConfigError like `server_context`."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings, protocols)
    context.check_hostname = settings.checks_name
    if settings.has_certificate:
        _load_certificate(context, settings)
    if settings.truststore or settings.trusted:
        _load_trusted(context, settings)
    else:
        context.load_default_certs()
    return context


def failure_text(error: BaseException) -> str:
    """Why a connection over TLS could not be made, or ended, in words for an operator."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the other side's certificate is not accepted: {error.verify_message.rstrip('.')}"
    reason = getattr(error, "reason", None)
    if isinstance(error, ssl.SSLError) and reason:
        return _WORDS.get(reason, f"TLS: {reason.lower().replace('_', ' ')}")
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "the other side closed the connection during the TLS handshake"
    return str(error) or type(error).__name__


def client_failure_text(error: BaseException) -> str:
    """The fault of a client that a server refused in its handshake, in words for the server's
    operator."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message.rstrip(".")
        return _OF_CERTIFICATES.get(
            error.verify_code, f"the client's certificate is not accepted: {said}"
        )
    reason = getattr(error, "reason", None)
    if isinstance(error, ssl.SSLError) and reason in _OF_CLIENTS:
        return _OF_CLIENTS[reason]
    if isinstance(error, ssl.SSLEOFError | ConnectionError):
        return _LEFT
    if isinstance(error, ssl.SSLError):
        return failure_text(error).replace("the other side", "the client")
    return getattr(error, "strerror", None) or failure_text(error)


_LEFT = "the client closed the connection during the TLS handshake"
_CLEAR_TEXT = (
    "the client spoke clear text, or another protocol, to a listener with TLS; a client of Kafka "
    "needs security.protocol=SSL or SASL_SSL"
)
_NO_VERSION = (
    "the client offered no version of TLS that is served here (ssl.enabled.protocols), or no "
    "cipher suite"
)
_REFUSED = "the client does not accept this node's certificate"
_OF_CLIENTS = {
    "HTTP_REQUEST": _CLEAR_TEXT,
    "HTTPS_PROXY_REQUEST": _CLEAR_TEXT,
    "PACKET_LENGTH_TOO_LONG": _CLEAR_TEXT,
    "RECORD_LAYER_FAILURE": _CLEAR_TEXT,
    "WRONG_VERSION_NUMBER": _CLEAR_TEXT,
    "UNKNOWN_PROTOCOL": _CLEAR_TEXT,
    "UNSUPPORTED_PROTOCOL": _NO_VERSION,
    "NO_PROTOCOLS_AVAILABLE": _NO_VERSION,
    "VERSION_TOO_LOW": _NO_VERSION,
    "NO_SHARED_CIPHER": _NO_VERSION,
    "TLSV1_ALERT_PROTOCOL_VERSION": _NO_VERSION,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": (
        "the client showed no certificate, and ssl.client.auth=required asks for one"
    ),
    "UNEXPECTED_EOF_WHILE_READING": _LEFT,
    "TLSV1_ALERT_UNKNOWN_CA": f"{_REFUSED}: its truststore has not the CA",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": f"{_REFUSED}: it has expired",
    "SSLV3_ALERT_BAD_CERTIFICATE": f"{_REFUSED}: its name or its form is another",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _REFUSED,
}
"""OpenSSL's reason -> what the client did. A Java client sends certificate_unknown for every fault
of a certificate."""
_FOREIGN = "the client's certificate is of a CA that the truststore of this listener lacks"
_OF_CERTIFICATES = {
    2: _FOREIGN,
    9: "the client's certificate is not valid yet",
    10: "the client's certificate has expired",
    18: "the client's certificate is self-signed, and is not in the truststore of this listener",
    19: _FOREIGN,
    20: _FOREIGN,
    21: _FOREIGN,
    26: "the client's certificate is not for clients (its extended key usage)",
}
"""OpenSSL's X509_V_ERR_... -> the same."""

_NO_TLS = "the other side does not speak TLS"
_WORDS = {
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "HTTP_REQUEST": _NO_TLS,
    "PACKET_LENGTH_TOO_LONG": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "UNEXPECTED_EOF_WHILE_READING": "the other side closed the connection, and TLS had not ended",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the other side showed no certificate",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the other side asks for a certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not know the CA of this side's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the other side finds this side's certificate expired",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side refused this side's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other side refused this side's certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the other side refused the handshake",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the other side serves other versions of TLS",
    "UNSUPPORTED_PROTOCOL": "the other side offers no version of TLS that is served here",
}
"""OpenSSL's reason -> words for operators, where OpenSSL's own words do not help them."""


def _context(
    kind: ssl._SSLMethod, settings: TlsSettings, protocols: Sequence[str]
) -> ssl.SSLContext:
    context = ssl.SSLContext(kind)
    known = [VERSIONS[version] for version in settings.versions]
    context.minimum_version, context.maximum_version = min(known), max(known)
    # Compression leaks secrets, and renegotiation costs the server more than the client.
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


def _load_certificate(context: ssl.SSLContext, settings: TlsSettings) -> None:
    with _key_file(settings) as path:
        try:
            # Without a password, OpenSSL would ask for one on the terminal.
            context.load_cert_chain(path, password=lambda: settings.key_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ConfigError(
                f"{settings.what}: no certificate and key in "
                f"{settings.keystore or 'ssl.keystore.certificate.chain and ssl.keystore.key'}: "
                f"{_key_reason(path, settings) or _reason(error, _NO_PAIR)}"
            ) from error


def _key_reason(path: str, settings: TlsSettings) -> str:
    """The reason that an encrypted key gives, "" for any other; OpenSSL's own words name no
    property."""
    try:
        with open(path, "rb") as file:
            is_encrypted = b"ENCRYPTED" in file.read()
    except OSError:
        return ""  # the caller has the reason
    if not is_encrypted:
        return ""
    if not settings.key_password:
        return "the key is encrypted; set ssl.key.password to its password"
    return "the key is encrypted, and ssl.key.password is not its password"


def _load_trusted(context: ssl.SSLContext, settings: TlsSettings) -> None:
    try:
        context.load_verify_locations(
            cafile=settings.truststore or None, cadata=settings.trusted or None
        )
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigError(
            f"{settings.what}: no certificates in "
            f"{settings.truststore or 'ssl.truststore.certificates'}: "
            f"{_reason(error, _NO_TRUSTED)}"
        ) from error


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


_NO_PAIR = "it must hold a private key and its certificate, both in PEM form"
_NO_TRUSTED = "it must hold certificates in PEM form"
_OF_FILES = {
    "KEY_VALUES_MISMATCH": "the key is not the certificate's",
    "NO_CERTIFICATE_OR_CRL_FOUND": _NO_TRUSTED,
}
"""OpenSSL's reason -> what is wrong with a file."""


def _reason(error: Exception, unreadable: str) -> str:
    """unreadable: the words for a text that OpenSSL refuses without a reason, with a line of its
    own source."""
    if isinstance(error, ssl.SSLError):
        if not error.reason:
            return unreadable
        return _OF_FILES.get(error.reason, error.reason.lower().replace("_", " "))
    return getattr(error, "strerror", None) or str(error)
