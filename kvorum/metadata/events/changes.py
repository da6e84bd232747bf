"""The event of one metadata record. Pure: the record, and the images before and after it.

Records that concern no client have no event: NoOp, ProducerIds and the SCRAM credentials.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kvorum.metadata.configs.secrets import shown_config
from kvorum.metadata.events.model import REMOVED_KEY, Event, Origin
from kvorum.metadata.events.quorum import (
    KRAFT_VERSION,
    LEADER_KEY,
    VOTERS_KEY,
    voters_fields,
    voters_in,
)
from kvorum.metadata.events.things import (
    acl_key,
    broker_event_key,
    config_fields,
    config_key,
    controller_key,
    feature_key,
    partition_key,
    quota_fields,
    quota_key,
    token_key,
    topic_key,
)
from kvorum.metadata.image.image import RESOURCE_TOPIC, ClusterImage
from kvorum.metadata.image.records import (
    AccessControlEntry,
    BrokerRegistrationChange,
    ClientQuota,
    Config,
    DelegationToken,
    FeatureLevel,
    Partition,
    PartitionChange,
    RegisterBroker,
    RegisterController,
    RemoveAccessControlEntry,
    RemoveDelegationToken,
    RemoveTopic,
    Topic,
    UnregisterBroker,
    UnregisterController,
)
from kvorum.metadata.inspect.history import LogEntry
from kvorum.metadata.inspect.thing_rows import (
    acl_row,
    broker_row,
    controller_row,
    feature_row,
    partition_row,
    token_row,
    topic_row,
)

_CHANGES = (
    "leader", "isr", "replicas", "adding_replicas", "removing_replicas", "leader_recovery_state",
    "elr", "last_known_elr", "directories",
)  # fmt: skip


class _Change(NamedTuple):
    kind: str
    key: str
    fields: dict[str, Any]
    removed: tuple[str, ...] = ()


def event_of(entry: LogEntry, before: ClusterImage, after: ClusterImage) -> Event | None:
    """The event of a record of the metadata log; None if it has none."""
    change = _quorum(entry) if entry.record is None else _of_record(entry.record, before, after)
    if change is None:
        return None
    origin = Origin(offset=entry.offset, epoch=entry.epoch, timestamp_ms=entry.timestamp_ms)
    return Event(
        key=change.key,
        origin=origin,
        kind=change.kind,
        fields=change.fields,
        removed=change.removed,
    )


def _of_record(record: Any, before: ClusterImage, after: ClusterImage) -> _Change | None:
    match record:
        case PartitionChange() | Partition():
            return _partition(record, after)
        case Topic(name=name, topic_id=topic_id):
            return _Change("topic_created", topic_key(name), topic_row(after.topics[topic_id]))
        case RemoveTopic(topic_id=topic_id):
            return _topic_deleted(topic_id, before)
        case RegisterBroker() | BrokerRegistrationChange():
            return _broker(record, after)
        case UnregisterBroker(broker_id=broker_id):
            fields = {"broker_id": broker_id, "broker_epoch": record.broker_epoch}
            return _Change(
                "broker_unregistered", REMOVED_KEY, fields, (broker_event_key(broker_id),)
            )
        case Config():
            return _config(record, after)
        case ClientQuota():
            return _quota(record, after)
        case FeatureLevel(name=name, level=level):
            return _feature(name, level)
        case RegisterController(controller_id=controller_id):
            fields = controller_row(after.controllers[controller_id])
            return _Change("controller_registered", controller_key(controller_id), fields)
        case UnregisterController(controller_id=controller_id):
            key = controller_key(controller_id)
            fields = {"controller_id": controller_id}
            return _Change("controller_unregistered", REMOVED_KEY, fields, (key,))
        case AccessControlEntry(id=acl_id):
            return _Change("acl_created", acl_key(acl_id), acl_row(acl_id, record.acl))
        case RemoveAccessControlEntry(id=acl_id):
            fields = acl_row(acl_id, before.acls[acl_id])
            return _Change("acl_deleted", REMOVED_KEY, fields, (acl_key(acl_id),))
        case DelegationToken(token_id=token_id):
            kind = "renewed" if token_id in before.delegation_tokens else "created"
            return _Change(f"delegation_token_{kind}", token_key(token_id), token_row(record))
        case RemoveDelegationToken(token_id=token_id):
            fields = token_row(before.delegation_tokens[token_id])
            key = token_key(token_id)
            return _Change("delegation_token_removed", REMOVED_KEY, fields, (key,))
    return None


def _partition(record: Partition | PartitionChange, after: ClusterImage) -> _Change:
    topic = after.topics[record.topic_id]
    partition_id = record.partition_id
    key = partition_key(topic.name, partition_id)
    fields = partition_row(topic, partition_id, topic.partitions[partition_id])
    if isinstance(record, Partition):
        return _Change("partition_created", key, fields)
    fields["changed"] = [name for name in _CHANGES if getattr(record, name) is not None]
    return _Change("partition_changed", key, fields)


def _topic_deleted(topic_id: bytes, before: ClusterImage) -> _Change:
    topic = before.topics[topic_id]
    removed = [partition_key(topic.name, i) for i in sorted(topic.partitions)]
    resource = (RESOURCE_TOPIC, topic.name)
    if resource in before.configs:
        removed.append(config_key(*resource))
    fields = {**topic_row(topic), "partitions": len(topic.partitions)}
    return _Change("topic_deleted", REMOVED_KEY, fields, (topic_key(topic.name), *removed))


def _broker(record: RegisterBroker | BrokerRegistrationChange, after: ClusterImage) -> _Change:
    fields = broker_row(after.brokers[record.broker_id])
    kind = "broker_changed"
    if isinstance(record, RegisterBroker):
        kind = "broker_registered"
    elif record.is_fenced is not None:
        kind = "broker_fenced" if record.is_fenced else "broker_unfenced"
    return _Change(kind, broker_event_key(record.broker_id), fields)


def _config(record: Config, after: ClusterImage) -> _Change:
    resource = (record.resource_type, record.resource_name)
    fields = config_fields(after, resource)
    fields["name"] = record.name
    fields["value"] = shown_config(record.resource_type, record.name, record.value)
    return _kept_or_removed(
        "config_changed", config_key(*resource), fields, resource in after.configs
    )


def _quota(record: ClientQuota, after: ClusterImage) -> _Change:
    fields = quota_fields(after, record.entity)
    fields["key"], fields["value"] = record.key, record.value
    is_kept = record.entity in after.client_quotas
    return _kept_or_removed("quota_changed", quota_key(record.entity), fields, is_kept)


def _feature(name: str, level: int) -> _Change:
    fields = feature_row(name, level)
    return _kept_or_removed("feature_changed", feature_key(name), fields, level > 0)


def _kept_or_removed(kind: str, key: str, fields: dict[str, Any], is_kept: bool) -> _Change:
    """The change under the thing's own key, or under REMOVED_KEY if nothing is left of the
    thing."""
    return _Change(kind, key, fields) if is_kept else _Change(kind, REMOVED_KEY, fields, (key,))


def _quorum(entry: LogEntry) -> _Change | None:
    """The event of a control record, whose fields have Kafka's names."""
    fields = entry.fields
    if entry.type == "LeaderChange":
        voters = sorted(voter["voterId"] for voter in fields["voters"])
        granting = sorted(voter["voterId"] for voter in fields["grantingVoters"])
        values = {
            "controller_id": fields["leaderId"], "voters": voters, "granting_voters": granting,
        }  # fmt: skip
        return _Change("controller_elected", LEADER_KEY, values)
    if entry.type == "KRaftVoters":
        return _Change("voters_changed", VOTERS_KEY, voters_fields(voters_in(fields)))
    if entry.type == "KRaftVersion":
        return _feature(KRAFT_VERSION, fields["kRaftVersion"])
    return None
