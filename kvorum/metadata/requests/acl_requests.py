"""Requests to the active controller about ACLs, and its replies.

Requests have the enums as the numbers that a client sent: the controller refuses those that have no
meaning, item by item.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.metadata.image.acl import (
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from kvorum.runtime.errors import ErrorCode, Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class AclCreation:
    """An ACL to create. For the fields see `Acl`."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAcls:
    creations: tuple[AclCreation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedAcl:
    """The result of one creation; the results are in the order of the request."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclSelection:
    """A filter of ACLs. For the fields see `AclFilter`."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def filter(self) -> AclFilter | Rejected:
        """The AclFilter with these fields, or the refusal of a number without a meaning."""
        try:
            resource_type = ResourceType(self.resource_type)
            pattern_type = PatternType(self.pattern_type)
        except ValueError:
            return Rejected(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
        try:
            operation = AclOperation(self.operation)
            permission = Permission(self.permission)
        except ValueError:
            return Rejected(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
        return AclFilter(
            resource_type=resource_type,
            resource_name=self.resource_name,
            pattern_type=pattern_type,
            principal=self.principal,
            host=self.host,
            operation=operation,
            permission=permission,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAcls:
    filters: tuple[AclSelection, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedAcls:
    """The result of one filter. The results of a request are in the order of its filters.

    acls: all that the filter matched, also those that another filter has matched.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    acls: tuple[Acl, ...] = ()
