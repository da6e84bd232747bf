"""The properties of access control: `authorizer.class.name`, `super.users`, a default, and the
principals of nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvorum.launch.config.property_classes import NodeProperties
from kvorum.metadata.access.authorizer import Authorizer
from kvorum.metadata.access.nodes import ID, NodePrincipals
from kvorum.metadata.image.acl import ANYBODY, USER_PREFIX
from kvorum.runtime.errors import ConfigError

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The only value of authorizer.class.name but the empty one."""
_JOINED = re.compile(rf",\s*{USER_PREFIX}")
"""Two principals with a comma between them. The name of a certificate has commas too, but no such
part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings:
    """Settings of a node with an authorizer.

    super_users: principals, `User:NAME`.
    nodes: None if a node may send in the name of another.
    """

    super_users: tuple[str, ...]
    allow_if_no_acl: bool
    nodes: NodePrincipals | None = None

    def authorizer(self) -> Authorizer:
        """A new authorizer, without ACLs yet."""
        return Authorizer(super_users=self.super_users, allow_if_no_acl=self.allow_if_no_acl)


def access_settings(node: NodeProperties) -> AccessSettings | None:
    """The settings of a node; None for a node on which everybody may do everything.

    super.users are `User:admin;User:CN=broker-101`, separated by semicolons since a certificate's
    name has commas. The principals of nodes are patterns, `User:broker-{id}`, both or neither.
    Raises ConfigError.
    """
    nodes = _node_principals(node.kvorum_controller_principals, node.kvorum_broker_principals)
    class_name, super_users = node.authorizer_class_name, node.super_users
    allow_if_no_acl = node.allow_everyone_if_no_acl_found
    names = tuple(filter(None, (part.strip() for part in super_users.split(";"))))
    for name in names:
        if not name.startswith(USER_PREFIX) or name == USER_PREFIX:
            raise ConfigError(
                f"super.users={super_users!r}: {name!r} is no principal; write User:NAME, with "
                "semicolons between several"
            )
        _check_super_user(name)
    if not class_name:
        if names or allow_if_no_acl or nodes is not None:
            raise ConfigError(
                "super.users, allow.everyone.if.no.acl.found, kvorum.controller.principals and "
                "kvorum.broker.principals have no effect without an authorizer; give "
                f"authorizer.class.name={STANDARD_AUTHORIZER}, or leave them out"
            )
        return None
    if class_name != STANDARD_AUTHORIZER:
        raise ConfigError(
            f"authorizer.class.name={class_name} is not served; leave it out, or give "
            f"{STANDARD_AUTHORIZER}"
        )
    return AccessSettings(super_users=names, allow_if_no_acl=allow_if_no_acl, nodes=nodes)


def _node_principals(controllers: str, brokers: str) -> NodePrincipals | None:
    given = {"kvorum.controller.principals": controllers, "kvorum.broker.principals": brokers}
    if not any(given.values()):
        return None
    for (name, pattern), role in zip(given.items(), ("controller", "broker"), strict=True):
        if not pattern.startswith(USER_PREFIX) or pattern.count(ID) != 1:
            raise ConfigError(
                f"{name}={pattern!r} must be one principal with {ID} for the node's id, such as "
                f"User:{role}-{ID}; give both {' and '.join(given)}, or neither"
            )
    of_controllers, of_brokers = (each.removeprefix(USER_PREFIX) for each in given.values())
    if _may_be_equal(of_controllers, of_brokers):
        raise ConfigError(
            f"{' and '.join(f'{name}={value}' for name, value in given.items())}: a broker could "
            "have the name of a controller, and vote; name the two roles differently"
        )
    return NodePrincipals(controllers=of_controllers, brokers=of_brokers)


def _may_be_equal(pattern: str, other: str) -> bool:
    """True if two ids exist with which both patterns make the same name."""
    (before, _, after), (before_other, _, after_other) = pattern.partition(ID), other.partition(ID)
    return _differ_by_digits(before, before_other) and _differ_by_digits(
        after[::-1], after_other[::-1]
    )


def _differ_by_digits(text: str, other: str) -> bool:
    """True if one text is the other, with no more than digits behind it."""
    shorter, longer = sorted((text, other), key=len)
    rest = longer.removeprefix(shorter)
    return longer.startswith(shorter) and (not rest or rest.isdecimal())


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
