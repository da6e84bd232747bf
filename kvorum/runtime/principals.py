"""Maps a client's certificate to its user: `ssl.principal.mapping.rules` (KIP-371). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kvorum.runtime.errors import ConfigError

_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "stateOrProvinceName": "ST",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
    "emailAddress": "EMAILADDRESS",
}
_SPECIAL = re.compile(r'([,+"\\<>;=])')
_RULE = re.compile(r"(DEFAULT)|RULE:((?:\\/|[^/])*)/((?:\\/|[^/])*)/([LU]?)")


class PrincipalRules:
    """The rules in their order; the first that matches the whole name decides.

    text: `DEFAULT` (the distinguished name as it is) and `RULE:pattern/replacement/` with an L or U
    at the end for lower or upper case, with commas between them. Raises ConfigError.
    """

    def __init__(self, text: str = "DEFAULT") -> None:
        self._rules: list[tuple[re.Pattern[str], str, str] | None] = []
        rest = text.strip() or "DEFAULT"
        while rest:
            found = _RULE.match(rest)
            if found is None:
                raise ConfigError(
                    f"ssl.principal.mapping.rules={text!r}: {rest!r} is neither DEFAULT nor "
                    "RULE:pattern/replacement/ with an L or U at its end"
                )
            self._rules.append(None if found[1] else self._rule(text, *found.groups()[1:]))
            rest = rest[found.end() :].lstrip()
            if rest and not rest.startswith(","):
                raise ConfigError(f"ssl.principal.mapping.rules={text!r}: no comma before {rest!r}")
            rest = rest[1:].lstrip()

    @staticmethod
    def _rule(text: str, pattern: str, replacement: str, case: str) -> Any:
        try:
            compiled = re.compile(pattern.replace("\\/", "/"))
            # Java's $1 is Python's \g<1>.
            template = re.sub(r"\$(\d+)", r"\\g<\1>", replacement.replace("\\/", "/"))
            re.compile(pattern).sub(template, "") if compiled.groups else None
        except (re.error, IndexError) as error:
            raise ConfigError(f"ssl.principal.mapping.rules={text!r}: {error}") from error
        return compiled, template, case

    def user_of(self, certificate: Mapping[str, Any]) -> str:
        """The user of a certificate, as `ssl.SSLSocket.getpeercert` gives it."""
        return self.user_of_name(distinguished_name(certificate))

    def user_of_name(self, name: str) -> str:
        """The user of a certificate with this distinguished name, as RFC 2253 writes it."""
        for rule in self._rules:
            if rule is None:
                return name
            pattern, template, case = rule
            found = pattern.fullmatch(name)
            if found is not None:
                user = found.expand(template)
                return {"L": user.lower(), "U": user.upper()}.get(case, user)
        return name


def distinguished_name(certificate: Mapping[str, Any]) -> str:
    """The subject as RFC 2253 writes it, the last part first: `CN=alice,OU=web,O=Example`."""
    parts = [
        "+".join(f"{_SHORT.get(kind, kind)}={_SPECIAL.sub(_escape, value)}" for kind, value in part)
        for part in reversed(certificate.get("subject", ()))
    ]
    return ",".join(parts)


def _escape(found: re.Match[str]) -> str:
    return f"\\{found[1]}"
