"""The rules by which a certificate may take the place of another, and the words for its end.

As in Kafka, a running node takes no certificate with another name, with fewer hosts, or of a CA
that its truststore lacks, if that had the CA of the one before. It also takes none that has
expired.
"""

from __future__ import annotations

import datetime
import ssl
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvorum.runtime.errors import ConfigError
from kvorum.runtime.tls import TlsSettings, client_context, server_context

if TYPE_CHECKING:
    from cryptography import x509

DAY_S = 86_400
WARNING_DAYS = 30
"""A certificate that ends within so many days is reported."""
_EXPIRED, _NOT_YET_VALID = 10, 9
"""OpenSSL's codes of a chain that is sound but for its dates (X509_V_ERR_CERT_HAS_EXPIRED, ...)."""
_ROUNDS_MAX = 10
"""Turns of each side in a handshake; TLS 1.2 takes two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The certificate that a node shows.

    where: its file, or the property with its text.
    subject: as RFC 4514 writes it.
    begins_s, ends_s: seconds since 1970.
    names: hosts and addresses.
    is_accepted: the node's own truststore accepts it.
    """

    where: str
    subject: str
    begins_s: float
    ends_s: float
    names: frozenset[str]
    is_accepted: bool

    def seconds_left(self, now_s: float) -> float:
        """Seconds until it ends; negative after that."""
        return self.ends_s - now_s

    @property
    def end(self) -> str:
        """The end as a date."""
        return _date(self.ends_s)

    def end_warning(self, now_s: float) -> str:
        """A sentence if it has expired or ends within WARNING_DAYS, else ""."""
        left_s = self.seconds_left(now_s)
        if left_s > WARNING_DAYS * DAY_S:
            return ""
        named = f"the certificate {self.subject} in {self.where}"
        if left_s <= 0:
            return f"{named} expired on {self.end}: others refuse it; put a new one in its place"
        return (
            f"{named} ends on {self.end}, in {int(left_s // DAY_S)} days: put a new one in its "
            "place before that"
        )


def read_certificate(settings: TlsSettings, *, is_server: bool) -> Certificate | None:
    """The certificate that these settings show; None if they have none. is_server: on a listener.
    Raises ConfigError."""
    if not settings.has_certificate:
        return None
    # `cryptography` takes 10 MB, which nodes without TLS do not need.
    from cryptography import x509

    where = settings.keystore or "ssl.keystore.certificate.chain"
    try:
        if settings.keystore:
            with open(settings.keystore, "rb") as file:
                pem = file.read()
        else:
            pem = settings.certificate_chain.encode()
        own = x509.load_pem_x509_certificates(pem)[0]
        names = _names(own)
    except (
        OSError,
        ValueError,
        x509.DuplicateExtension,
        x509.UnsupportedGeneralNameType,
    ) as error:
        raise ConfigError(
            f"{settings.what}: the certificate in {where} cannot be read: {error}; its PEM file "
            "has the key, then the certificate and its chain"
        ) from error
    return Certificate(
        where=where,
        # Java and OpenSSL have a name for this one, RFC 4514 has none.
        subject=own.subject.rfc4514_string({x509.NameOID.EMAIL_ADDRESS: "EMAILADDRESS"}),
        begins_s=own.not_valid_before_utc.timestamp(),
        ends_s=own.not_valid_after_utc.timestamp(),
        names=names,
        is_accepted=_is_accepted(settings, is_server=is_server),
    )


def replacement_problem(
    settings: TlsSettings, old: Certificate | None, new: Certificate, *, now_s: float
) -> str:
    """The reason why a running node must not show `new`, by `settings`, in the place of `old`; ""
    for none."""
    if new.seconds_left(now_s) <= 0:
        return f"the certificate {new.subject} expired on {new.end}"
    if new.begins_s > now_s:
        return f"the certificate {new.subject} is valid from {_date(new.begins_s)} only"
    if old is None:
        return ""
    if old.is_accepted and not new.is_accepted and (settings.truststore or settings.trusted):
        trusted = settings.truststore or "ssl.truststore.certificates"
        return (
            f"the certificate {new.subject} is of no CA in {trusted}, as the one before was; add "
            "its CA there first"
        )
    if new.subject != old.subject and not settings.allows_other_name:
        return (
            f"the certificate's name {new.subject} is not {old.subject} as before; set "
            "ssl.allow.dn.changes=true if that is wanted"
        )
    missing = sorted(old.names - new.names)
    if missing and not settings.allows_fewer_hosts:
        return (
            f"the certificate {new.subject} lacks {', '.join(missing)}, which the one before had; "
            "set ssl.allow.san.changes=true if that is wanted"
        )
    return ""


def _names(certificate: x509.Certificate) -> frozenset[str]:
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(str(name.value) for name in found)


def _is_accepted(settings: TlsSettings, *, is_server: bool) -> bool:
    """True if the settings' own truststore accepts their certificate, whatever its dates. As in
    Kafka, a handshake in memory tells."""
    if not (settings.truststore or settings.trusted):
        return False
    if is_server:
        shows = server_context(replace(settings, client_auth="none"))
        nobody = replace(settings, keystore="", certificate_chain="", key="", checks_name=False)
        checks = client_context(nobody)
    else:
        shows = client_context(replace(settings, checks_name=False))
        shows.verify_mode = ssl.CERT_NONE
        checks = server_context(replace(settings, client_auth="required"))
    to_checks, to_shows = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        shows.wrap_bio(to_shows, to_checks, server_side=is_server),
        checks.wrap_bio(to_checks, to_shows, server_side=not is_server),
    ]
    for _ in range(_ROUNDS_MAX):
        for side in list(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error.verify_code in (_EXPIRED, _NOT_YET_VALID)
            except ssl.SSLError:
                return False  # both sides have the same settings: no peer could use this key
            sides.remove(side)
    return not sides


def _date(at_s: float) -> str:
    return f"{datetime.datetime.fromtimestamp(at_s, datetime.UTC):%Y-%m-%d %H:%M} UTC"
