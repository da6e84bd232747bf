"""Certificates for a laptop, a lab or a test: a CA, and what it signs.

Keys are P-256: a handshake costs a tenth of the time that RSA takes. A node's certificate is for
both ends of a connection, as nodes call each other. A user's is for clients alone and names no
host, so that no user can pose as a node. This module imports `cryptography`, which is slow, so
callers import this module only where they need it.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kvorum.runtime.errors import ConfigError

OWN_HOSTS = ("localhost", "127.0.0.1", "::1")
"""In the certificate of each node, before the hosts that are given."""
NAME_LENGTH_MAX = 64
"""Characters of a common name (RFC 5280, ub-common-name)."""
CA_DAYS = 3_650
_LABEL = "[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?"
_DNS_NAME = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")
_SKEW = datetime.timedelta(minutes=5)
"""A certificate begins that long before now: another machine's clock may be behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A CA: its certificate, and the key that signs others."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return _key_pem(self.key)

    @property
    def ends(self) -> datetime.datetime:
        return self.certificate.not_valid_after_utc


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A certificate to make. hosts: names and addresses of a node; none of a user.

    begins, ends: by default five minutes ago, and the CA's end.
    """

    name: str
    hosts: tuple[str, ...] = ()
    is_node: bool = True
    organization: str = ""
    unit: str = ""
    begins: datetime.datetime | None = None
    ends: datetime.datetime | None = None


def new_authority(
    now: datetime.datetime, *, name: str = "Kvorum development CA", days: int = CA_DAYS
) -> Authority:
    """A self-signed CA, which signs certificates of nodes and users and no further CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    certificate = (
        _builder(subject, subject, key.public_key())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_ca=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate=certificate, key=key)


def load_certificates(pem: bytes, what: str) -> list[x509.Certificate]:
    """The certificates of CAs, at least one. what: names the file in messages. Raises
    ConfigError."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise ConfigError(
            f"{what} holds no certificate of a CA in PEM form: put the file back, or choose "
            "another folder"
        ) from error


def load_authority(
    certificate_pem: bytes, key_pem: bytes, what: str, key_what: str = ""
) -> Authority:
    """The CA in two PEM texts: of several certificates, the one of the key. what, key_what: name
    the files in messages. Raises ConfigError for texts that are no CA and its key."""
    certificates = load_certificates(certificate_pem, what)
    key_what = key_what or what
    try:
        key = serialization.load_pem_private_key(key_pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"{key_what} holds no key in PEM form without a password: put the key of the CA in "
            f"{what} back, or choose another folder"
        ) from error
    public = key.public_key()
    certificate = next((each for each in certificates if each.public_key() == public), None)
    if certificate is None:
        raise ConfigError(
            f"{key_what} is not the key of the CA in {what}: put back the file that is wrong, or "
            "choose another folder"
        )
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(
            f"{key_what} holds a key of another kind than those of kvorum certs dev: sign with "
            "your CA's own tools, or choose another folder"
        )
    return Authority(certificate=certificate, key=key)


def issue(authority: Authority, wanted: Wanted, now: datetime.datetime) -> bytes:
    """A PEM text with the key (PKCS 8), the certificate and the CA's. Raises ConfigError for a name
    or a host that a certificate cannot have."""
    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if wanted.is_node:
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
    subject = _name(wanted.name, organization=wanted.organization, unit=wanted.unit)
    builder = (
        _builder(subject, authority.certificate.subject, key.public_key())
        .not_valid_before(wanted.begins or now - _SKEW)
        .not_valid_after(min(wanted.ends or authority.ends, authority.ends))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.certificate.public_key()),  # type: ignore[arg-type]
            critical=False,
        )
    )
    if wanted.hosts:
        names = [_host(host) for host in dict.fromkeys(wanted.hosts)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(authority.key, hashes.SHA256())
    own = certificate.public_bytes(serialization.Encoding.PEM)
    return _key_pem(key) + own + authority.certificate_pem


def described(pem: bytes) -> tuple[datetime.datetime, frozenset[str]]:
    """The end, and the hosts, of the first certificate in a PEM text. Raises ValueError."""
    certificate = x509.load_pem_x509_certificate(pem)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return certificate.not_valid_after_utc, frozenset()
    hosts = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    return certificate.not_valid_after_utc, frozenset(
        hosts | set(names.get_values_for_type(x509.DNSName))
    )


def is_signed_by(pem: bytes, authorities: Sequence[x509.Certificate]) -> bool:
    """True if the first certificate in a PEM text is one of these CAs, or of a CA below them whose
    certificate follows in the text. Raises ValueError."""
    certificate, *others = x509.load_pem_x509_certificates(pem)
    while not any(_is_issued_by(certificate, each) for each in authorities):
        issuer = next((each for each in others if _is_issued_by(certificate, each)), None)
        if issuer is None:
            return False
        others.remove(issuer)
        certificate = issuer
    return True


def _is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(common_name: str, *, organization: str = "", unit: str = "") -> x509.Name:
    if not 0 < len(common_name) <= NAME_LENGTH_MAX:
        raise ConfigError(
            f"{common_name!r} is no name for a certificate: it must have 1 to {NAME_LENGTH_MAX} "
            "characters"
        )
    parts = (
        (NameOID.ORGANIZATION_NAME, organization),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, unit),
        (NameOID.COMMON_NAME, common_name),
    )
    return x509.Name([x509.NameAttribute(oid, text) for oid, text in parts if text])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    try:
        name = text.encode("idna").decode()
    except UnicodeError:
        name = ""
    if not _DNS_NAME.fullmatch(name):
        raise ConfigError(f"{text!r} is neither an address nor the name of a host")
    return x509.DNSName(name)


def _usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_ca,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
