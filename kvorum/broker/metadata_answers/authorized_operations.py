"""The operations that a client may perform, for answers that include them (KIP-430). Pure.

`RequestContext.operations` finds them. "Not asked" is the schemas' default. A set of operations is
an int32 with bit `1 << code` for each, by the codes of Kafka's AclOperation.
"""

from __future__ import annotations

from kvorum.metadata.image.acl import AclOperation


def operation_bits(*operations: AclOperation) -> int:
    """The set of operations as an int32."""
    return sum(1 << operation for operation in set(operations))


NOT_ASKED = -(1 << 31)


def is_asked(request: object, field: str) -> bool:
    """True if the request's version has `field` and sets it."""
    return bool(getattr(request, field, False))
