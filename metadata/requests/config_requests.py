"""The requests to the active controller about configs and client quotas, and its answers."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kvorum.metadata.image.records import QuotaEntity
from kvorum.runtime.errors import ErrorCode


class Operation(enum.IntEnum):
    """The change of one key; Kafka's numbers (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigOperation:
    """kind: a number of Operation, or one that does not exist. value: None says nothing."""

    name: str
    kind: int
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigAlteration:
    """The changes of one resource. resource_type, resource_name: as in `records.Config`."""

    resource_type: int
    resource_name: str
    operations: tuple[ConfigOperation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigs:
    """is_replacement: the operations, all SET, take the place of whatever is set (AlterConfigs);
    otherwise each changes its own key (IncrementalAlterConfigs)."""

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
    """value: None removes the quota."""

    key: str
    value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaAlteration:
    """entity: as asked for, in any order, perhaps unsound."""

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
