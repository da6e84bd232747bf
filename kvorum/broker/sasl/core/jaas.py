"""The one form of JAAS that Kafka's properties use: `MODULE required key="value" ...;`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kvorum.runtime.errors import ConfigError

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

_FLAGS = ("required", "requisite", "sufficient", "optional")
_WORD = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|([^\s="';]+)|(=)|(;))""", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class JaasEntry:
    """module: name of a class.
    options: in the order of the text; their values are secrets.
    """

    module: str
    options: Mapping[str, str]


def parse_jaas(name: str, text: str) -> JaasEntry:
    """The entry of a property. Raises ConfigError, which names the property and no value."""
    words = _words(name, text)
    if len(words) < 3 or words[1].lower() not in _FLAGS or words[-1] != ";":
        raise ConfigError(
            f'{name} must have the form: CLASS required key="value" ...; (the value is not shown)'
        )
    options: dict[str, str] = {}
    rest = words[2:-1]
    for at in range(0, len(rest), 3):
        triple = rest[at : at + 3]
        if len(triple) != 3 or triple[1] != "=" or triple[0] in ("=", ";"):
            raise ConfigError(f'{name}: the options must have the form key="value"')
        if triple[0] in options:
            raise ConfigError(f"{name} has the option {triple[0]} twice")
        options[triple[0]] = triple[2]
    return JaasEntry(module=words[0], options=options)


def plain_users(name: str, text: str) -> dict[str, str]:
    """Passwords by user, of the options `user_NAME="PASSWORD"`. Raises ConfigError."""
    entry = parse_jaas(name, text)
    if entry.module != PLAIN_MODULE:
        raise ConfigError(f"{name} names {entry.module}; PLAIN needs {PLAIN_MODULE}")
    users = {
        key.removeprefix("user_"): value
        for key, value in entry.options.items()
        if key.startswith("user_")
    }
    empty = [user for user, password in users.items() if not user or not password]
    if empty:
        raise ConfigError(f"{name}: a user without a name or a password")
    return users


def _words(name: str, text: str) -> list[str]:
    words = []
    position = 0
    while position < len(text.rstrip()):
        found = _WORD.match(text, position)
        if found is None:
            raise ConfigError(f"{name}: a quotation mark or an equals sign is out of place")
        quoted, word, equals, end = found.groups()
        words.append(
            re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else word or equals or end
        )
        position = found.end()
    return words
