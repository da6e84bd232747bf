"""The ACLs that a filter selects, in an order that is the same on every node. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from kvorum.metadata.image.acl import Acl, AclFilter


def selected(acls: Iterable[Acl], wanted: AclFilter) -> tuple[Acl, ...]:
    """The ACLs that a filter selects: by resource, then by principal, so that every node has them
    in the same order."""
    return tuple(sorted(filter(wanted.matches, acls), key=_place))


def _place(acl: Acl) -> tuple[int, str, int, str, str, int, int]:
    return (
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )
