"""The common part of AlterConfigs and IncrementalAlterConfigs: the request to the controller, and
the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvorum.broker.api.context import CLUSTER_REFUSED, TOPIC_REFUSED, RequestContext, error_fields
from kvorum.broker.api.services import Services
from kvorum.metadata.configs.config_keys import is_certificate_key
from kvorum.metadata.configs.cordons import (
    CORDONED_LOG_DIRS,
    EVERY_DIRECTORY,
    cordoned_paths,
    cordons_problem,
)
from kvorum.metadata.configs.effective import CLUSTER_DEFAULT, broker_configs
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.image.image import RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC
from kvorum.metadata.requests.config_requests import (
    AlterConfigs,
    AlteredConfigs,
    ConfigAlteration,
    ConfigOperation,
    Operation,
)
from kvorum.metadata.rpc.calls import ALTER_CONFIGS
from kvorum.runtime.errors import ErrorCode, Rejected

ALTER_ACCESS = (
    (AclOperation.ALTER_CONFIGS, ResourceType.TOPIC),
    (AclOperation.ALTER_CONFIGS, ResourceType.GROUP),
    (AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER),
)


def alterations(request: Any, *, is_replacement: bool = False) -> tuple[ConfigAlteration, ...]:
    """The resources of a request. is_replacement: its configs name no operation."""
    return tuple(
        ConfigAlteration(
            resource_type=item.resource_type,
            resource_name=item.resource_name,
            operations=tuple(
                ConfigOperation(
                    name=c.name,
                    kind=Operation.SET if is_replacement else c.config_operation,
                    value=c.value,
                )
                for c in item.configs
            ),
        )
        for item in request.resources
    )


def refusal_of_configs(
    context: RequestContext, operation: AclOperation, kind: int, name: str
) -> Rejected | None:
    """The refusal of a client that may not perform the operation on a resource's configs."""
    if kind == RESOURCE_TOPIC:
        return None if context.allows_topic(operation, name) else TOPIC_REFUSED
    if kind == RESOURCE_GROUP:
        if context.allows(operation, ResourceType.GROUP, name):
            return None
        return Rejected(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    return None if context.allows_on_cluster(operation) else CLUSTER_REFUSED


async def alter(context: RequestContext, request: AlterConfigs) -> dict[str, Any]:
    """Have the active controller decide about the resources that the client may alter; returns the
    answer's fields."""
    altered: list[AlteredConfigs] = []
    allowed: list[ConfigAlteration] = []
    for item in request.resources:
        refused = refusal_of_configs(
            context, AclOperation.ALTER_CONFIGS, item.resource_type, item.resource_name
        )
        if refused is None:
            refused = _refusal_of_certificates(
                context.services, item, is_replacement=request.is_replacement
            )
        if refused is None:
            cordons = _with_cordons(context.services, item, is_replacement=request.is_replacement)
            if isinstance(cordons, Rejected):
                refused = cordons
            else:
                allowed.append(cordons)
        if refused is not None:
            altered.append(_refused(item, refused))
    if allowed or not altered:
        asked = replace(request, resources=tuple(allowed))
        reply = await context.services.controller.request(ALTER_CONFIGS, asked)
        if isinstance(reply, Rejected):
            altered += [_refused(item, reply) for item in allowed]
        else:
            altered += reply
    return {
        "responses": [
            {
                **error_fields(item),
                "resource_type": item.resource_type,
                "resource_name": item.resource_name,
            }
            for item in altered
        ]
    }


def _refusal_of_certificates(
    services: Services, item: ConfigAlteration, *, is_replacement: bool
) -> Rejected | None:
    """The refusal of certificates that a broker cannot use. Only the broker itself can read their
    files, so that another one refuses the request, as in Kafka."""
    changes = {
        operation.name: operation.value if operation.kind == Operation.SET else None
        for operation in item.operations
        if is_certificate_key(operation.name)
    }
    is_of_a_broker = item.resource_type == RESOURCE_BROKER and item.resource_name != CLUSTER_DEFAULT
    if not is_of_a_broker or all(value is None for value in changes.values()):
        return None  # a removal is never refused, so that a bad value can be taken away
    own = str(services.broker_id)
    if item.resource_name != own:
        return Rejected(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {own} but received {item.resource_name!r}; ask that "
            "broker itself, which alone can read its certificates",
        )
    before = {} if is_replacement else broker_configs(services.image(), own)
    after = {name: value for name, value in {**before, **changes}.items() if value is not None}
    problem = services.certificates_problem(after)
    return None if problem is None else Rejected(ErrorCode.INVALID_REQUEST, problem)


def _with_cordons(
    services: Services, item: ConfigAlteration, *, is_replacement: bool
) -> ConfigAlteration | Rejected:
    """The alteration with the cordoned.log.dirs that result from it, or its refusal (KIP-1066).

    A list of all directories becomes `*`: so the controller, which knows no paths, sees that the
    broker takes no new replicas.
    """
    asked = next((o for o in item.operations if o.name == CORDONED_LOG_DIRS), None)
    is_of_a_broker = item.resource_type == RESOURCE_BROKER and item.resource_name != CLUSTER_DEFAULT
    if asked is None or asked.kind == Operation.DELETE or not is_of_a_broker:
        return item
    own = str(services.broker_id)
    if item.resource_name != own:
        return Rejected(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {own} but received {item.resource_name!r}; ask that "
            "broker itself, which alone knows its data directories",
        )
    before = "" if is_replacement else broker_configs(services.image(), own).get(asked.name, "")
    now, known = cordoned_paths(asked.value), cordoned_paths(before)
    if asked.kind == Operation.APPEND:
        now = [*known, *(path for path in now if path not in known)]
    elif asked.kind == Operation.SUBTRACT:
        now = [path for path in known if path not in now]
    paths = [log_dir.path for log_dir in services.replicas.directories.items]
    problem = cordons_problem(now, paths)
    if problem is not None:
        return Rejected(ErrorCode.INVALID_REQUEST, problem)
    value = EVERY_DIRECTORY if set(now) == set(paths) else ",".join(now)
    altered = replace(asked, kind=Operation.SET, value=value)
    return replace(item, operations=tuple(altered if o is asked else o for o in item.operations))


def _refused(item: ConfigAlteration, reason: Rejected) -> AlteredConfigs:
    return AlteredConfigs(
        resource_type=item.resource_type,
        resource_name=item.resource_name,
        error=reason.code,
        message=reason.message,
    )
