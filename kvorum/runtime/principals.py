"""Maps a client's certificate to its user: `ssl.principal.mapping.rules` (KIP-371). Pure.

Rules mean what they mean in Kafka, where Java's expressions match them. Here RE2 does, because a
client chooses the name that is matched. A rule that RE2 would read in another way is refused at the
start.
"""

from __future__ import annotations

import re
from typing import Any

from kvorum.runtime.certificate_names import subject_of
from kvorum.runtime.errors import ConfigError, WireError
from kvorum.runtime.linear_expressions import BadExpression, compiled

KEY = "ssl.principal.mapping.rules"

_PART = r"(?:\\.|[^\\/])"
_RULE = re.compile(rf"(DEFAULT)|RULE:({_PART}+)/({_PART}*)/([LU]?)", re.DOTALL)
_BETWEEN = ", \n"
"""Stand between two rules; one of them is a comma or a line feed."""
_TOKEN = re.compile(r"\\(.)|\$\{(\w+)\}|\$([0-9]+)|([\\$])", re.DOTALL | re.ASCII)
_OTHER_IN_RE2 = (
    (re.compile(r"\\[0-9]"), "back-references and octal numbers"),
    (re.compile(r"\\[CvV]"), r"\C, \v and \V"),
    (re.compile(r"\(\?[a-z]*U"), "flags with U"),
    (re.compile(r"\[\^?(?:\\.|[^\]\\])(?:\\.|[^\]\\])*?(?:&&|\[)|\[\^?\[|\[\^?&&"),
     "classes within classes, and intersections of classes"),
)  # fmt: skip
"""Forms that mean another thing to RE2 than to Java; RE2 itself refuses the rest."""
_QUOTED = re.compile(r"\\Q.*?(?:\\E|$)", re.DOTALL)


class PrincipalRules:
    """The rules in their order; the first that matches the whole name decides.

    text: `DEFAULT` (the distinguished name as it is) and `RULE:pattern/replacement/` with an L or U
    at the end for lower or upper case, with commas between them. Without a rule no name has a user,
    as in Kafka. Raises ConfigError.
    """

    def __init__(self, text: str = "DEFAULT") -> None:
        self._text = text
        self._rules: list[_Rule | None] = []
        at = len(text) - len(text.lstrip(_BETWEEN))
        while at < len(text):
            found = _RULE.match(text, at)
            if found is None:
                raise ConfigError(
                    f"{KEY}={text!r}: {text[at:]!r} is neither DEFAULT nor "
                    "RULE:pattern/replacement/ with an L or U at its end"
                )
            try:
                self._rules.append(None if found[1] else _Rule(*found.groups()[1:]))
            except ValueError as error:
                raise ConfigError(f"{KEY}={text!r}: {found[0]}: {error}") from error
            rest = text[found.end() :]
            between = rest[: len(rest) - len(rest.lstrip(_BETWEEN))]
            at = found.end() + len(between)
            if at < len(text) and not {",", "\n"} & set(between):
                raise ConfigError(f"{KEY}={text!r}: no comma before {text[at:]!r}")

    def user_of(self, certificate: bytes) -> str:
        """The user of a certificate in DER. Raises WireError if no rule matches its name, or if the
        name cannot be read: the connection must be closed."""
        return self.user_of_name(subject_of(certificate))

    def user_of_name(self, name: str) -> str:
        """The user of a certificate with this distinguished name, as RFC 2253 writes it. Raises
        WireError if no rule matches."""
        for rule in self._rules:
            user = name if rule is None else rule.user_of(name)
            if user is not None:
                return user
        raise WireError(
            f"no rule of {KEY}={self._text!r} matches the certificate's name {name!r}; add a rule "
            "for it, or DEFAULT to take the name as the user's"
        )


class _Rule:
    """One rule. Raises ValueError for a pattern or a replacement that cannot be used."""

    def __init__(self, pattern: str, replacement: str, case: str) -> None:
        plain = _QUOTED.sub("", pattern)
        for form, name in _OTHER_IN_RE2:
            if form.search(plain):
                raise ValueError(f"{name} are not supported in patterns")
        try:
            self._pattern = compiled(pattern.replace("\\/", "/"))
        except BadExpression as error:
            raise ValueError(str(error)) from error
        self._case = case
        self._parts = _parts_of(replacement, self._pattern)

    def user_of(self, name: str) -> str | None:
        """The user, or None if the pattern does not match the whole name.

        As in Kafka, each match of the pattern in the name is replaced, also the empty one that `.*`
        finds at the end.
        """
        if not self._pattern.fullmatch(name):
            return None
        user, at = "", 0
        for found in self._pattern.finditer(name):
            user += name[at : found.start()] + self._replaced(found)
            at = found.end()
        user += name[at:]
        return {"L": user.lower(), "U": user.upper()}.get(self._case, user)

    def _replaced(self, found: Any) -> str:
        return "".join(
            part if isinstance(part, str) else found.group(part) or "" for part in self._parts
        )


def _parts_of(replacement: str, pattern: Any) -> list[str | int]:
    """A replacement as texts and numbers of groups. Java's rules: `$1`, `${name}`, and a backslash
    before any character that stands for itself. `$12` is `$1` and a 2 if there is no group 12, and
    without a group 2 `$2` is a text, unless the pattern has no group at all. Raises ValueError."""
    parts: list[str | int] = []
    at = 0
    for found in _TOKEN.finditer(replacement):
        parts.append(replacement[at : found.start()])
        at = found.end()
        escaped, name, digits, lone = found.groups()
        if escaped is not None:
            parts.append(escaped)
        elif name is not None:
            if name not in pattern.groupindex:
                raise ValueError(f"the pattern has no group with the name {name}")
            parts.append(pattern.groupindex[name])
        elif lone is not None:
            raise ValueError(f"{replacement[found.start() :]!r} is no reference to a group")
        else:
            parts += _reference(digits, pattern.groups)
    return [*parts, replacement[at:]]


def _reference(digits: str, groups: int) -> list[str | int]:
    end = 1
    while end < len(digits) and int(digits[: end + 1]) <= groups:
        end += 1
    number = int(digits[:end])
    if number <= groups:
        return [number, digits[end:]]
    if not groups:
        raise ValueError(f"the pattern has no group {number}")
    return [f"${digits}"]
