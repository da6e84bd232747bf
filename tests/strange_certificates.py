"""Certificates of a test's own CA, written as DER by hand: any name, any extension, any length."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.certificates import Authority

COMMON_NAME = "2.5.4.3"
EMAIL_ADDRESS = "1.2.840.113549.1.9.1"
ALTERNATIVE_NAME = "2.5.29.17"
UTF8 = 0x0C
BAD_EMAIL = bytes.fromhex("3005810361FF62")
"""An alternative name: the e-mail address a\\xffb, as old CAs write Latin-1."""

_ECDSA_WITH_SHA256 = "1.2.840.10045.4.3.2"


def tlv(tag: int, body: bytes) -> bytes:
    """One element of DER."""
    size = b""
    if len(body) >= 0x80:
        size = len(body).to_bytes((len(body).bit_length() + 7) // 8, "big")
    length = bytes([0x80 | len(size)]) + size if size else bytes([len(body)])
    return bytes([tag]) + length + body


def oid(text: str) -> bytes:
    """An object identifier."""
    first, second, *rest = (int(part) for part in text.split("."))
    body = b""
    for number in (first * 40 + second, *rest):
        groups = [number & 0x7F]
        while number := number >> 7:
            groups.append(0x80 | number & 0x7F)
        body += bytes(reversed(groups))
    return tlv(0x06, body)


def name(*attributes: tuple[str, int, bytes]) -> bytes:
    """A Name whose parts have one attribute each: type, tag of the value, value."""
    parts = (tlv(0x31, tlv(0x30, oid(kind) + tlv(tag, value))) for kind, tag, value in attributes)
    return tlv(0x30, b"".join(parts))


def certificate(
    authority: Authority,
    subject: bytes,
    extensions: Sequence[tuple[str, bytes]] = (),
) -> tuple[bytes, bytes]:
    """(certificate in DER, key and certificates in PEM) with this subject, signed by the CA.

    subject: a Name. extensions: type and value, none of them critical.
    """
    ca, key = authority.signer, ec.generate_private_key(ec.SECP256R1())
    algorithm = tlv(0x30, oid(_ECDSA_WITH_SHA256))
    more = b"".join(tlv(0x30, oid(kind) + tlv(0x04, value)) for kind, value in extensions)
    tbs = tlv(
        0x30,
        tlv(0xA0, tlv(0x02, b"\x02"))
        + tlv(0x02, b"\x7f")
        + algorithm
        + ca.certificate.subject.public_bytes()
        + tlv(0x30, tlv(0x17, b"200101000000Z") + tlv(0x17, b"490101000000Z"))
        + subject
        + key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        + (tlv(0xA3, tlv(0x30, more)) if more else b""),
    )
    signature = ca.key.sign(tbs, ec.ECDSA(hashes.SHA256()))
    der = tlv(0x30, tbs + algorithm + tlv(0x03, b"\0" + signature))
    key_pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    body = base64.encodebytes(der).decode()
    pem = f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n".encode()
    return der, key_pem + pem


def strange_client(authority: Authority, folder: Path) -> Path:
    """The file of a client `CN=mallory` with an alternative name that is no UTF-8."""
    subject = name((COMMON_NAME, UTF8, b"mallory"))
    path = folder / "strange.pem"
    path.write_bytes(certificate(authority, subject, [(ALTERNATIVE_NAME, BAD_EMAIL)])[1])
    return path
