"""Creating and deleting ACLs (KIP-11, KIP-140, KIP-290). Error codes and messages are Apache
Kafka's, where it has them."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

from kvorum.metadata.access.hosts import is_valid_host
from kvorum.metadata.access.selection import selected
from kvorum.metadata.controller.decide import RECORDS_PER_REQUEST_MAX, Context, Decision
from kvorum.metadata.image.acl import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from kvorum.metadata.image.features import ACL_LEVEL, METADATA_VERSION, level_of
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.records import AccessControlEntry, Record, RemoveAccessControlEntry
from kvorum.metadata.requests.acl_requests import (
    AclCreation,
    CreateAcls,
    CreatedAcl,
    DeleteAcls,
    DeletedAcls,
)
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.ids import new_uuid

_EnumT = TypeVar("_EnumT", bound=IntEnum)

TEXT_BYTES_MAX = 8_192
"""Bytes of a name, a principal or a host: a thousand ACLs must fit a frame of a snapshot."""
LISTED_MAX = 100_000
"""ACLs in all results of one deletion. Filters that match the same ACLs list them again."""
COMPARISONS_MAX = 2_000_000
"""Filters times ACLs that one deletion may compare, about a second of the controller's loop."""


def create_acls(
    image: ClusterImage,
    request: CreateAcls,
    context: Context,
    *,
    records_max: int = RECORDS_PER_REQUEST_MAX,
) -> Decision[tuple[CreatedAcl, ...]]:
    """Create each valid ACL. An ACL that exists already is a success without a record."""
    refused = _below_level(image)
    if refused is not None:
        return Decision((), tuple(_refused(refused) for _ in request.creations))
    records: list[Record] = []
    results: list[CreatedAcl] = []
    new: set[Acl] = set()
    for creation in request.creations:
        acl = _acl(creation)
        if isinstance(acl, Rejected):
            results.append(_refused(acl))
            continue
        if acl not in image.acl_ids and acl not in new:
            if len(records) == records_max:
                results.append(_refused(_too_many(records_max)))
                continue
            new.add(acl)
            records.append(AccessControlEntry.of(new_uuid(context.rng), acl))
        results.append(CreatedAcl())
    return Decision(tuple(records), tuple(results))


def delete_acls(
    image: ClusterImage, request: DeleteAcls, *, records_max: int = RECORDS_PER_REQUEST_MAX
) -> Decision[tuple[DeletedAcls, ...] | Rejected]:
    """Delete what the filters match. An ACL that several match is in the result of each."""
    refused = _below_level(image)
    if refused is not None:
        return Decision((), refused)
    comparisons_left, listed = COMPARISONS_MAX, 0
    gone: dict[bytes, None] = {}
    results: list[DeletedAcls] = []
    found_by: dict[AclFilter, tuple[Acl, ...]] = {}
    for selection in request.filters:
        wanted = selection.filter()
        if isinstance(wanted, Rejected):
            results.append(DeletedAcls(error=wanted.code, message=wanted.message))
            continue
        acls = found_by.get(wanted)
        if acls is None:
            only = _only_match(wanted)
            if only is not None:
                acls = (only,) if only in image.acl_ids else ()
            else:
                comparisons_left -= len(image.acls)
                if comparisons_left < 0:
                    return Decision((), _too_much_work(image))
                acls = selected(image.acls.values(), wanted)
            found_by[wanted] = acls
        gone.update(dict.fromkeys(image.acl_ids[acl] for acl in acls))
        if len(gone) > records_max:
            problem = f"Cannot remove more than {records_max} acls in a single delete operation."
            return Decision((), _invalid(problem))
        listed += len(acls)
        if listed > LISTED_MAX:
            return Decision((), _TOO_LONG)
        results.append(DeletedAcls(acls=acls))
    return Decision(tuple(map(RemoveAccessControlEntry, gone)), tuple(results))


