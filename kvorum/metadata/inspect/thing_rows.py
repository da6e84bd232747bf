"""One row for each thing of an image, as exports and events show it. No row holds a secret.

`export_schema` has the meanings of the fields. An export writes those that its tables have.
"""

from __future__ import annotations

from typing import Any

from kvorum.metadata.image.acl import Acl
from kvorum.metadata.image.image import (
    BrokerImage,
    ControllerImage,
    PartitionImage,
    TopicImage,
)
from kvorum.metadata.image.records import DelegationToken, Endpoint
from kvorum.runtime.ids import uuid_text

Row = dict[str, Any]


def topic_row(topic: TopicImage) -> Row:
    return {"topic": topic.name, "topic_id": uuid_text(topic.topic_id)}


def partition_row(topic: TopicImage, partition_id: int, image: PartitionImage) -> Row:
    return {
        **topic_row(topic),
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


def broker_row(broker: BrokerImage) -> Row:
    return {
        "broker_id": broker.broker_id,
        "broker_epoch": broker.broker_epoch,
        **_listener(broker.endpoints),
        "rack": broker.rack,
        "is_fenced": broker.is_fenced,
        "in_controlled_shutdown": broker.in_controlled_shutdown,
        "incarnation_id": uuid_text(broker.incarnation_id),
    }


def controller_row(controller: ControllerImage) -> Row:
    return {
        "controller_id": controller.controller_id,
        **_listener(controller.endpoints),
        "incarnation_id": uuid_text(controller.incarnation_id),
    }


def acl_row(acl_id: bytes, acl: Acl) -> Row:
    return {
        "acl_id": uuid_text(acl_id),
        "resource_type": acl.resource_type.name,
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }


def token_row(token: DelegationToken) -> Row:
    return {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issue_timestamp_ms": token.issue_timestamp_ms,
        "max_timestamp_ms": token.max_timestamp_ms,
        "expiration_timestamp_ms": token.expiration_timestamp_ms,
    }


def feature_row(name: str, level: int) -> Row:
    return {"feature": name, "level": level}


def _listener(endpoints: tuple[Endpoint, ...]) -> Row:
    first = endpoints[0] if endpoints else None
    return {
        "host": None if first is None else first.host,
        "port": None if first is None else first.port,
    }
