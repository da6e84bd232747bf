"""The users of the cluster: administrators, producers and consumers; and the checks at the end."""

from __future__ import annotations

import random

from kvorum.chaos.sim.controller.admin import Administrators
from kvorum.chaos.sim.partitions.consumers import SimConsumer
from kvorum.chaos.sim.partitions.data_world import DataWorld
from kvorum.chaos.sim.partitions.deleters import Deleter
from kvorum.chaos.sim.partitions.directory_movers import DirectoryMover
from kvorum.chaos.sim.partitions.final_checks import check_replicas_equal
from kvorum.chaos.sim.partitions.producers import ACKS_ALL, SimProducer
from kvorum.chaos.sim.partitions.recorder import Recorder
from kvorum.chaos.sim.partitions.share_members import SimShareGroup, SimShareMember
from kvorum.chaos.sim.partitions.streams_members import SimStreamsGroup, SimStreamsMember
from kvorum.metadata.controller.core.controller import Request
from kvorum.metadata.image.image import RESOURCE_TOPIC, ClusterImage
from kvorum.metadata.requests.config_requests import (
    AlterConfigs,
    ConfigAlteration,
    ConfigOperation,
    Operation,
)
from kvorum.metadata.requests.controller_requests import (
    AlterReassignments,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectionType,
    ElectLeaders,
    NewPartitions,
    NewTopic,
    Reassignment,
    TopicReference,
)

MINIMUM = "min.insync.replicas"
PARTITIONS_MAX = 3
PRODUCERS_FROM_MS = 900
MEMBERS = 2
"""Of each share group."""
STREAMS_MEMBERS = 3
"""Of each Streams group."""


