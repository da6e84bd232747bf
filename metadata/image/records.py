"""The records of the metadata log: what each says, field by field.

Names follow Apache Kafka's metadata schemas (KIP-631); the bytes are our own
(`record_codec`). Every class names its type id and the newest version this build can read.
A record states a fact that has been decided; it never asks for a decision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from kvorum.metadata.image.features import FeatureRange

NO_LEADER = -1

RECOVERED = 0
"""Leader recovery state: the leader was in sync, or has an ISR of its own again."""
RECOVERING = 1
"""The leader came by an unclean election; committed records may be missing."""
QuotaEntity = tuple[tuple[str, str | None], ...]
"""The entity that a quota binds, as in `ClientQuota.entity`."""

UNASSIGNED_DIRECTORY = bytes(16)
"""In place of a directory id: nobody has told where the replica lies (KIP-858). Counts as online;
a broker with one directory tells nothing, as there is only that one."""

LOST_DIRECTORY = bytes(15) + b"\x01"
"""In place of a directory id: the replica cannot be read, whatever its directory (KIP-858). Never
online. Kvorum's brokers also say so of a replica whose log is damaged."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a node listens. security_protocol: Kafka's name, for now always PLAINTEXT."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A broker process took its place. It stays fenced until its heartbeat shows it caught up.

    broker_epoch: offset of this very record; fences every earlier process of that id.
    incarnation_id: random uuid of the process, so that a retry is told from another process.
    features: levels that the process supports; none told by builds before KIP-584 was served.
    log_dirs: ids of its data directories that are online, ascending (KIP-858). Version 1 brought
    this field.
    """

    TYPE: ClassVar[int] = 0
    VERSION: ClassVar[int] = 1

    broker_id: int
    broker_epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    is_fenced: bool = True
    features: tuple[FeatureRange, ...] = ()
    log_dirs: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """The broker is gone for good; its id may be used anew."""

    TYPE: ClassVar[int] = 1
    VERSION: ClassVar[int] = 0

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic was made. Its id is never used again, even if the name is."""

    TYPE: ClassVar[int] = 2
    VERSION: ClassVar[int] = 0

    name: str
    topic_id: bytes


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition was made, whole.

    replicas: broker ids, in order of preference for leadership; isr: those in sync;
    leader: broker id or NO_LEADER; leader_epoch rises with each leader, partition_epoch with
    each change. adding_replicas, removing_replicas: set while a reassignment is under way
    (KIP-455). leader_recovery_state: RECOVERED or RECOVERING. elr, last_known_elr: KIP-966.
    directories: directory id of each replica, in their order, or none at all while every one is
    UNASSIGNED_DIRECTORY (KIP-858). Version 1 brought the five fields before it, version 2 it.
    """

    TYPE: ClassVar[int] = 3
    VERSION: ClassVar[int] = 2

    topic_id: bytes
    partition_id: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    directories: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Config:
    """A dynamic config was set, or with value None removed.

    resource_type: Kafka's number (2 topic, 4 broker); resource_name: "" is the cluster default.
    """

    TYPE: ClassVar[int] = 4
    VERSION: ClassVar[int] = 0

    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """What changed of a partition; None means unchanged.

    Replay raises partition_epoch by one always, and leader_epoch by one iff leader is given
    (KIP-858). Other replicas without directories: who stays keeps
    its own, who is new is unassigned. Version 1 brought five fields, version 2 directories.
    """

    TYPE: ClassVar[int] = 5
    VERSION: ClassVar[int] = 2

    topic_id: bytes
    partition_id: int
    isr: tuple[int, ...] | None = None
    leader: int | None = None
    replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    leader_recovery_state: int | None = None
    elr: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None
    directories: tuple[bytes, ...] | None = None


@dataclass(frozen=True, slots=True)
class RemoveTopic:
    """The topic and all its partitions are gone; brokers delete their replicas."""

    TYPE: ClassVar[int] = 9
    VERSION: ClassVar[int] = 0

    topic_id: bytes


@dataclass(frozen=True, slots=True)
class FeatureLevel:
    """The finalised level of a feature (KIP-584); level 0 removes it."""

    TYPE: ClassVar[int] = 12
    VERSION: ClassVar[int] = 0

    name: str
    level: int


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """A quota of clients was set, or with value None removed (KIP-546).

    entity: (type, name) pairs in order of type; name None is the default entity of the type.
    """

    TYPE: ClassVar[int] = 14
    VERSION: ClassVar[int] = 0

    entity: QuotaEntity
    key: str
    value: float | None


@dataclass(frozen=True, slots=True)
class ProducerIds:
    """A block of producer ids was handed to a broker; the next block begins at next_producer_id."""

    TYPE: ClassVar[int] = 15
    VERSION: ClassVar[int] = 0

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class BrokerRegistrationChange:
    """A broker was fenced or unfenced, began its controlled shutdown, or lost a data directory;
    None means unchanged. log_dirs: those still online. Version 1 brought log_dirs."""

    TYPE: ClassVar[int] = 17
    VERSION: ClassVar[int] = 1

    broker_id: int
    broker_epoch: int
    is_fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    log_dirs: tuple[bytes, ...] | None = None


@dataclass(frozen=True, slots=True)
class RegisterController:
    """A controller process told the active one where it listens and which levels it supports."""

    TYPE: ClassVar[int] = 27
    VERSION: ClassVar[int] = 0

    controller_id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A user's SCRAM credential was set (KIP-554). mechanism: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.

    stored_key, server_key: as RFC 5802 derives them from the salted password, which no record has.
    SECRETS: the fields that dumps and inspection never show.
    """

    TYPE: ClassVar[int] = 11
    VERSION: ClassVar[int] = 0
    SECRETS: ClassVar[tuple[str, ...]] = ("salt", "stored_key", "server_key")

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class RemoveScramCredential:
    """A user's SCRAM credential of one mechanism was removed."""

    TYPE: ClassVar[int] = 22
    VERSION: ClassVar[int] = 0

    user: str
    mechanism: int


HIDDEN = "[hidden]"
"""In place of each of a record's SECRETS where it is shown."""


@dataclass(frozen=True, slots=True)
class NoOp:
    """Nothing. Shows followers that the log, and with it their view, still moves."""

    TYPE: ClassVar[int] = 20
    VERSION: ClassVar[int] = 0


Record = (
    RegisterBroker
    | UnregisterBroker
    | Topic
    | Partition
    | Config
    | PartitionChange
    | RemoveTopic
    | FeatureLevel
    | ClientQuota
    | ProducerIds
    | BrokerRegistrationChange
    | RegisterController
    | ScramCredential
    | RemoveScramCredential
    | NoOp
)

RECORD_CLASSES: tuple[type[Record], ...] = (
    RegisterBroker,
    UnregisterBroker,
    Topic,
    Partition,
    Config,
    PartitionChange,
    RemoveTopic,
    FeatureLevel,
    ClientQuota,
    ProducerIds,
    BrokerRegistrationChange,
    RegisterController,
    ScramCredential,
    RemoveScramCredential,
    NoOp,
)
