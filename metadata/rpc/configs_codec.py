"""Between config and quota requests and their protobuf form. No rule lives here."""

from __future__ import annotations

from collections.abc import Iterable

from kvorum.metadata.image.records import QuotaEntity
from kvorum.metadata.requests.config_requests import (
    AlterClientQuotas,
    AlterConfigs,
    AlteredConfigs,
    AlteredQuota,
    ConfigAlteration,
    ConfigOperation,
    QuotaAlteration,
    QuotaOperation,
)
from kvorum.rpc import configs_pb2 as pb
from kvorum.runtime.errors import ErrorCode


def encode_alter_configs(request: AlterConfigs) -> pb.AlterConfigsRequest:
    return pb.AlterConfigsRequest(
        resources=[
            pb.ConfigAlteration(
                resource_type=r.resource_type,
                resource_name=r.resource_name,
                operations=[
                    pb.ConfigOperation(name=o.name, kind=o.kind, value=o.value)
                    for o in r.operations
                ],
            )
            for r in request.resources
        ],
        is_replacement=request.is_replacement,
        validate_only=request.validate_only,
    )


def decode_alter_configs(message: pb.AlterConfigsRequest) -> AlterConfigs:
    return AlterConfigs(
        resources=tuple(
            ConfigAlteration(
                resource_type=r.resource_type,
                resource_name=r.resource_name,
                operations=tuple(
                    ConfigOperation(
                        name=o.name, kind=o.kind, value=o.value if o.HasField("value") else None
                    )
                    for o in r.operations
                ),
            )
            for r in message.resources
        ),
        is_replacement=message.is_replacement,
        validate_only=message.validate_only,
    )


def encode_altered_configs(results: Iterable[AlteredConfigs]) -> list[pb.AlteredConfigs]:
    return [
        pb.AlteredConfigs(
            resource_type=r.resource_type,
            resource_name=r.resource_name,
            error=r.error,
            message=r.message,
        )
        for r in results
    ]


def decode_altered_configs(messages: Iterable[pb.AlteredConfigs]) -> tuple[AlteredConfigs, ...]:
    return tuple(
        AlteredConfigs(
            resource_type=m.resource_type,
            resource_name=m.resource_name,
            error=ErrorCode(m.error),
            message=m.message,
        )
        for m in messages
    )


def encode_alter_quotas(request: AlterClientQuotas) -> pb.AlterClientQuotasRequest:
    return pb.AlterClientQuotasRequest(
        entries=[
            pb.QuotaAlteration(
                entity=_encode_entity(e.entity),
                operations=[pb.QuotaOperation(key=o.key, value=o.value) for o in e.operations],
            )
            for e in request.entries
        ],
        validate_only=request.validate_only,
    )


def decode_alter_quotas(message: pb.AlterClientQuotasRequest) -> AlterClientQuotas:
    return AlterClientQuotas(
        entries=tuple(
            QuotaAlteration(
                entity=_decode_entity(e.entity),
                operations=tuple(
                    QuotaOperation(key=o.key, value=o.value if o.HasField("value") else None)
                    for o in e.operations
                ),
            )
            for e in message.entries
        ),
        validate_only=message.validate_only,
    )


def encode_altered_quotas(results: Iterable[AlteredQuota]) -> list[pb.AlteredQuota]:
    return [
        pb.AlteredQuota(entity=_encode_entity(r.entity), error=r.error, message=r.message)
        for r in results
    ]


def decode_altered_quotas(messages: Iterable[pb.AlteredQuota]) -> tuple[AlteredQuota, ...]:
    return tuple(
        AlteredQuota(entity=_decode_entity(m.entity), error=ErrorCode(m.error), message=m.message)
        for m in messages
    )


def _encode_entity(entity: QuotaEntity) -> list[pb.QuotaEntityPart]:
    return [pb.QuotaEntityPart(type=kind, name=name) for kind, name in entity]


def _decode_entity(parts: Iterable[pb.QuotaEntityPart]) -> QuotaEntity:
    return tuple((part.type, part.name if part.HasField("name") else None) for part in parts)
