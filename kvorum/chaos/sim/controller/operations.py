"""The requests of administrators, drawn from the image that they see: valid and invalid items in
one request."""

from __future__ import annotations

import random
from collections.abc import Callable

from kvorum.metadata.controller.core.controller import Request
from kvorum.metadata.image.acl import (
    WILDCARD,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from kvorum.metadata.image.features import ELIGIBLE_LEADER_REPLICAS, METADATA_VERSION
from kvorum.metadata.image.image import RESOURCE_BROKER, RESOURCE_TOPIC, ClusterImage
from kvorum.metadata.requests.acl_requests import (
    AclCreation,
    AclSelection,
    CreateAcls,
    DeleteAcls,
)
from kvorum.metadata.requests.config_requests import (
    AlterClientQuotas,
    AlterConfigs,
    ConfigAlteration,
    ConfigOperation,
    Operation,
    QuotaAlteration,
    QuotaOperation,
)
from kvorum.metadata.requests.controller_requests import (
    AlterReassignments,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectionType,
    ElectLeaders,
    FeatureUpdate,
    ListReassignments,
    NewPartitions,
    NewTopic,
    Reassignment,
    TopicReference,
    UnregisterBrokerRequest,
    UpdateFeatures,
    UpdateKind,
)

TOPICS = tuple(f"t{number}" for number in range(8))
"""Names of topics: few, so that names are reused."""

BAD_NAMES = ("", "..", "a/b", "__cluster_metadata")
BAD = 0.15
"""Share of invalid items."""

MINIMUM, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"


class Draws:
    """Draws requests. broker_ids: all brokers of the run, registered or not."""

    def __init__(self, rng: random.Random, broker_ids: tuple[int, ...]) -> None:
        self._rng = rng
        self._broker_ids = broker_ids

    def request(self, image: ClusterImage) -> Request:
        """A request of an administrator who sees this image."""
        make = self._rng.choices(self._makers, self._weights)[0]
        return make(self, image)

    def create(self, image: ClusterImage) -> Request:
        """Create topics."""
        rng = self._rng
        topics = tuple(self._new_topic() for _ in range(rng.choice((1, 1, 2, 3))))
        return CreateTopics(topics=topics, validate_only=rng.random() < 0.05)

    def _new_topic(self) -> NewTopic:
        rng = self._rng
        name = rng.choice(BAD_NAMES if rng.random() < BAD else TOPICS)
        configs: list[tuple[str, str]] = []
        if rng.random() < 0.4:
            configs.append((MINIMUM, str(rng.choice((1, 2, 2)))))
        if rng.random() < 0.15:
            configs.append((UNCLEAN, rng.choice(("true", "false"))))
        if rng.random() < 0.05:
            configs.append(("no.such.config", "1"))
        if rng.random() < 0.3:
            assignments = tuple(self._replicas() for _ in range(rng.randint(1, 3)))
            return NewTopic(name=name, assignments=assignments, configs=tuple(configs))
        return NewTopic(
            name=name,
            num_partitions=rng.choice((-1, 1, 2, 3, 0)),
            replication_factor=rng.choice((-1, 1, 2, 3, 3)),
            configs=tuple(configs),
        )

    def _replicas(self) -> tuple[int, ...]:
        rng, ids = self._rng, self._broker_ids
        chosen = rng.sample(ids, min(rng.choice((1, 2, 3, 3)), len(ids)))
        if rng.random() < BAD / 2:
            chosen.append(rng.choice((99, chosen[0])))
        return tuple(chosen)

    def delete(self, image: ClusterImage) -> Request:
        """Delete topics, by name or id."""
        rng = self._rng
        references = []
        for _ in range(rng.choice((1, 1, 2))):
            ids = sorted(image.topics)
            if ids and rng.random() < 0.4:
                references.append(TopicReference(topic_id=rng.choice(ids)))
            else:
                references.append(TopicReference(name=rng.choice(TOPICS)))
        return DeleteTopics(topics=tuple(references))

    def _grow(self, image: ClusterImage) -> Request:
        rng = self._rng
        topics = []
        for _ in range(rng.choice((1, 2))):
            name = self._topic(image)
            topic = image.topic(name)
            count = (0 if topic is None else len(topic.partitions)) + rng.choice((-1, 1, 1, 2))
            assignments = None
            if rng.random() < 0.2:
                assignments = (self._replicas(),)
            topics.append(NewPartitions(name=name, count=min(count, 6), assignments=assignments))
        return CreatePartitions(topics=tuple(topics), validate_only=rng.random() < 0.05)

    def _configs(self, image: ClusterImage) -> Request:
        rng = self._rng
        resources = tuple(self._alteration(image) for _ in range(rng.choice((1, 1, 2))))
        return AlterConfigs(
            resources=resources,
            is_replacement=rng.random() < 0.2
            and all(o.kind == Operation.SET for r in resources for o in r.operations),
            validate_only=rng.random() < 0.05,
        )

    def _alteration(self, image: ClusterImage) -> ConfigAlteration:
        rng = self._rng
        if rng.random() < 0.75:
            name, value = rng.choice(
                ((MINIMUM, "1"), (MINIMUM, "2"), (UNCLEAN, "true"), (UNCLEAN, "false"))
            )
            kind = Operation.DELETE if rng.random() < 0.2 else Operation.SET
            operation = ConfigOperation(name=name, kind=kind, value=value)
            if rng.random() < BAD:
                operation = ConfigOperation(name=MINIMUM, kind=Operation.SET, value="many")
            return ConfigAlteration(
                resource_type=RESOURCE_TOPIC,
                resource_name=self._topic(image),
                operations=(operation,),
            )
        ids = [*map(str, self._broker_ids), "", "", "x"]
        kind = Operation.DELETE if rng.random() < 0.4 else Operation.SET
        operation = ConfigOperation(name=MINIMUM, kind=kind, value=rng.choice(("1", "2")))
        return ConfigAlteration(
            resource_type=RESOURCE_BROKER,
            resource_name=rng.choice(ids),
            operations=(operation,),
        )

    def _quotas(self, image: ClusterImage) -> Request:
        rng = self._rng
        entries = []
        for _ in range(rng.choice((1, 2))):
            user = rng.choice(("a", "b", None))
            entity = (("user", user),) if rng.random() > BAD else (("shoe", "x"),)
            value = rng.choice((None, 1_000.0, 2_000.0))
            operation = QuotaOperation(key="producer_byte_rate", value=value)
            entries.append(QuotaAlteration(entity=entity, operations=(operation,)))
        return AlterClientQuotas(entries=tuple(entries))

    def _acls(self, image: ClusterImage) -> Request:
        rng = self._rng
        if rng.random() < 0.5:
            creations = tuple(self._acl(image) for _ in range(rng.choice((1, 1, 2))))
            return CreateAcls(creations=creations)
        filters = []
        for _ in range(rng.choice((1, 1, 2))):
            filters.append(
                AclSelection(
                    resource_type=ResourceType.ANY if rng.random() > BAD / 2 else 99,
                    resource_name=None if rng.random() < 0.5 else self._topic(image),
                    pattern_type=PatternType.MATCH,
                    principal=rng.choice(("User:a", "User:b", None)),
                    host=None,
                    operation=AclOperation.ANY,
                    permission=Permission.ANY,
                )
            )
        return DeleteAcls(filters=tuple(filters))

    def _acl(self, image: ClusterImage) -> AclCreation:
        rng = self._rng
        return AclCreation(
            resource_type=ResourceType.TOPIC if rng.random() > BAD else ResourceType.ANY,
            resource_name=self._topic(image),
            pattern_type=rng.choice((PatternType.LITERAL, PatternType.PREFIXED)),
            principal=rng.choice(("User:a", "User:b")),
            host=WILDCARD,
            operation=rng.choice((AclOperation.READ, AclOperation.WRITE)),
            permission=rng.choice((Permission.ALLOW, Permission.DENY)),
        )

    def _reassign(self, image: ClusterImage) -> Request:
        rng = self._rng
        wanted = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            name, partition_id = self._partition(image)
            replicas = None if rng.random() < 0.25 else self._replicas()
            wanted.append(Reassignment(topic=name, partition_id=partition_id, replicas=replicas))
        return AlterReassignments(
            reassignments=tuple(wanted), allow_replication_factor_change=rng.random() < 0.9
        )

    def _list(self, image: ClusterImage) -> Request:
        return ListReassignments()

    def _elect(self, image: ClusterImage) -> Request:
        rng = self._rng
        election = ElectionType.PREFERRED
        if rng.random() < 0.15:
            election = ElectionType.UNCLEAN
        partitions: tuple[tuple[str, int], ...] = ()
        if rng.random() < 0.7 or election is ElectionType.UNCLEAN:
            partitions = tuple(self._partition(image) for _ in range(rng.choice((1, 2))))
        return ElectLeaders(partitions=partitions, election=election)

    def _features(self, image: ClusterImage) -> Request:
        rng = self._rng
        name, level = rng.choice(
            (
                (ELIGIBLE_LEADER_REPLICAS, 0),
                (ELIGIBLE_LEADER_REPLICAS, 1),
                (ELIGIBLE_LEADER_REPLICAS, 1),
                (METADATA_VERSION, 26),
                (METADATA_VERSION, 27),
                (METADATA_VERSION, 27),
                (METADATA_VERSION, 29),
                ("no.such.feature", 1),
            )
        )
        now = image.features.get(name, 0)
        kind = UpdateKind.UPGRADE if level >= now else UpdateKind.SAFE_DOWNGRADE
        updates = [FeatureUpdate(name=name, max_level=level, kind=kind)]
        if name == METADATA_VERSION and rng.random() < 0.4:
            other = ELIGIBLE_LEADER_REPLICAS
            kind = UpdateKind.SAFE_DOWNGRADE if level == 26 else UpdateKind.UPGRADE
            updates.append(FeatureUpdate(name=other, max_level=int(level == 27), kind=kind))
        return UpdateFeatures(updates=tuple(updates), validate_only=rng.random() < 0.05)

    def _unregister(self, image: ClusterImage) -> Request:
        fenced = [b.broker_id for b in image.brokers.values() if b.is_fenced]
        if fenced and self._rng.random() < 0.7:
            return UnregisterBrokerRequest(broker_id=self._rng.choice(sorted(fenced)))
        return UnregisterBrokerRequest(broker_id=self._rng.choice((*self._broker_ids, 99)))

    def _topic(self, image: ClusterImage) -> str:
        names = sorted(image.topic_ids)
        if not names or self._rng.random() < BAD:
            return self._rng.choice(TOPICS)
        return self._rng.choice(names)

    def _partition(self, image: ClusterImage) -> tuple[str, int]:
        name = self._topic(image)
        topic = image.topic(name)
        return name, self._rng.randrange((0 if topic is None else len(topic.partitions)) + 1)

    _makers: tuple[Callable[[Draws, ClusterImage], Request], ...] = (
        create, delete, _grow, _configs, _quotas, _acls, _reassign, _list, _elect, _features,
        _unregister,
    )  # fmt: skip
    _weights = (24, 9, 8, 12, 6, 5, 14, 4, 12, 5, 6)
