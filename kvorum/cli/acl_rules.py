"""The options of `kvorum acls` as ACLs and filters. Pure.

The conveniences for producers and consumers are those of kafka-acls.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kvorum.metadata.image.acl import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    USER_PREFIX,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from kvorum.runtime.errors import ConfigError

Resource = tuple[ResourceType, str]

_OF_PRODUCERS: dict[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
_OF_CONSUMERS: dict[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    ResourceType.GROUP: (AclOperation.READ,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Whom:
    """Principals and hosts of one permission."""

    permission: Permission
    principals: Sequence[str]
    hosts: Sequence[str]


def resources_of(
    topics: Iterable[str],
    groups: Iterable[str],
    transactional_ids: Iterable[str],
    *,
    is_cluster: bool,
) -> list[Resource]:
    """The resources that options name."""
    found: list[Resource] = []
    found += ((ResourceType.TOPIC, name) for name in topics)
    found += ((ResourceType.GROUP, name) for name in groups)
    found += ((ResourceType.TRANSACTIONAL_ID, name) for name in transactional_ids)
    if is_cluster:
        found.append((ResourceType.CLUSTER, CLUSTER_NAME))
    return found


def operations_of(texts: Iterable[str]) -> list[AclOperation]:
    """The operations that texts such as `read,describe-configs` name. Raises ConfigError."""
    named = {operation.name.replace("_", ""): operation for operation in AclOperation}
    del named["ANY"]
    found = []
    for text in (part.strip() for each in texts for part in each.split(",")):
        operation = named.get(text.upper().replace("_", "").replace("-", ""))
        if operation is None:
            known = ", ".join(each.name.lower().replace("_", "-") for each in named.values())
            raise ConfigError(f"{text!r} is no operation; there are {known}")
        found.append(operation)
    return found


def principal_of(text: str) -> str:
    """`User:alice` for alice; a text with a type stays as it is. Raises ConfigError."""
    principal = text if ":" in text else USER_PREFIX + text
    if not all(principal.partition(":")[::2]):
        raise ConfigError(f"{text!r} is no principal; write User:NAME")
    return principal


def new_acls(
    resources: Sequence[Resource],
    operations: Sequence[AclOperation],
    whom: Sequence[Whom],
    *,
    is_prefixed: bool,
) -> list[Acl]:
    """An ACL for each resource, operation, principal and host. Raises ConfigError for an operation
    that a resource does not have."""
    pairs = []
    for (kind, name), operation in itertools.product(resources, operations):
        if operation != AclOperation.ALL and operation not in OPERATIONS_OF[kind]:
            others = ", ".join(sorted(each.name.lower() for each in OPERATIONS_OF[kind]))
            raise ConfigError(
                f"a {kind.name.lower()} has no operation {operation.name.lower()}; it has "
                f"{others}, all"
            )
        pairs.append((kind, name, operation))
    return _product(pairs, whom, is_prefixed=is_prefixed)


def convenient_acls(
    resources: Sequence[Resource],
    whom: Sequence[Whom],
    *,
    is_producer: bool,
    is_consumer: bool,
    is_idempotent: bool,
    is_prefixed: bool,
) -> list[Acl]:
    """The ACLs of producers and consumers of the topics. Raises ConfigError if a resource is
    missing, or would be left out."""
    kinds = {kind for kind, _ in resources}
    if ResourceType.TOPIC not in kinds:
        raise ConfigError("--producer and --consumer need --topic")
    if is_consumer and ResourceType.GROUP not in kinds:
        raise ConfigError("--consumer needs --group")
    of_kind: dict[ResourceType, dict[AclOperation, None]] = {}
    for is_wanted, operations in ((is_producer, _OF_PRODUCERS), (is_consumer, _OF_CONSUMERS)):
        for kind, each in operations.items() if is_wanted else ():
            of_kind.setdefault(kind, {}).update(dict.fromkeys(each))
    if unused := sorted(kind.name for kind in kinds - of_kind.keys()):
        raise ConfigError(
            f"--producer and --consumer have no use for a {unused[0].lower().replace('_', ' ')}; "
            "create its ACLs with --operation"
        )
    pairs = [(kind, name, operation) for kind, name in resources for operation in of_kind[kind]]
    found = _product(pairs, whom, is_prefixed=is_prefixed)
    if is_idempotent:
        cluster = [(ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.IDEMPOTENT_WRITE)]
        found += _product(cluster, whom, is_prefixed=False)
    return found


def _product(
    pairs: Sequence[tuple[ResourceType, str, AclOperation]],
    whom: Sequence[Whom],
    *,
    is_prefixed: bool,
) -> list[Acl]:
    found: dict[Acl, None] = {}
    for (kind, name, operation), each in itertools.product(pairs, whom):
        # The cluster resource has one fixed name, so no prefixes.
        is_literal = not is_prefixed or kind == ResourceType.CLUSTER
        for principal, host in itertools.product(each.principals, each.hosts):
            acl = Acl(
                resource_type=kind,
                resource_name=name,
                pattern_type=PatternType.LITERAL if is_literal else PatternType.PREFIXED,
                principal=principal,
                host=host,
                operation=operation,
                permission=each.permission,
            )
            found[acl] = None
    return list(found)


def filters_of(
    resources: Sequence[Resource],
    operations: Sequence[AclOperation],
    principals: Sequence[str],
    hosts: Sequence[str],
    *,
    pattern_type: PatternType,
    permission: Permission,
) -> list[AclFilter]:
    """A filter for each combination; what is not given matches everything."""
    of: Sequence[tuple[ResourceType, str | None]] = resources or [(ResourceType.ANY, None)]
    by: Sequence[str | None] = principals or [None]
    from_: Sequence[str | None] = hosts or [None]
    return [
        AclFilter(
            resource_type=kind,
            resource_name=name,
            pattern_type=pattern_type,
            principal=principal,
            host=host,
            operation=operation,
            permission=permission,
        )
        for (kind, name), operation, principal, host in itertools.product(
            of, operations or [AclOperation.ANY], by, from_
        )
    ]


def exactly(acl: Acl) -> AclFilter:
    """The filter that selects this ACL alone."""
    return AclFilter(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission=acl.permission,
    )


def acl_columns(acl: Acl) -> dict[str, Any]:
    """The keys of an ACL in an answer, with Kafka's names of the enums."""
    return {
        "principal": acl.principal,
        "host": acl.host,
        "resource_type": acl.resource_type.name,
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type.name,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }
