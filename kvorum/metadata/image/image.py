"""The cluster as the metadata log describes it: one immutable image per log position.

An image never changes; `metadata.image.delta` makes the next one from records. Persistent maps
(`persistent_map`) share unchanged parts. So a controller can hold a committed and a speculative
image, and can write a snapshot of one while it goes on.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from kvorum.metadata.image.acl import Acl
from kvorum.metadata.image.features import FeatureRange
from kvorum.metadata.image.persistent_map import Map
from kvorum.metadata.image.records import (
    LOST_DIRECTORY,
    NO_LEADER,
    RECOVERED,
    UNASSIGNED_DIRECTORY,
    DelegationToken,
    Endpoint,
    QuotaEntity,
    ScramCredential,
)

#: The id of a topic and a partition's number: what a partition is known by. A name may be given to
#: another topic later.
TopicIdPartition = tuple[bytes, int]

#: Kafka's numbers of config resources.
RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
RESOURCE_CLIENT_METRICS = 16
RESOURCE_GROUP = 32


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition. For the fields see `records.Partition`.

    There may be 100,000 of these, so fields that are empty nearly everywhere share one empty tuple.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    directories: tuple[bytes, ...] = ()

    def directory_of(self, broker_id: int) -> bytes:
        """Id of the directory of a broker's replica, UNASSIGNED_DIRECTORY if unknown (KIP-858)."""
        if not self.directories or broker_id not in self.replicas:
            return UNASSIGNED_DIRECTORY
        return self.directories[self.replicas.index(broker_id)]

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def is_under_replicated(self) -> bool:
        return is_under_replicated(self.replicas, self.isr, self.adding_replicas)


def is_under_replicated(
    replicas: Collection[int], isr: Collection[int], adding: Collection[int]
) -> bool:
    """True if fewer replicas are in sync than the partition has without those that a reassignment
    is adding: a planned move is no lack of replicas (as Kafka's UnderReplicatedPartitions)."""
    if len(isr) >= len(replicas):
        return False
    return len(isr) < sum(1 for replica in replicas if replica not in adding)


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic: its name, its id (16 bytes) and its partitions by number from 0."""

    name: str
    topic_id: bytes
    partitions: Map[int, PartitionImage]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """One registered broker. Only an unfenced broker may lead or be in an ISR.

    log_dirs: ids of its online data directories; empty for brokers of old builds.
    """

    broker_id: int
    broker_epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    is_fenced: bool
    in_controlled_shutdown: bool
    features: tuple[FeatureRange, ...] = ()
    log_dirs: tuple[bytes, ...] = ()

    def has_online(self, directory: bytes) -> bool:
        """True if the broker can serve a replica in this directory."""
        return is_online(directory, self.log_dirs)

    @property
    def is_active(self) -> bool:
        """True if the broker may lead, join an ISR and get new replicas."""
        return not self.is_fenced and not self.in_controlled_shutdown

    @property
    def endpoint(self) -> Endpoint:
        """The inter-broker listener, which is the first endpoint; a registration has at least
        one."""
        return self.endpoints[0]

    def client_endpoint(self, protocol: str) -> Endpoint:
        """The listener for a client of this protocol. The inter-broker listener is the last choice,
        because it may be open to brokers only."""
        own, *others = self.endpoints
        fitting = [each for each in (*others, own) if each.security_protocol == protocol]
        return (*fitting, *others, own)[0]


def is_online(directory: bytes, log_dirs: tuple[bytes, ...]) -> bool:
    """True if `directory` is one of a broker's online directories.

    A broker that reports no directories has a build with a single one, and exits when that one
    fails.
    """
    if directory == UNASSIGNED_DIRECTORY:
        return True
    return directory != LOST_DIRECTORY and (not log_dirs or directory in log_dirs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerImage:
    """One registered controller process. For the fields see `records.RegisterController`."""

    controller_id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """The state of the cluster after all records below `end_offset` (exclusive).

    end_offset, epoch: of the last applied record.
    brokers: by id.
    topics: by topic id.
    topic_ids: topic id by name.
    configs: by (resource type, resource name), each a map of name to value.
    client_quotas: by entity, each a map of key to value.
    scram_credentials: by user, each a map of mechanism number to the record that set it.
    acls: by id.
    acl_ids: id by ACL.
    delegation_tokens: by id, each the record that set it.
    features: finalised level by name.
    controllers: registered processes by id.
    """

    end_offset: int = 0
    epoch: int = 0
    brokers: Map[int, BrokerImage] = field(default_factory=Map)
    topics: Map[bytes, TopicImage] = field(default_factory=Map)
    topic_ids: Map[str, bytes] = field(default_factory=Map)
    configs: Map[tuple[int, str], Map[str, str]] = field(default_factory=Map)
    features: Map[str, int] = field(default_factory=Map)
    controllers: Map[int, ControllerImage] = field(default_factory=Map)
    next_producer_id: int = 0
    client_quotas: Map[QuotaEntity, Map[str, float]] = field(default_factory=Map)
    scram_credentials: Map[str, Map[int, ScramCredential]] = field(default_factory=Map)
    acls: Map[bytes, Acl] = field(default_factory=Map)
    acl_ids: Map[Acl, bytes] = field(default_factory=Map)
    delegation_tokens: Map[str, DelegationToken] = field(default_factory=Map)

    def topic(self, name: str) -> TopicImage | None:
        """The existing topic with this name; None if there is none."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, topic_id: bytes, partition_id: int) -> PartitionImage | None:
        topic = self.topics.get(topic_id)
        return None if topic is None else topic.partitions.get(partition_id)

    def topic_configs(self, name: str) -> Map[str, str]:
        """Dynamic configs of the topic itself."""
        return self.configs.get((RESOURCE_TOPIC, name), _NO_CONFIGS)

    def default_config(self, name: str) -> str | None:
        """The cluster-wide dynamic default of a broker config; None if it is not set."""
        return self.configs.get((RESOURCE_BROKER, ""), _NO_CONFIGS).get(name)

    def broker_configs(self, broker_id: int) -> Map[str, str]:
        """Dynamic configs of one broker."""
        return self.configs.get((RESOURCE_BROKER, str(broker_id)), _NO_CONFIGS)

    def active_broker_ids(self) -> list[int]:
        """Ids of brokers that may lead, ascending."""
        return sorted(b.broker_id for b in self.brokers.values() if b.is_active)

    def replica_count_of(self, broker_id: int) -> int:
        """Number of replicas on the broker. Looks at every partition."""
        partitions = (p for topic in self.topics.values() for p in topic.partitions.values())
        return sum(broker_id in partition.replicas for partition in partitions)


_NO_CONFIGS: Map[str, str] = Map()

EMPTY_IMAGE = ClusterImage()
