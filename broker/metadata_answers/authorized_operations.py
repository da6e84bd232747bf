"""The operations that a client may perform, for answers that include them (KIP-430). Pure.

Without an authorizer every client may do everything, and Kafka lists all operations of the resource
type. "Not asked" is the schemas' default. A set of operations is an int32 with bit `1 << code` for
each, by the codes of Kafka's AclOperation.
"""

from __future__ import annotations

from enum import IntEnum


class AclOperation(IntEnum):
    """Codes of operations, as in Kafka."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def operation_bits(*operations: AclOperation) -> int:
    """The set of operations as an int32."""
    return sum(1 << operation for operation in set(operations))


NOT_ASKED = -(1 << 31)
TOPIC_OPERATIONS = operation_bits(
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS = operation_bits(
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)
GROUP_OPERATIONS = operation_bits(
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)


def if_asked(operations: int, request: object, field: str) -> int:
    """operations if the request's version has `field` and sets it, else NOT_ASKED."""
    return operations if getattr(request, field, False) else NOT_ASKED
