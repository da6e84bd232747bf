"""The things of an image that events are about: their keys, and the fields of their state.

Names and meanings of the fields are those of `kvorum metadata export` (`inspect.export_schema`).
No field holds a secret: every client may read `__kvorum_events`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from kvorum.metadata.configs.quotas import entity_text
from kvorum.metadata.configs.secrets import shown_config
from kvorum.metadata.events.quorum import NO_QUORUM, QuorumState
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.records import QuotaEntity
from kvorum.metadata.inspect.thing_rows import (
    acl_row,
    broker_row,
    controller_row,
    feature_row,
    partition_row,
    token_row,
    topic_row,
)
from kvorum.metadata.inspect.tree import DEFAULT_NAME, RESOURCE_NAMES
from kvorum.runtime.ids import uuid_text

Fields = dict[str, Any]


def topic_key(name: str) -> str:
    return f"topic/{name}"


def partition_key(topic: str, partition_id: int) -> str:
    return f"partition/{topic}/{partition_id}"


def broker_event_key(broker_id: int) -> str:
    return f"broker/{broker_id}"


def controller_key(controller_id: int) -> str:
    return f"controller/{controller_id}"


def feature_key(name: str) -> str:
    return f"feature/{name}"


def config_key(resource_type: int, resource_name: str) -> str:
    """`config/topic/orders`; `config/broker/<default>` for the default of all brokers."""
    kind = RESOURCE_NAMES.get(resource_type, str(resource_type))
    return f"config/{kind}/{resource_name or DEFAULT_NAME}"


def quota_key(entity: QuotaEntity) -> str:
    return f"quota/{entity_text(entity)}"


def acl_key(acl_id: bytes) -> str:
    return f"acl/{uuid_text(acl_id)}"


def token_key(token_id: str) -> str:
    return f"delegation_token/{token_id}"


def config_fields(image: ClusterImage, resource: tuple[int, str]) -> Fields:
    """configs: all configs of the resource, by name."""
    kind, name = resource
    configs: Mapping[str, str] = image.configs.get(resource, {})
    return {
        "resource_type": kind,
        "resource_name": name,
        "configs": {key: shown_config(kind, key, value) for key, value in sorted(configs.items())},
    }


def quota_fields(image: ClusterImage, entity: QuotaEntity) -> Fields:
    """quotas: all quotas of the entity, by key."""
    quotas: Mapping[str, float] = image.client_quotas.get(entity, {})
    return {"entity": entity_text(entity), "quotas": dict(sorted(quotas.items()))}


def thing_count(image: ClusterImage, quorum: QuorumState = NO_QUORUM) -> int:
    """Number of the things that `things` yields."""
    partitions = sum(len(topic.partitions) for topic in image.topics.values())
    others = (
        image.topics, image.brokers, image.configs, image.client_quotas, image.features,
        image.controllers, image.acls, image.delegation_tokens,
    )  # fmt: skip
    of_quorum = sum(1 for _ in quorum.things())
    return partitions + sum(len(things) for things in others) + of_quorum


def keys_of(image: ClusterImage, quorum: QuorumState = NO_QUORUM) -> Iterator[str]:
    """The keys of all things, in the order of `things`."""
    for key, _ in things(image, quorum):
        yield key


def things(
    image: ClusterImage, quorum: QuorumState = NO_QUORUM
) -> Iterator[tuple[str, Callable[[], Fields]]]:
    """Key and state of each thing. Equal arguments give the same order, on every broker.

    The state is computed when it is called for: the keys alone of 100,000 partitions take a
    twentieth of the time.
    """
    for broker_id in sorted(image.brokers):
        yield broker_event_key(broker_id), partial(broker_row, image.brokers[broker_id])
    for controller_id in sorted(image.controllers):
        controller = image.controllers[controller_id]
        yield controller_key(controller_id), partial(controller_row, controller)
    for name, level in sorted(image.features.items()):
        yield feature_key(name), partial(feature_row, name, level)
    for resource in sorted(image.configs):
        yield config_key(*resource), partial(config_fields, image, resource)
    for entity in sorted(image.client_quotas, key=entity_text):
        yield quota_key(entity), partial(quota_fields, image, entity)
    for acl_id in sorted(image.acls):
        yield acl_key(acl_id), partial(acl_row, acl_id, image.acls[acl_id])
    for token_id in sorted(image.delegation_tokens):
        token = image.delegation_tokens[token_id]
        yield token_key(token_id), partial(token_row, token)
    for name in sorted(image.topic_ids):
        topic = image.topics[image.topic_ids[name]]
        yield topic_key(name), partial(topic_row, topic)
        for partition_id in sorted(topic.partitions):
            key = partition_key(name, partition_id)
            partition = topic.partitions[partition_id]
            yield key, partial(partition_row, topic, partition_id, partition)
    for key, fields in quorum.things():
        yield key, partial(dict, fields)
