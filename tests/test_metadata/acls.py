"""ACLs and filters for tests."""

from __future__ import annotations

from typing import Any

from kvorum.metadata.image.acl import (
    WILDCARD,
    Acl,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)


def acl(name: str = "orders", **changed: Any) -> Acl:
    """User:alice may read the topic `name` from anywhere, unless changed."""
    fields = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": name,
        "pattern_type": PatternType.LITERAL,
        "principal": "User:alice",
        "host": WILDCARD,
        "operation": AclOperation.READ,
        "permission": Permission.ALLOW,
    }
    return Acl(**(fields | changed))
