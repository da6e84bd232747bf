"""Passwords among a node's properties: refused on a command line, and reported in a file that every
user may read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kvorum.metadata.configs.secrets import is_password
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.private_files import is_readable_by_others

TOKEN_KEY = "delegation.token.secret.key"
TOKEN_KEY_BYTES_MIN = 16
"""A shorter key can be guessed from one token and its HMAC, which every owner of a token has."""
_KEY_FILE = "ssl.keystore.location"


def refuse_on_command_line(names: Iterable[str], way_out: str) -> None:
    """Raise ConfigError for the first property that is a password. way_out: the end of the
    sentence; `{name}` in it is the property."""
    for name in names:
        if is_password(name):
            raise ConfigError(
                f"--set {name}: every user of this machine can read a command line; "
                + way_out.replace("{name}", name)
            )


def weak_secrets(properties: Mapping[str, Any]) -> tuple[str, ...]:
    """A line for the log if the key of delegation tokens is short; Kafka takes any."""
    length = len(str(properties.get(TOKEN_KEY, "")).encode())
    if not 0 < length < TOKEN_KEY_BYTES_MIN:
        return ()
    return (
        f"{TOKEN_KEY} has {length} bytes, and the owner of a token can guess a key of less than "
        f"{TOKEN_KEY_BYTES_MIN}: give every node a longer one, and create new tokens",
    )


def readable_secrets(
    path: str | None, of_file: Iterable[str], properties: Mapping[str, Any]
) -> tuple[str, ...]:
    """A line for the log for each file with a password or a key that every user of the machine may
        read.

    path: the node's file.
    of_file: names of its properties.
    properties: all of the node's. A file that is missing is not this function's matter.
    """
    files = {path: "passwords"} if path is not None and any(map(is_password, of_file)) else {}
    for name, value in properties.items():
        if (name == _KEY_FILE or name.endswith(f".{_KEY_FILE}")) and value:
            files[str(value)] = "a private key"
    lines = []
    for file, what in files.items():
        try:
            is_open = is_readable_by_others(file)
        except OSError:
            continue
        if is_open:
            lines.append(f"{file} holds {what}, and every user may read it: chmod 600 {file}")
    return tuple(lines)
