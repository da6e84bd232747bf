"""The sentence for a user who lacks a right: which one it is, and the command that gives it. Pure.

docs/access.md has the operations that each request needs.
"""

from __future__ import annotations

import shlex
from typing import NamedTuple

_SUFFIX = "_AUTHORIZATION_FAILED"
_ALLOW = "kvorum acls create --allow-principal User:NAME"


class Right(NamedTuple):
    """An operation on a resource. kind: an option of `kvorum acls create` without its dashes, or
    `user`, whose ACLs only Kafka's own tool makes. name: "" for the cluster."""

    operation: str
    kind: str
    name: str = ""

    def __str__(self) -> str:
        if self.kind == "cluster":
            return f"{self.operation} on the cluster"
        return f"{self.operation} on {self.kind.replace('-', ' ')} {self.name}"

    @property
    def command(self) -> str:
        """The command by which an administrator gives the right to a user."""
        if self.kind == "user":
            return f"kafka-acls --add --user-principal {shlex.quote(self.name)}"
        operation = self.operation.lower().replace("_", "-")
        name = f" {shlex.quote(self.name)}" if self.name else ""
        return f"{_ALLOW} --operation {operation} --{self.kind}{name}"


def on_topic(operation: str, name: str) -> Right:
    """The right to an operation on a topic."""
    return Right(operation, "topic", name)


def on_group(operation: str, name: str) -> Right:
    """The right to an operation on a group."""
    return Right(operation, "group", name)


def on_cluster(operation: str) -> Right:
    """The right to an operation on the cluster."""
    return Right(operation, "cluster")


def is_missing_right(error: str) -> bool:
    """True for the name of an error that says that the user lacks a right."""
    return error.endswith(_SUFFIX)


def way_out(error: str, *rights: Right) -> str:
    """The advice for an error of `is_missing_right`. rights: those that the request needs, as far
    as the command knows them."""
    needed = list(dict.fromkeys(rights))
    if needed:
        command = needed[0].command if len(needed) == 1 else _ALLOW
        return f"the user needs {', '.join(map(str, needed))}; an administrator runs {command}"
    scope = error.removesuffix(_SUFFIX).lower().replace("_", " ")
    return (
        f"the user lacks a right to the {scope}; docs/access.md has the rights that requests need, "
        "and kvorum acls list those that users have"
    )
