"""Setting, changing and removing dynamic configs (KIP-339, KIP-226).

Each resource is decided on its own: a refused one changes nothing, and does not affect others.
Error codes are Apache Kafka's. As in Kafka, a broker's config may have a name that is unknown here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kvorum.metadata.configs.config_keys import (
    BROKER_CONFIGS,
    CONFIGS_OF,
    broker_config_problem,
    broker_key,
    other_config_problem,
    topic_config_problem,
    topic_configs_conflict,
)
from kvorum.metadata.configs.effective import CLUSTER_DEFAULT, broker_configs
from kvorum.metadata.configs.group_bounds import USUAL_BOUNDS, GroupBounds
from kvorum.metadata.configs.model import ConfigKey, list_items
from kvorum.metadata.controller.decide import RECORDS_PER_REQUEST_MAX, Decision
from kvorum.metadata.image.image import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    ClusterImage,
)
from kvorum.metadata.image.records import Config, Record
from kvorum.metadata.requests.config_requests import (
    AlterConfigs,
    AlteredConfigs,
    ConfigAlteration,
    ConfigOperation,
    Operation,
)
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.text import whole_number

NAME_LENGTH_MAX = 32_767
"""Limit of the name of a group or subscription in characters; a group id is an int16 string."""

_BROKER_LOGGER = 8
_NAMELESS = {
    RESOURCE_TOPIC: "Default topic resources are not allowed.",
    RESOURCE_CLIENT_METRICS: "Subscription name can't be empty",
    RESOURCE_GROUP: "Default group resources are not allowed.",
}
"""Messages for a resource without a name, as Kafka has them."""


def alter_configs(
    image: ClusterImage,
    request: AlterConfigs,
    bounds: GroupBounds = USUAL_BOUNDS,
    *,
    records_max: int = RECORDS_PER_REQUEST_MAX,
) -> Decision[tuple[AlteredConfigs, ...]]:
    """Change each resource that can be changed; nothing is written if validate_only is set.

    bounds: of the configs of groups.
    """
    asked = Counter((r.resource_type, r.resource_name) for r in request.resources)
    records: list[Record] = []
    results: list[AlteredConfigs] = []
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        outcome: list[Config] | Rejected
        if asked[key] > 1:
            outcome = Rejected(
                ErrorCode.INVALID_REQUEST, "each resource may stand in a request only once"
            )
        else:
            outcome = _alter_one(image, resource, bounds, is_replacement=request.is_replacement)
        if not isinstance(outcome, Rejected) and len(records) + len(outcome) > records_max:
            outcome = Rejected(
                ErrorCode.POLICY_VIOLATION,
                f"more than {records_max} changes in one request; send several",
            )
        error, message = ErrorCode.NONE, ""
        if isinstance(outcome, Rejected):
            error, message = outcome.code, outcome.message
        else:
            records.extend(outcome)
        results.append(
            AlteredConfigs(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                error=error,
                message=message,
            )
        )
    return Decision(() if request.validate_only else tuple(records), tuple(results))


def _alter_one(
    image: ClusterImage, resource: ConfigAlteration, bounds: GroupBounds, *, is_replacement: bool
) -> list[Config] | Rejected:
    """The records that change one resource, by ascending key."""
    refused = _resource_problem(image, resource) or _operations_problem(resource)
    if refused is not None:
        return refused
    current: Mapping[str, str] = image.configs.get(
        (resource.resource_type, resource.resource_name), {}
    )
    wanted = {} if is_replacement else dict(current)
    for operation in resource.operations:
        value = _new_value(image, resource, operation, current, bounds)
        if isinstance(value, Rejected):
            return value
        if value is None:
            wanted.pop(operation.name, None)
            continue
        refused = _value_problem(resource, operation.name, value, bounds)
        if refused is not None:
            return refused
        wanted[operation.name] = value
    if resource.resource_type == RESOURCE_TOPIC:
        conflict = topic_configs_conflict(wanted)
        if conflict is not None:
            return conflict
    return [
        Config(resource.resource_type, resource.resource_name, name, wanted.get(name))
        for name in sorted({*current, *wanted})
        if wanted.get(name) != current.get(name)
    ]


def _resource_problem(image: ClusterImage, resource: ConfigAlteration) -> Rejected | None:
    name = resource.resource_name
    if not name and resource.resource_type in _NAMELESS:
        return Rejected(ErrorCode.INVALID_REQUEST, _NAMELESS[resource.resource_type])
    if resource.resource_type in (RESOURCE_CLIENT_METRICS, RESOURCE_GROUP):
        return _long_name_problem(name)
    if resource.resource_type == RESOURCE_TOPIC:
        if image.topic(name) is None:
            return Rejected(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic {name!r} does not exist."
            )
        return None
    if resource.resource_type == RESOURCE_BROKER:
        if name == CLUSTER_DEFAULT:
            return None
        broker_id = whole_number(name)
        if broker_id is None or str(broker_id) != name:
            return Rejected(
                ErrorCode.INVALID_REQUEST, f"A broker's id must be an integer, but it is: {name!r}"
            )
        if broker_id not in image.brokers:
            return Rejected(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {name} is registered."
            )
        return None
    is_logger = resource.resource_type == _BROKER_LOGGER
    what = "broker loggers" if is_logger else f"type {resource.resource_type}"
    return Rejected(
        ErrorCode.INVALID_REQUEST,
        f"configs of {what} cannot be altered; only those of topics (2), brokers (4), client "
        "metrics (16) and groups (32) can",
    )


def _long_name_problem(name: str) -> Rejected | None:
    """Groups and subscriptions need not exist, so only this check bounds their names."""
    if len(name) <= NAME_LENGTH_MAX:
        return None
    return Rejected(
        ErrorCode.INVALID_REQUEST,
        f"the resource's name has {len(name)} characters, more than {NAME_LENGTH_MAX}",
    )


def _operations_problem(resource: ConfigAlteration) -> Rejected | None:
    counts = Counter(operation.name for operation in resource.operations)
    repeated = sorted(name for name, count in counts.items() if count > 1)
    if repeated:
        return Rejected(
            ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {', '.join(repeated)}"
        )
    kinds = {operation.kind for operation in resource.operations}
    unknown = sorted(kinds - set(Operation))
    if unknown:
        return Rejected(
            ErrorCode.INVALID_REQUEST,
            f"unknown operation {unknown[0]}; there are 0 set, 1 delete, 2 append, 3 subtract",
        )
    empty = sorted(
        operation.name
        for operation in resource.operations
        if operation.kind != Operation.DELETE and operation.value is None
    )
    if empty:
        return Rejected(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for: {', '.join(empty)}"
        )
    return None


def _new_value(
    image: ClusterImage,
    resource: ConfigAlteration,
    operation: ConfigOperation,
    current: Mapping[str, str],
    bounds: GroupBounds,
) -> str | Rejected | None:
    """The key's new value; None removes the key."""
    value = operation.value or ""
    kind = Operation(operation.kind)
    if kind is Operation.DELETE:
        # Any name may be deleted, so that an older version can remove a value that a newer one set.
        return None
    if kind is Operation.SET:
        return value
    if resource.resource_type == RESOURCE_BROKER:
        key = broker_key(operation.name)
    else:
        key = CONFIGS_OF[resource.resource_type].get(operation.name)
    if key is None or not key.is_list:
        unknown = _value_problem(resource, operation.name, value, bounds) if key is None else None
        return unknown or Rejected(
            ErrorCode.INVALID_CONFIG,
            f"Can't {kind.name} to key {operation.name} because its type is not LIST.",
        )
    items = list_items(_present_value(image, resource, key, current))
    if kind is Operation.APPEND:
        items += [item for item in dict.fromkeys(list_items(value)) if item not in items]
    else:
        taken = set(list_items(value))
        items = [item for item in items if item not in taken]
    return ",".join(items)


def _present_value(
    image: ClusterImage,
    resource: ConfigAlteration,
    key: ConfigKey,
    current: Mapping[str, str],
) -> str:
    """The value that APPEND and SUBTRACT start from: the current one, as far as the controller
    knows it."""
    value = current.get(key.name)
    if value is None:
        shared = broker_configs(image, CLUSTER_DEFAULT)
        if resource.resource_type == RESOURCE_BROKER:
            value = shared.get(key.name)
        elif key.broker_name in BROKER_CONFIGS:
            value = shared.get(key.broker_name)
    return (key.default or "") if value is None else value


def _value_problem(
    resource: ConfigAlteration, name: str, value: str, bounds: GroupBounds
) -> Rejected | None:
    if resource.resource_type == RESOURCE_TOPIC:
        return topic_config_problem(name, value)
    if resource.resource_type == RESOURCE_BROKER:
        return broker_config_problem(name, value, resource.resource_name)
    return other_config_problem(resource.resource_type, name, value, bounds)