def _below_level(image: ClusterImage) -> Rejected | None:
    level = level_of(image.features, METADATA_VERSION)
    if level >= ACL_LEVEL:
        return None
    return Rejected(
        ErrorCode.UNSUPPORTED_VERSION,
        f"ACLs need {METADATA_VERSION} {ACL_LEVEL}, it is {level}; "
        "upgrade it with `kvorum features upgrade`",
    )


def _acl(creation: AclCreation) -> Acl | Rejected:
    """The ACL of a creation, or what is wrong with it."""
    try:
        acl = Acl(
            resource_type=_known(ResourceType, creation.resource_type, "resourceType"),
            resource_name=creation.resource_name,
            pattern_type=_known(PatternType, creation.pattern_type, "patternType"),
            principal=creation.principal,
            host=creation.host,
            operation=_known(AclOperation, creation.operation, "operation"),
            permission=_known(Permission, creation.permission, "permissionType"),
        )
    except ValueError as error:
        return _invalid(str(error))
    problem = _problem(acl)
    if problem is None and max(map(len, _texts(creation))) > TEXT_BYTES_MAX:
        problem = f"A name, principal or host is longer than {TEXT_BYTES_MAX} bytes"
    return acl if problem is None else _invalid(problem)


def _problem(acl: Acl) -> str | None:
    kind, name = acl.resource_type, acl.resource_name
    if kind == ResourceType.CLUSTER and name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not name:
        return "Invalid empty resource name"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating "
            "the principal type from the principal name)"
        )
    if not acl.host:
        return "Host pattern cannot be null or empty"
    if not is_valid_host(acl.host):
        return f"Invalid CIDR notation '{acl.host}': a range of hosts has a form like 10.0.0.0/8"
    return None


_FOR_FILTERS = ("ANY", "MATCH")


def _known(enum: type[_EnumT], number: int, name: str) -> _EnumT:
    """The member with this number. Raises ValueError if an ACL cannot have it."""
    try:
        member = enum(number)
    except ValueError:
        raise ValueError(f"Invalid {name} UNKNOWN") from None
    if member.name in _FOR_FILTERS:
        raise ValueError(f"Invalid {name} {member.name}")
    return member


def _only_match(wanted: AclFilter) -> Acl | None:
    """The one ACL that a filter selects if it names every field, as kafka-acls --remove sends it;
    else None."""
    name, principal, host = wanted.resource_name, wanted.principal, wanted.host
    if name is None or principal is None or host is None:
        return None
    values = (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission)
    if any(value.name in _FOR_FILTERS for value in values):
        return None
    return Acl(
        resource_type=wanted.resource_type,
        resource_name=name,
        pattern_type=wanted.pattern_type,
        principal=principal,
        host=host,
        operation=wanted.operation,
        permission=wanted.permission,
    )


def _texts(creation: AclCreation) -> tuple[bytes, bytes, bytes]:
    texts = (creation.resource_name, creation.principal, creation.host)
    name, principal, host = (text.encode() for text in texts)
    return name, principal, host


def _invalid(message: str) -> Rejected:
    return Rejected(ErrorCode.INVALID_REQUEST, message)


def _refused(refusal: Rejected) -> CreatedAcl:
    return CreatedAcl(error=refusal.code, message=refusal.message)


_TOO_LONG = Rejected(
    ErrorCode.POLICY_VIOLATION,
    f"filters of one request match ACLs more than {LISTED_MAX} times; send several requests",
)


def _too_many(records_max: int) -> Rejected:
    return Rejected(
        ErrorCode.POLICY_VIOLATION,
        f"more than {records_max} ACLs in one request; send several",
    )


def _too_much_work(image: ClusterImage) -> Rejected:
    return Rejected(
        ErrorCode.POLICY_VIOLATION,
        f"more than {COMPARISONS_MAX // len(image.acls)} filters with gaps in one request, with "
        f"{len(image.acls)} ACLs; send several requests",
    )
