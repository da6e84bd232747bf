"""The things of an image that events are about: their keys, and the fields of their state.

Names and meanings of the fields are those of `kvorum metadata export` (`inspect.export_schema`).
No field holds a secret: every client may read `__kvorum_events`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from kvorum.metadata.configs.config_keys import CONFIGS_OF, broker_key
from kvorum.metadata.events.quorum import NO_QUORUM, QuorumState
from kvorum.metadata.image.image import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    BrokerImage,
    ClusterImage,
    ControllerImage,
    PartitionImage,
    TopicImage,
)
from kvorum.metadata.image.quotas import entity_text
from kvorum.metadata.image.records import HIDDEN, QuotaEntity
from kvorum.runtime.ids import uuid_text

Fields = dict[str, Any]

_RESOURCES = {
    RESOURCE_TOPIC: "topic",
    RESOURCE_BROKER: "broker",
    RESOURCE_CLIENT_METRICS: "client-metrics",
    RESOURCE_GROUP: "group",
}
_DEFAULT = "<default>"


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
    kind = _RESOURCES.get(resource_type, str(resource_type))
    return f"config/{kind}/{resource_name or _DEFAULT}"


def quota_key(entity: QuotaEntity) -> str:
    return f"quota/{entity_text(entity)}"


def topic_fields(topic: TopicImage) -> Fields:
    return {"topic": topic.name, "topic_id": uuid_text(topic.topic_id)}


def partition_fields(topic: TopicImage, partition_id: int, image: PartitionImage) -> Fields:
    return {
        **topic_fields(topic),
        "partition": partition_id,
        "leader": image.leader,
        "leader_epoch": image.leader_epoch,
        "partition_epoch": image.partition_epoch,
        "replicas": list(image.replicas),
        "isr": list(image.isr),
        "adding_replicas": list(image.adding_replicas),
        "removing_replicas": list(image.removing_replicas),
        "leader_recovery_state": image.leader_recovery_state,
        "elr": list(image.elr),
        "last_known_elr": list(image.last_known_elr),
    }


def broker_fields(broker: BrokerImage) -> Fields:
    return {
        "broker_id": broker.broker_id,
        "broker_epoch": broker.broker_epoch,
        "host": broker.endpoint.host,
        "port": broker.endpoint.port,
        "rack": broker.rack,
        "is_fenced": broker.is_fenced,
        "in_controlled_shutdown": broker.in_controlled_shutdown,
        "incarnation_id": uuid_text(broker.incarnation_id),
    }


def controller_fields(controller: ControllerImage) -> Fields:
    endpoint = controller.endpoints[0] if controller.endpoints else None
    return {
        "controller_id": controller.controller_id,
        "host": None if endpoint is None else endpoint.host,
        "port": None if endpoint is None else endpoint.port,
        "incarnation_id": uuid_text(controller.incarnation_id),
    }


def shown_config(resource_type: int, name: str, value: str | None) -> str | None:
    """The value of a config, `[hidden]` for a password.

    A config that is not known may be anything, so it is hidden too, as DescribeConfigs does.
    """
    if resource_type == RESOURCE_BROKER:
        key = broker_key(name)
    else:
        key = CONFIGS_OF.get(resource_type, {}).get(name)
    is_open = value is None or (key is not None and not key.is_sensitive)
    return value if is_open else HIDDEN


def feature_fields(name: str, level: int) -> Fields:
    return {"feature": name, "level": level}


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
        image.controllers,
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
        yield broker_event_key(broker_id), partial(broker_fields, image.brokers[broker_id])
    for controller_id in sorted(image.controllers):
        controller = image.controllers[controller_id]
        yield controller_key(controller_id), partial(controller_fields, controller)
    for name, level in sorted(image.features.items()):
        yield feature_key(name), partial(feature_fields, name, level)
    for resource in sorted(image.configs):
        yield config_key(*resource), partial(config_fields, image, resource)
    for entity in sorted(image.client_quotas, key=entity_text):
        yield quota_key(entity), partial(quota_fields, image, entity)
    for name in sorted(image.topic_ids):
        topic = image.topics[image.topic_ids[name]]
        yield topic_key(name), partial(topic_fields, topic)
        for partition_id in sorted(topic.partitions):
            key = partition_key(name, partition_id)
            partition = topic.partitions[partition_id]
            yield key, partial(partition_fields, topic, partition_id, partition)
    for key, fields in quorum.things():
        yield key, partial(dict, fields)
