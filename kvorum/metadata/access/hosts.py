"""The host of an ACL: one address, a range of addresses, or all. Pure."""

from __future__ import annotations

import functools
import ipaddress

from kvorum.metadata.image.acl import WILDCARD


@functools.lru_cache(maxsize=4096)
def _range_of(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """The range of a host in CIDR notation; None for any other text."""
    if "/" not in text:
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def is_valid_host(text: str) -> bool:
    """True for a WILDCARD, for a range, and for any text without a slash: as in Kafka, a host that
    is no address is accepted, and never matches. A netmask (10.0.0.0/255.0.0.0) is no range."""
    return "/" not in text or (text.rpartition("/")[2].isdigit() and _range_of(text) is not None)


def is_matching_host(text: str) -> bool:
    """True if some client can have the host: a WILDCARD, an address, or a range of them."""
    return text == WILDCARD or _range_of(text) is not None or _address_of(text) is not None


@functools.lru_cache(maxsize=4096)
def _address_of(text: str) -> str | None:
    """The address that a host names, as `plain_address` writes it. None for any other text, and for
    an IPv4 address in the form `::ffff:10.0.0.1`: as in Kafka, no client has such an address."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return None if getattr(found, "ipv4_mapped", None) is not None else str(found)


@functools.lru_cache(maxsize=4096)
def plain_address(address: str) -> str:
    """The address of a client as ACLs name it: an IPv4 address also if the socket has it as an
    IPv6 address (`::ffff:10.0.0.1`)."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = getattr(found, "ipv4_mapped", None)
    return str(found if mapped is None else mapped)


@functools.lru_cache(maxsize=65_536)
def host_matches(host: str, address: str) -> bool:
    """True if an ACL's host covers a client's address (of `plain_address`)."""
    if host == WILDCARD:
        return True
    range_ = _range_of(host)
    if range_ is None:
        return _address_of(host) == address
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return found.version == range_.version and found in range_
