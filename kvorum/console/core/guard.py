"""The conditions on a request to the console: the Host, the Origin, the token. Pure.

1. Host. A page of another site cannot make its name point at this server and read it (DNS
   rebinding): Host must be an IP address, localhost, or a name that the command line allowed.
2. Token. Where one is set, every request needs it, in a cookie that other sites' pages cannot make
   the browser send (SameSite=Strict). The printed address sets that cookie.
3. Changes. A POST must come from a page of this server (Origin), with JSON, which a form of another
   site cannot send.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping, Set
from dataclasses import dataclass
from urllib.parse import urlsplit

PAGE_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'; require-trusted-types-for 'script'"
)
REPORT_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of reports. Their styles are inline. They may run no script, and
`sandbox` keeps them out of the console's origin."""

SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The conditions on a request.

    token: "" if none is needed.
    cookie: the name of the token's cookie.
    hosts: names allowed beside addresses and localhost, in lower case.
    allows_changes: a POST may be answered.
    signs_in: a session of a user of the cluster takes the token's place.
    is_https: the page is served over TLS.
    """

    token: str = ""
    cookie: str = "kvorum-console"
    hosts: Set[str] = frozenset()
    allows_changes: bool = False
    signs_in: bool = False
    is_https: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why a request is refused.

    status: the HTTP status.
    reason: a sentence.
    """

    status: int
    reason: str


def is_loopback(host: str) -> bool:
    """True for an address that only this machine can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_token(rules: Rules, given: str | None) -> bool:
    """True if the token is right. Takes equally long for every wrong one."""
    return given is not None and hmac.compare_digest(given.encode(), rules.token.encode())


def check_host(rules: Rules, header: str | None) -> Refused | None:
    """The refusal of a Host header."""
    name = _name_in(header or "")
    if name == "localhost" or name in rules.hosts or _is_address(name):
        return None
    shown = (header or "")[:80]
    return Refused(
        status=421,
        reason=f"this console does not answer to the name {shown!r}; open it by its address, or "
        "allow the name with --allow-host",
    )


def check_token(rules: Rules, cookies: Mapping[str, str], authorization: str) -> Refused | None:
    """The refusal of a request without the token."""
    if not rules.token:
        return None
    scheme, _, bearer = authorization.partition(" ")
    if scheme.lower() == "bearer" and is_token(rules, bearer.strip()):
        return None
    if is_token(rules, cookies.get(rules.cookie)):
        return None
    return Refused(
        status=401,
        reason="this console needs its token: open the address with ?token=… that `kvorum console` "
        "printed at its start",
    )


def check_change(rules: Rules, headers: Mapping[str, str]) -> Refused | None:
    """The refusal of a POST. headers: names in lower case."""
    if not rules.allows_changes:
        return Refused(
            status=403,
            reason="this console only reads; `kvorum console --lab DIR --allow-changes` has "
            "buttons for the nodes of a cluster of `kvorum dev`",
        )
    refused = _check_origin(headers)
    if refused is not None:
        return refused
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return Refused(status=415, reason="a change must be sent as application/json")
    return None


def check_form(headers: Mapping[str, str]) -> Refused | None:
    """The refusal of a form of this console, which another site's page may not send."""
    refused = _check_origin(headers)
    if refused is not None:
        return refused
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return Refused(
            status=415, reason="a form must be sent as application/x-www-form-urlencoded"
        )
    return None


def _check_origin(headers: Mapping[str, str]) -> Refused | None:
    origin, host = headers.get("origin"), headers.get("host")
    if origin not in (f"http://{host}", f"https://{host}"):
        return Refused(
            status=403, reason=f"a change must come from this console's page, not from {origin}"
        )
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return Refused(status=403, reason="a change must come from this console's own page")
    return None


def _name_in(header: str) -> str:
    """The name or address in a Host header, in lower case; empty if it has none."""
    if set(header) & set("/\\@?# \t"):
        return ""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
