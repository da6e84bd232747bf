"""The properties of access control: `authorizer.class.name`, `super.users` and a default."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvorum.metadata.access.authorizer import Authorizer
from kvorum.metadata.access.model import ANYBODY, USER_PREFIX
from kvorum.runtime.errors import ConfigError

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The only value of authorizer.class.name but the empty one."""
_JOINED = re.compile(rf",\s*{USER_PREFIX}")
"""Two principals with a comma between them. The name of a certificate has
commas too, but no such part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings:
    """Settings of a node with an authorizer. super_users: principals, `User:NAME`."""

    super_users: tuple[str, ...]
    allow_if_no_acl: bool

    def authorizer(self) -> Authorizer:
        """A new authorizer, without ACLs yet."""
        return Authorizer(super_users=self.super_users, allow_if_no_acl=self.allow_if_no_acl)


def access_settings(
    *, class_name: str, super_users: str, allow_if_no_acl: bool
) -> AccessSettings | None:
    """The settings of a node; None for a node on which everybody may do everything.

    super_users: `User:admin;User:CN=broker-101`, separated by semicolons since a certificate's name
    has commas. Raises ConfigError.
    """
    names = tuple(filter(None, (part.strip() for part in super_users.split(";"))))
    for name in names:
        if not name.startswith(USER_PREFIX) or name == USER_PREFIX:
            raise ConfigError(
                f"super.users={super_users!r}: {name!r} is no principal; write User:NAME, with "
                "semicolons between several"
            )
        _check_super_user(name)
    if not class_name:
        if names or allow_if_no_acl:
            raise ConfigError(
                "super.users and allow.everyone.if.no.acl.found have no effect without an "
                f"authorizer; give authorizer.class.name={STANDARD_AUTHORIZER}, or leave them out"
            )
        return None
    if class_name != STANDARD_AUTHORIZER:
        raise ConfigError(
            f"authorizer.class.name={class_name} is not served; leave it out, or give "
            f"{STANDARD_AUTHORIZER}"
        )
    return AccessSettings(super_users=names, allow_if_no_acl=allow_if_no_acl)


def _check_super_user(name: str) -> None:
    """Raise ConfigError for a text that Kafka takes for one user whom nobody can be."""
    if _JOINED.search(name):
        raise ConfigError(
            f"super.users: {name!r} would be one user, whose name has a comma; write semicolons "
            "between several: User:a;User:b"
        )
    if name == ANYBODY:
        raise ConfigError(
            f"super.users: {ANYBODY} would be a user named '*', and nobody else; name the users, "
            f"or give everybody rights by ACLs: kvorum acls create --allow-principal '{ANYBODY}'"
        )
