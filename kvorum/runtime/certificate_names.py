"""The subject of a client's certificate as text, as Java's X500Principal.getName writes it. Pure.

Source: RFC 5280 section 4.1 (the certificate), RFC 2253 (the text), ITU-T X.690 (DER). Kafka's
users of certificates have these names. Python's own `getpeercert` names attributes in its own way,
and raises for a certificate with an alternative name that is no UTF-8. Kafka serves such clients.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvorum.runtime.errors import WireError

_SEQUENCE, _SET, _OID, _VERSION = 0x30, 0x31, 0x06, 0xA0
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""The attribute types of RFC 2253, section 2.3. All others are written as numbers."""
_STRINGS = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
"""Tags of values that are written as text: UTF8String, PrintableString, T61String, IA5String,
GeneralString, BMPString. Java reads the bytes of all of them as UTF-8."""
OID_BYTES_MAX = 256
"""Limit of an attribute's type: a number of a hundred thousand bytes would hold the loop up."""
_SPECIAL = re.compile(r'[,=+<>#;"\\]')
_SURROGATE = re.compile(b"\xed[\xa0-\xbf][\x80-\xbf]")
"""One character to Java's decoder; Python's would write three."""


def subject_of(certificate: bytes) -> str:
    """The subject of a DER certificate, its last part first: `CN=alice,OU=web,O=Example`.

    Raises WireError if it cannot be read.
    """
    try:
        body, _ = _element(certificate, 0, _SEQUENCE)
        fields = list(_elements(_element(body, 0, _SEQUENCE)[0]))
        # version (optional), serial number, signature algorithm, issuer, validity, subject
        tag, subject = fields[5 if fields[0][0] == _VERSION else 4]
        if tag != _SEQUENCE:
            raise ValueError(f"tag {tag:#x} in the place of the subject")
        return name_text(subject)
    except (ValueError, IndexError) as error:
        raise WireError(f"the subject of the certificate cannot be read: {error}") from error


def name_text(parts: bytes) -> str:
    """The text of the parts of a Name (RelativeDistinguishedNames). Raises ValueError, IndexError
    for bytes that are no such parts."""
    names = []
    for tag, part in _elements(parts):
        if tag != _SET:
            raise ValueError(f"tag {tag:#x} in the place of a part of the name")
        if part:
            names.append("+".join(_attribute(value) for _, value in _elements(part)))
    return ",".join(reversed(names))


def _attribute(attribute: bytes) -> str:
    oid, end = _element(attribute, 0, _OID)
    tag, value = attribute[end], _element(attribute, end)[0]
    kind = _oid_text(oid)
    keyword = _KEYWORDS.get(kind)
    if keyword is None or tag not in _STRINGS:
        return f"{keyword or kind}=#{attribute[end:].hex()}"
    text = _SURROGATE.sub(b"\xff", value).decode(errors="replace")
    return f"{keyword}={_escaped(text)}"


def _escaped(text: str) -> str:
    inner = text.strip(" \r")
    head = text[: len(text) - len(text.lstrip(" \r"))]
    tail = text[len(head) + len(inner) :]
    inner = _SPECIAL.sub(r"\\\g<0>", inner).replace("\0", "\\00")
    return "".join(f"\\{blank}" for blank in head) + inner + "".join(f"\\{b}" for b in tail)


def _oid_text(body: bytes) -> str:
    if len(body) > OID_BYTES_MAX:
        raise ValueError(f"an object identifier of {len(body)} bytes is over {OID_BYTES_MAX}")
    numbers, number = [], 0
    for byte in body:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        body, end = _element(data, at)
        yield data[at], body
        at = end


def _element(data: bytes, at: int, tag: int | None = None) -> tuple[bytes, int]:
    """The contents of the element at a position, and the position behind it."""
    if tag is not None and data[at] != tag:
        raise ValueError(f"tag {data[at]:#x} in the place of {tag:#x}")
    length, at = data[at + 1], at + 2
    if length >= 0x80:
        size = length & 0x7F
        length, at = int.from_bytes(data[at : at + size], "big"), at + size
    if at + length > len(data):
        raise ValueError(f"an element of {length} bytes in {len(data) - at}")
    return data[at : at + length], at + length
