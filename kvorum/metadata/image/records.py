"""The records of the metadata log and their fields.

Names follow Apache Kafka's metadata schemas (KIP-631); the byte format is Kvorum's own
(`record_codec`). Each class has its type id, and the newest version that this build can read. A
record states a fact that has been decided; it never asks for a decision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from kvorum.metadata.image.acl import (
    Acl,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from kvorum.metadata.image.features import FeatureRange

NO_LEADER = -1

RECOVERED = 0
"""Leader recovery state: the leader was elected from the ISR, or has an ISR of its own again."""
RECOVERING = 1
"""Leader recovery state: the election was unclean; committed records may be missing."""
QuotaEntity = tuple[tuple[str, str | None], ...]
"""The entity that a quota applies to, as in `ClientQuota.entity`."""

UNASSIGNED_DIRECTORY = bytes(16)
"""Stands for a directory id that was not reported (KIP-858). Counts as online: a broker with a
single directory reports none."""

LOST_DIRECTORY = bytes(15) + b"\x01"
"""Stands for the directory id of a replica that cannot be read (KIP-858). Never online. Kvorum's
brokers also report it for a replica whose log is damaged."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listener of a node. security_protocol: Kafka's name."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A broker process registered. It stays fenced until a heartbeat shows that it has caught up.

    broker_epoch: offset of this record; fences every earlier process of the same broker id.
    incarnation_id: random uuid of the process; distinguishes a retry from another process.
    features: levels that the process supports; empty for builds without KIP-584.
    log_dirs: ids of its online data directories, ascending (KIP-858); since version 1.
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
    """The broker was removed for good; its id may be used again."""

    TYPE: ClassVar[int] = 1
    VERSION: ClassVar[int] = 0

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic was created. Its id is never used again, even if the name is."""

    TYPE: ClassVar[int] = 2
    VERSION: ClassVar[int] = 0

    name: str
    topic_id: bytes


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition was created, with its complete state.

    replicas: broker ids in order of preference for leadership.
    isr: those in sync.
    leader: broker id or NO_LEADER.
    leader_epoch: rises with each leader, partition_epoch with each change.
    adding_replicas, removing_replicas: set during a reassignment (KIP-455).
    leader_recovery_state: RECOVERED or RECOVERING.
    elr, last_known_elr: see KIP-966.
    directories: directory id of each replica, in their order; empty if every one is
        UNASSIGNED_DIRECTORY (KIP-858).

    Version 1 added the five fields before `directories`, version 2 `directories`.
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
    """A dynamic config was set, or removed if value is None.

    resource_type: Kafka's number (2 topic, 4 broker).
    resource_name: "" is the cluster default.
    value: perhaps a password; `metadata.configs.secrets` decides what may be shown.
    """

    TYPE: ClassVar[int] = 4
    VERSION: ClassVar[int] = 0

    resource_type: int
    resource_name: str
    name: str
    value: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """A change of a partition; None means unchanged.

    Replay always raises partition_epoch by one, and leader_epoch by one if and only if leader is
    given (KIP-858). If replicas change and directories are not given, each remaining replica keeps
    its directory and each new one is unassigned. Version 1 added five fields, version 2
    directories.
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
    """The topic and all its partitions were deleted; brokers delete their replicas."""

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
    """A client quota was set, or removed if value is None (KIP-546).

    entity: (type, name) pairs, ordered by type; name None is the default entity of the type.
    """

    TYPE: ClassVar[int] = 14
    VERSION: ClassVar[int] = 0

    entity: QuotaEntity
    key: str
    value: float | None


@dataclass(frozen=True, slots=True)
class ProducerIds:
    """A broker got a block of producer ids; the next block begins at next_producer_id."""

    TYPE: ClassVar[int] = 15
    VERSION: ClassVar[int] = 0

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class BrokerRegistrationChange:
    """A broker was fenced or unfenced, began its controlled shutdown, or lost a data directory.

    None means unchanged. log_dirs: the directories that are still online; since version 1.
    """

    TYPE: ClassVar[int] = 17
    VERSION: ClassVar[int] = 1

    broker_id: int
    broker_epoch: int
    is_fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    log_dirs: tuple[bytes, ...] | None = None


@dataclass(frozen=True, slots=True)
class RegisterController:
    """A controller process registered with its listener and the levels that it supports."""

    TYPE: ClassVar[int] = 27
    VERSION: ClassVar[int] = 0

    controller_id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]


@dataclass(frozen=True, slots=True)
class UnregisterController:
    """The registration of a controller was removed."""

    TYPE: ClassVar[int] = 29
    VERSION: ClassVar[int] = 0

    controller_id: int


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A user's SCRAM credential was set (KIP-554). mechanism: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.

    stored_key, server_key: derived from the salted password (RFC 5802), which no record contains.
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


@dataclass(frozen=True, slots=True)
class AccessControlEntry:
    """An ACL was created. id: 16 random bytes; the other fields are those of `Acl`."""

    TYPE: ClassVar[int] = 18
    VERSION: ClassVar[int] = 0

    id: bytes
    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: Permission

    @classmethod
    def of(cls, acl_id: bytes, acl: Acl) -> AccessControlEntry:
        """The record that creates `acl`."""
        return cls(
            acl_id,
            acl.resource_type,
            acl.resource_name,
            acl.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission,
        )

    @property
    def acl(self) -> Acl:
        return Acl(
            resource_type=self.resource_type,
            resource_name=self.resource_name,
            pattern_type=self.pattern_type,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission=self.permission,
        )


@dataclass(frozen=True, slots=True)
class RemoveAccessControlEntry:
    """The ACL with this id was removed."""

    TYPE: ClassVar[int] = 19
    VERSION: ClassVar[int] = 0

    id: bytes


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token was created, or has a new expiration (KIP-48). Times are wall-clock ms.

    owner: the principal, `User:NAME`, as which a client with the token acts.
    requester: the principal that asked for the token.
    renewers: principals that may renew it too. The token's HMAC, by which clients prove that they
        have it, is in no record: it is computed from the id and delegation.token.secret.key.
    """

    TYPE: ClassVar[int] = 10
    VERSION: ClassVar[int] = 0

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int
    token_id: str

    def is_expired(self, wall_ms: int) -> bool:
        """True if nobody can log in with it or renew it any more."""
        return min(self.max_timestamp_ms, self.expiration_timestamp_ms) < wall_ms

    def is_of(self, principal: str) -> bool:
        """True for the owner, the requester and the renewers: they may describe the token."""
        return principal in (self.owner, self.requester, *self.renewers)

    def may_be_renewed_by(self, principal: str) -> bool:
        """True for the owner and the renewers. As in Kafka, the requester alone is neither."""
        return principal in (self.owner, *self.renewers)


@dataclass(frozen=True, slots=True)
class RemoveDelegationToken:
    """The delegation token with this id was removed."""

    TYPE: ClassVar[int] = 26
    VERSION: ClassVar[int] = 0

    token_id: str


HIDDEN = "[hidden]"
"""Shown in place of each field in a record's SECRETS."""


@dataclass(frozen=True, slots=True)
class NoOp:
    """No change. It shows followers that the log, and so their metadata, still advances."""

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
    | UnregisterController
    | ScramCredential
    | RemoveScramCredential
    | AccessControlEntry
    | RemoveAccessControlEntry
    | DelegationToken
    | RemoveDelegationToken
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
    UnregisterController,
    ScramCredential,
    RemoveScramCredential,
    AccessControlEntry,
    RemoveAccessControlEntry,
    DelegationToken,
    RemoveDelegationToken,
    NoOp,
)