class PartitionClients(Administrators):
    """All clients of a run: the administrators (this object), its producers and its consumers."""

    def __init__(self, world: DataWorld, recorder: Recorder, rng: random.Random) -> None:
        super().__init__(world, rng)
        self._recorder = recorder
        self.producers: list[SimProducer] = []
        self.consumers: list[SimConsumer] = []
        self.share_groups: list[SimShareGroup] = []
        self.streams_groups: list[SimStreamsGroup] = []
        self.request_of = self._request
        self._cluster = world
        self._changes = 0

    def begin(self, rng: random.Random) -> None:
        """Start producers and consumers."""
        world = self._cluster
        scenario = world.scenario
        places = [
            (topic, partition)
            for topic in world.topic_names
            for partition in range(scenario.partitions)
        ]
        for number in range(scenario.producers):
            topic, partition = places[number % len(places)]
            acks = ACKS_ALL if rng.random() < scenario.acks_all else rng.choice((0, 1))
            producer = SimProducer(
                world,
                self._recorder,
                random.Random(rng.random()),
                number=number,
                topic=topic,
                partition_id=partition,
                acks=acks,
                is_idempotent=acks == ACKS_ALL and rng.random() < 0.85,
            )
            self.producers.append(producer)
            world.timeline.after(PRODUCERS_FROM_MS + rng.randrange(300), producer.run)
        for number in range(scenario.consumers):
            topic, partition = places[number % len(places)]
            consumer = SimConsumer(
                world,
                self._recorder,
                random.Random(rng.random()),
                number=number,
                topic=topic,
                partition_id=partition,
                has_session=rng.random() < 0.5,
            )
            self.consumers.append(consumer)
            world.timeline.after(PRODUCERS_FROM_MS + rng.randrange(300), consumer.run)
        self._begin_share_groups(places)
        self._begin_streams_groups()
        if scenario.delete_interval_ms:
            deleter = Deleter(world, random.Random(rng.random()))
            world.timeline.after(PRODUCERS_FROM_MS + rng.randrange(300), deleter.run)
        if scenario.move_interval_ms:
            mover = DirectoryMover(world, world.generator("directory-moves"))
            world.timeline.after(PRODUCERS_FROM_MS, mover.run)

    def _begin_share_groups(self, places: list[tuple[str, int]]) -> None:
        world = self._cluster
        rng = world.generator("share-groups")
        for number in range(world.scenario.share_groups):
            topic, partition = places[number % len(places)]
            group = SimShareGroup(
                world,
                self._recorder,
                random.Random(rng.random()),
                group_id=f"queue-{number}",
                topic=topic,
                partition_id=partition,
            )
            self.share_groups.append(group)
            world.timeline.after(PRODUCERS_FROM_MS + rng.randrange(300), group.run)
            for member in range(MEMBERS):
                one = SimShareMember(
                    world, self._recorder, random.Random(rng.random()), group, member
                )
                world.timeline.after(PRODUCERS_FROM_MS + rng.randrange(300), one.run)

    def _begin_streams_groups(self) -> None:
        world = self._cluster
        rng = world.generator("streams-groups")
        for number in range(world.scenario.streams_groups):
            group = SimStreamsGroup(world, f"streams-{number}")
            self.streams_groups.append(group)
            for member in range(STREAMS_MEMBERS):
                one = SimStreamsMember(world, random.Random(rng.random()), group, member)
                world.timeline.after(PRODUCERS_FROM_MS + rng.randrange(600), one.run)

    def on_healed(self) -> None:
        """Require one answer for each producer from now on."""
        for producer in self.producers:
            producer.wait_for_one()

    @property
    def has_served_all(self) -> bool:
        image = self._cluster.reference.newest
        return all(image.topic(name) is not None for name in self._cluster.topic_names) and all(
            producer.is_answered for producer in self.producers
        )

    @property
    def is_quiet(self) -> bool:
        """True if no request is under way, consumers and share groups have read everything, and
        each task of Streams groups has its member."""
        return (
            all(producer.is_idle for producer in self.producers)
            and all(self._has_read_all(consumer) for consumer in self.consumers)
            and all(group.is_settled for group in self.share_groups)
            and all(group.is_settled for group in self.streams_groups)
        )

    def _has_read_all(self, consumer: SimConsumer) -> bool:
        world = self._cluster
        topic = world.reference.newest.topic(consumer.topic)
        if topic is None:
            return True
        history = world.watch.histories.get((topic.topic_id, consumer.partition_id))
        return history is None or (
            consumer.topic_id == topic.topic_id and consumer.position >= history.end_offset
        )

    def check_history(self) -> None:
        super().check_history()
        check_replicas_equal(self._cluster)
        for producer in self.producers:
            producer.check_acknowledged()
        self._recorder.judge()

    # --- requests of administrators ----------------------------------------------------------

    def _request(self, image: ClusterImage) -> Request:
        world = self._cluster
        missing = [name for name in world.topic_names if image.topic(name) is None]
        if missing:
            return CreateTopics(topics=tuple(map(self._new_topic, missing)))
        if not world.network.is_rough:
            return self._harmless()
        make = self._rng.choices(
            (self._delete, self._reassign, self._elect, self._change, self._grow),
            (8, 34, 26, 24, 8),
        )[0]
        return make(image)

    def _new_topic(self, name: str) -> NewTopic:
        scenario = self._cluster.scenario
        configs = [(MINIMUM, str(min(scenario.min_isr, scenario.observers)))]
        if self._cluster.is_compacted(name):
            configs.append(("cleanup.policy", "compact"))
        elif scenario.topic_retention_bytes >= 0:
            configs.append(("retention.bytes", str(scenario.topic_retention_bytes)))
        return NewTopic(
            name=name,
            num_partitions=scenario.partitions,
            replication_factor=min(3, scenario.observers),
            configs=tuple(configs),
        )

    def _delete(self, image: ClusterImage) -> Request:
        name = self._rng.choice(self._cluster.topic_names)
        return DeleteTopics(topics=(TopicReference(name=name),))

    def _reassign(self, image: ClusterImage) -> Request:
        rng, ids = self._rng, self._cluster.broker_ids
        name, partition_id = self._partition(image)
        count = min(rng.choice((1, 2, 3, 3)), len(ids))
        replicas = None if rng.random() < 0.15 else tuple(rng.sample(ids, count))
        return AlterReassignments(
            reassignments=(Reassignment(topic=name, partition_id=partition_id, replicas=replicas),),
            allow_replication_factor_change=True,
        )

    def _elect(self, image: ClusterImage) -> Request:
        kind = ElectionType.PREFERRED
        if self._cluster.scenario.is_unclean and self._rng.random() < 0.4:
            kind = ElectionType.UNCLEAN
        return ElectLeaders(partitions=(self._partition(image),), election=kind)

    def _change(self, image: ClusterImage) -> Request:
        rng = self._rng
        if rng.random() < 0.5:
            return self._alteration("segment.bytes", rng.choice(("1048576", "2000000")))
        return self._alteration(MINIMUM, rng.choice(("1", "2")))

    def _harmless(self) -> Request:
        """A request that certainly writes a record, different from all earlier ones."""
        self._changes += 1
        return self._alteration("flush.ms", str(1_000_000_000 + self._changes))

    def _alteration(self, name: str, value: str) -> Request:
        operation = ConfigOperation(name=name, kind=Operation.SET, value=value)
        topic = self._rng.choice(self._cluster.topic_names)
        return AlterConfigs(
            resources=(
                ConfigAlteration(
                    resource_type=RESOURCE_TOPIC, resource_name=topic, operations=(operation,)
                ),
            )
        )

    def _grow(self, image: ClusterImage) -> Request:
        name, _ = self._partition(image)
        topic = image.topic(name)
        count = 1 if topic is None else len(topic.partitions)
        more = NewPartitions(name=name, count=min(count + 1, PARTITIONS_MAX))
        return CreatePartitions(topics=(more,))

    def _partition(self, image: ClusterImage) -> tuple[str, int]:
        name = self._rng.choice(self._cluster.topic_names)
        topic = image.topic(name)
        return name, self._rng.randrange(1 if topic is None else len(topic.partitions))
