"""Requests to the active controller about configs and client quotas, and its replies."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from kvorum.metadata.image.records import QuotaEntity
from kvorum.runtime.errors import ErrorCode


class Operation(enum.IntEnum):
    """The kind of change of one key; Kafka's numbers (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigOperation:
    """The change of one key.

    kind: a number of Operation, or an unknown one.
    value: may be missing, and may be a password.
    """

    name: str
    kind: int
    value: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigAlteration:
    """The changes of one resource. resource_type, resource_name: as in `records.Config`."""

    resource_type: int
    resource_name: str
    operations: tuple[ConfigOperation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigs:
    """The changes of several resources.

    is_replacement: the operations, all SET, replace all configs of a resource (AlterConfigs);
        otherwise each changes its own key (IncrementalAlterConfigs).
    """

    resources: tuple[ConfigAlteration, ...]
    is_replacement: bool = False
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredConfigs:
    resource_type: int
    resource_name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaOperation:
    """The change of one quota. value: None removes the quota."""

    key: str
    value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaAlteration:
    """The quota changes of one entity. entity: as the client sent it, perhaps invalid."""

    entity: QuotaEntity
    operations: tuple[QuotaOperation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotas:
    entries: tuple[QuotaAlteration, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredQuota:
    entity: QuotaEntity
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
