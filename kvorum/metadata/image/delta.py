"""Records applied to an image: the changes, and the next image.

Only this module applies records to state. Snapshots and the log both go through it, so that both
lead to equal images. A record that does not fit, such as a partition of an unknown topic, is a bug
of the controller that wrote it. It stops the node, because nodes that guessed could guess
differently.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from kvorum.metadata.image.acl import Acl
from kvorum.metadata.image.features import METADATA_VERSION, REASSIGNMENT_LEVEL
from kvorum.metadata.image.image import (
    EMPTY_IMAGE,
    RESOURCE_TOPIC,
    BrokerImage,
    ClusterImage,
    ControllerImage,
    PartitionImage,
    TopicImage,
)
from kvorum.metadata.image.persistent_map import Map
from kvorum.metadata.image.records import (
    UNASSIGNED_DIRECTORY,
    AccessControlEntry,
    BrokerRegistrationChange,
    ClientQuota,
    Config,
    DelegationToken,
    FeatureLevel,
    NoOp,
    Partition,
    PartitionChange,
    ProducerIds,
    QuotaEntity,
    Record,
    RegisterBroker,
    RegisterController,
    RemoveAccessControlEntry,
    RemoveDelegationToken,
    RemoveScramCredential,
    RemoveTopic,
    ScramCredential,
    Topic,
    UnregisterBroker,
    UnregisterController,
)
from kvorum.runtime.errors import InvariantViolated, invariant, required


class Delta:
    """The changes on top of `base`; `apply` makes the next image.

    changed_partitions: topic id -> ids of new or changed partitions; deleted topics are not in it.
    deleted_topics: topic id -> the topic as it was in `base`.
    changed_brokers: ids of brokers registered, changed or removed.
    changed_configs: (resource type, resource name) of changed configs.
    changed_quotas: entities of changed client quotas. added_acls, removed_acls: ACLs that only the
        next image has, or only `base`.
    """

    def __init__(self, base: ClusterImage) -> None:
        self.base = base
        self.changed_partitions: dict[bytes, set[int]] = {}
        self.deleted_topics: dict[bytes, TopicImage] = {}
        self.changed_brokers: set[int] = set()
        self.changed_configs: set[tuple[int, str]] = set()
        self.changed_quotas: set[QuotaEntity] = set()
        self._partitions: dict[bytes, Any] = {}  # topic id -> mutation of its partition map
        self._names: dict[bytes, str] = {}
        self._removed: set[bytes] = set()
        self._brokers = base.brokers.mutate()
        self._configs = base.configs.mutate()
        self._features = base.features.mutate()
        self._client_quotas = base.client_quotas.mutate()
        self._controllers = base.controllers.mutate()
        self._next_producer_id = base.next_producer_id
        self._scram_credentials = base.scram_credentials
        self._delegation_tokens = base.delegation_tokens.mutate()
        self._acls = base.acls.mutate()
        self._acl_ids = base.acl_ids.mutate()
        self._added_acls: dict[Acl, None] = {}  # in order
        self._removed_acls: dict[Acl, None] = {}

    @classmethod
    def of_whole(cls, image: ClusterImage) -> Delta:
        """A delta that names all of `image` as changed: the first one that a publisher gets.

        Only its change sets are meaningful; it cannot be applied.
        """
        delta = cls(EMPTY_IMAGE)
        delta.changed_partitions = {
            topic_id: set(topic.partitions) for topic_id, topic in image.topics.items()
        }
        delta.changed_brokers = set(image.brokers)
        delta.changed_configs = set(image.configs)
        delta.changed_quotas = set(image.client_quotas)
        delta._added_acls = dict.fromkeys(image.acls.values())
        return delta

    @property
    def is_empty(self) -> bool:
        """True if nothing changed that a publisher acts on."""
        return not (
            self.changed_partitions
            or self.deleted_topics
            or self.changed_brokers
            or self.changed_configs
            or self.changed_quotas
            or self._added_acls
            or self._removed_acls
        )

    @property
    def added_acls(self) -> list[Acl]:
        return list(self._added_acls)

    @property
    def removed_acls(self) -> list[Acl]:
        return list(self._removed_acls)

    def replay_all(self, records: Iterable[Record]) -> None:
        """Replay each record in order."""
        for record in records:
            _REPLAY[type(record)](self, record)

    def replay(self, record: Record) -> None:
        """Apply one record. Raises InvariantViolated if it does not fit the state."""
        _REPLAY[type(record)](self, record)

    def apply(self, *, end_offset: int, epoch: int) -> ClusterImage:
        """The image after the replayed records, which end at `end_offset` (exclusive)."""
        base = self.base
        topics, topic_ids = base.topics, base.topic_ids
        if self._partitions or self._removed:
            topics_mutation = topics.mutate()
            ids_mutation = topic_ids.mutate()
            for topic_id in self._removed:
                old = base.topics.get(topic_id)
                if old is None:
                    continue
                del topics_mutation[topic_id]
                if ids_mutation.get(old.name) == topic_id:
                    del ids_mutation[old.name]
            for topic_id, partitions in self._partitions.items():
                name = self._names[topic_id]
                topics_mutation[topic_id] = TopicImage(name, topic_id, partitions.finish())
                if topic_id not in topics:
                    ids_mutation[name] = topic_id
            topics, topic_ids = topics_mutation.finish(), ids_mutation.finish()
        return ClusterImage(
            end_offset=end_offset,
            epoch=epoch,
            brokers=self._brokers.finish(),
            topics=topics,
            topic_ids=topic_ids,
            configs=self._configs.finish(),
            features=self._features.finish(),
            controllers=self._controllers.finish(),
            next_producer_id=self._next_producer_id,
            client_quotas=self._client_quotas.finish(),
            scram_credentials=self._scram_credentials,
            acls=self._acls.finish(),
            acl_ids=self._acl_ids.finish(),
            delegation_tokens=self._delegation_tokens.finish(),
        )

    # One method for each record type.

    def _register_broker(self, record: RegisterBroker) -> None:
        self.changed_brokers.add(record.broker_id)
        self._brokers[record.broker_id] = BrokerImage(
            broker_id=record.broker_id,
            broker_epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=record.endpoints,
            rack=record.rack,
            is_fenced=record.is_fenced,
            in_controlled_shutdown=False,
            features=record.features,
            log_dirs=record.log_dirs,
        )

    def _unregister_broker(self, record: UnregisterBroker) -> None:
        invariant(record.broker_id in self._brokers, f"unregister of unknown {record}")
        self.changed_brokers.add(record.broker_id)
        del self._brokers[record.broker_id]

    def _broker_registration_change(self, record: BrokerRegistrationChange) -> None:
        broker: BrokerImage = required(
            self._brokers.get(record.broker_id), f"{record} of an unknown broker"
        )
        invariant(
            broker.broker_epoch == record.broker_epoch,
            f"{record} does not fit the registration {broker}",
        )
        self.changed_brokers.add(record.broker_id)
        is_fenced, in_shutdown = record.is_fenced, record.in_controlled_shutdown
        self._brokers[record.broker_id] = dataclasses.replace(
            broker,
            is_fenced=broker.is_fenced if is_fenced is None else is_fenced,
            in_controlled_shutdown=(
                broker.in_controlled_shutdown if in_shutdown is None else in_shutdown
            ),
            log_dirs=broker.log_dirs if record.log_dirs is None else record.log_dirs,
        )

    def _topic(self, record: Topic) -> None:
        known = record.topic_id in self.base.topics or record.topic_id in self._partitions
        invariant(not known, f"topic id used twice: {record}")
        self._partitions[record.topic_id] = Map().mutate()
        self._names[record.topic_id] = record.name
        self.changed_partitions[record.topic_id] = set()

    def _partition(self, record: Partition) -> None:
        partitions = self._stage(record.topic_id)
        if record.partition_id in partitions:
            raise InvariantViolated(f"partition made twice: {record}")
        partitions[record.partition_id] = PartitionImage(
            record.replicas,
            _shared(record.isr, record.replicas),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            record.adding_replicas,
            record.removing_replicas,
            record.leader_recovery_state,
            record.elr,
            record.last_known_elr,
            _directories(record.directories, record.replicas) if record.directories else (),
        )
        self.changed_partitions[record.topic_id].add(record.partition_id)

    def _partition_change(self, record: PartitionChange) -> None:
        partitions = self._stage(record.topic_id)
        old: PartitionImage | None = partitions.get(record.partition_id)
        if old is None:  # not `required`: its message would be built for every record
            raise InvariantViolated(f"change of an unknown partition: {record}")
        replicas = old.replicas if record.replicas is None else record.replicas
        adding, removing = record.adding_replicas, record.removing_replicas
        recovery = record.leader_recovery_state
        directories = old.directories
        if record.directories is not None:
            directories = _directories(record.directories, replicas)
        elif directories and replicas != old.replicas:
            directories = _directories(tuple(map(old.directory_of, replicas)), replicas)
        partitions[record.partition_id] = PartitionImage(
            replicas,
            old.isr if record.isr is None else _shared(record.isr, replicas),
            old.leader if record.leader is None else record.leader,
            old.leader_epoch + (record.leader is not None),
            old.partition_epoch + 1,
            old.adding_replicas if adding is None else adding,
            old.removing_replicas if removing is None else removing,
            old.leader_recovery_state if recovery is None else recovery,
            old.elr if record.elr is None else record.elr,
            old.last_known_elr if record.last_known_elr is None else record.last_known_elr,
            directories,
        )
        self.changed_partitions[record.topic_id].add(record.partition_id)

    def _remove_topic(self, record: RemoveTopic) -> None:
        topic_id = record.topic_id
        old = self.base.topics.get(topic_id)
        name = self._names.get(topic_id) or (old.name if old is not None else None)
        invariant(name is not None, f"removal of an unknown topic: {record}")
        if old is not None:
            self.deleted_topics[topic_id] = old
        self._removed.add(topic_id)
        self._partitions.pop(topic_id, None)
        self._names.pop(topic_id, None)
        self.changed_partitions.pop(topic_id, None)
        key = (RESOURCE_TOPIC, str(name))
        if key in self._configs:
            del self._configs[key]
            self.changed_configs.add(key)

    def _config(self, record: Config) -> None:
        key = (record.resource_type, record.resource_name)
        configs: Map[str, str] = self._configs.get(key, Map())
        if record.value is not None:
            configs = configs.set(record.name, record.value)
        elif record.name in configs:
            configs = configs.delete(record.name)
        if configs:
            self._configs[key] = configs
        elif key in self._configs:
            del self._configs[key]
        self.changed_configs.add(key)

    def _feature_level(self, record: FeatureLevel) -> None:
        if record.level:
            self._features[record.name] = record.level
            if record.name == METADATA_VERSION and record.level < REASSIGNMENT_LEVEL:
                self._forget_log_dirs()
        elif record.name in self._features:
            del self._features[record.name]

    def _forget_log_dirs(self) -> None:
        """Remove the brokers' directories, which the lower level cannot express.

        A broker with several directories prevents such a downgrade.
        """
        for broker_id in sorted({*self.base.brokers, *self.changed_brokers}):
            broker = self._brokers.get(broker_id)
            if broker is not None and broker.log_dirs:
                self._brokers[broker_id] = dataclasses.replace(broker, log_dirs=())
                self.changed_brokers.add(broker_id)

    def _client_quota(self, record: ClientQuota) -> None:
        quotas: Map[str, float] = self._client_quotas.get(record.entity, Map())
        if record.value is not None:
            quotas = quotas.set(record.key, record.value)
        elif record.key in quotas:
            quotas = quotas.delete(record.key)
        if quotas:
            self._client_quotas[record.entity] = quotas
        elif record.entity in self._client_quotas:
            del self._client_quotas[record.entity]
        self.changed_quotas.add(record.entity)

    def _scram_credential(self, record: ScramCredential) -> None:
        of_user = self._scram_credentials.get(record.user, Map())
        of_user = of_user.set(record.mechanism, record)
        self._scram_credentials = self._scram_credentials.set(record.user, of_user)

    def _remove_scram_credential(self, record: RemoveScramCredential) -> None:
        of_user = self._scram_credentials.get(record.user, Map())
        invariant(record.mechanism in of_user, f"removal of an unknown credential: {record}")
        of_user = of_user.delete(record.mechanism)
        if of_user:
            self._scram_credentials = self._scram_credentials.set(record.user, of_user)
        else:
            self._scram_credentials = self._scram_credentials.delete(record.user)

    def _access_control_entry(self, record: AccessControlEntry) -> None:
        acl = record.acl
        is_new = record.id not in self._acls and acl not in self._acl_ids
        invariant(is_new, f"an ACL that exists already: {record}")
        self._acls[record.id] = acl
        self._acl_ids[acl] = record.id
        if acl in self._removed_acls:
            del self._removed_acls[acl]
        else:
            self._added_acls[acl] = None

    def _remove_access_control_entry(self, record: RemoveAccessControlEntry) -> None:
        acl = required(self._acls.get(record.id), f"removal of an unknown ACL: {record}")
        del self._acls[record.id]
        del self._acl_ids[acl]
        if acl in self._added_acls:
            del self._added_acls[acl]
        else:
            self._removed_acls[acl] = None

    def _delegation_token(self, record: DelegationToken) -> None:
        self._delegation_tokens[record.token_id] = record

    def _remove_delegation_token(self, record: RemoveDelegationToken) -> None:
        is_known = record.token_id in self._delegation_tokens
        invariant(is_known, f"removal of an unknown delegation token: {record}")
        del self._delegation_tokens[record.token_id]

    def _register_controller(self, record: RegisterController) -> None:
        self._controllers[record.controller_id] = ControllerImage(
            controller_id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints=record.endpoints,
            features=record.features,
        )

    def _unregister_controller(self, record: UnregisterController) -> None:
        invariant(record.controller_id in self._controllers, f"removal of an unknown {record}")
        del self._controllers[record.controller_id]

    def _producer_ids(self, record: ProducerIds) -> None:
        invariant(
            record.next_producer_id >= self._next_producer_id,
            f"producer ids went back from {self._next_producer_id}: {record}",
        )
        self._next_producer_id = record.next_producer_id

    def _no_op(self, record: NoOp) -> None:
        """Advances the offset only."""

    def _stage(self, topic_id: bytes) -> Any:
        staged = self._partitions.get(topic_id)
        if staged is None:
            missing = f"record of unknown topic {topic_id.hex()}"
            invariant(topic_id not in self._removed, missing)
            topic = required(self.base.topics.get(topic_id), missing)
            staged = topic.partitions.mutate()
            self._partitions[topic_id] = staged
            self._names[topic_id] = topic.name
            self.changed_partitions.setdefault(topic_id, set())
        return staged


def _shared(isr: tuple[int, ...], replicas: tuple[int, ...]) -> tuple[int, ...]:
    """The ISR; if all replicas are in sync, as usual, the same tuple object as `replicas`."""
    return replicas if isr == replicas else isr


def _directories(directories: tuple[bytes, ...], replicas: tuple[int, ...]) -> tuple[bytes, ...]:
    if not any(directory != UNASSIGNED_DIRECTORY for directory in directories):
        return ()
    invariant(
        len(directories) == len(replicas),
        f"{len(directories)} directories for the replicas {replicas}",
    )
    return _one_copy(directories)


@lru_cache(maxsize=4_096)
def _one_copy(directories: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """One shared tuple for equal directories: 100,000 partitions have few combinations of them."""
    return directories


_REPLAY: dict[type, Any] = {
    RegisterBroker: Delta._register_broker,
    UnregisterBroker: Delta._unregister_broker,
    Topic: Delta._topic,
    Partition: Delta._partition,
    Config: Delta._config,
    PartitionChange: Delta._partition_change,
    RemoveTopic: Delta._remove_topic,
    FeatureLevel: Delta._feature_level,
    ClientQuota: Delta._client_quota,
    ProducerIds: Delta._producer_ids,
    BrokerRegistrationChange: Delta._broker_registration_change,
    RegisterController: Delta._register_controller,
    UnregisterController: Delta._unregister_controller,
    ScramCredential: Delta._scram_credential,
    RemoveScramCredential: Delta._remove_scram_credential,
    AccessControlEntry: Delta._access_control_entry,
    RemoveAccessControlEntry: Delta._remove_access_control_entry,
    DelegationToken: Delta._delegation_token,
    RemoveDelegationToken: Delta._remove_delegation_token,
    NoOp: Delta._no_op,
}
