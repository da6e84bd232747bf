"""A group shard, a cluster's topics, and consumers that do what Kafka's clients do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from kvorum.broker.coordinator.model import TopicsChanged
from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.consumer.member import Partitions
from kvorum.broker.groups.consumer.requests import ConsumerHeartbeat, ConsumerHeartbeated
from kvorum.metadata.image.image import ClusterImage, PartitionImage, TopicImage
from kvorum.metadata.image.persistent_map import Map
from kvorum.runtime.errors import ErrorCode, Rejected
from tests.test_groups.world import GROUP, World

PARTITION = PartitionImage(replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0)
REBALANCE_MS = 60_000
JOIN: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_MS, "owned": frozenset()}


def topic_id(name: str, life: int = 0) -> bytes:
    return f"{name}/{life}".encode().ljust(16, b".")[:16]


def parts(name: str, *numbers: int) -> Partitions:
    return frozenset((topic_id(name), number) for number in numbers)


def image_of(counts: dict[str, int], lives: dict[str, int] | None = None) -> ClusterImage:
    """An image with these topics. counts: partitions by topic name; lives: how often the topic was
    deleted."""
    ids = {name: topic_id(name, (lives or {}).get(name, 0)) for name in counts}
    topics = {
        ids[name]: TopicImage(name, ids[name], Map(dict.fromkeys(range(count), PARTITION)))
        for name, count in counts.items()
    }
    return ClusterImage(topics=Map(topics), topic_ids=Map(ids), end_offset=7)


@dataclass
class ConsumerWorld(World):
    counts: dict[str, int] = field(default_factory=lambda: {"orders": 4})
    lives: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tell_topics(frozenset())

    def tell_topics(self, changed: frozenset[str], deleted: frozenset[str] = frozenset()) -> None:
        image = image_of(self.counts, self.lives)
        self.give(TopicsChanged(image=image, changed=changed, deleted=deleted))

    def set_topic(self, name: str, count: int) -> None:
        """Create the topic, or add partitions to it."""
        self.counts[name] = count
        self.tell_topics(frozenset({name}))

    def delete_topic(self, name: str) -> None:
        del self.counts[name]
        self.lives[name] = self.lives.get(name, 0) + 1
        self.tell_topics(frozenset({name}), frozenset({name}))

    def fail_over(self) -> None:
        super().fail_over()
        self.tell_topics(frozenset())

    def beat(self, member_id: str, epoch: int, **more: Any) -> Any:
        group_id = more.pop("group_id", GROUP)
        return self.call(
            ConsumerHeartbeat(group_id=group_id, member_id=member_id, member_epoch=epoch, **more)
        )

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group


class Member:
    """owned: the partitions that it reads. It revokes partitions at once, unless `is_slow`."""

    def __init__(
        self,
        world: ConsumerWorld,
        member_id: str,
        topics: tuple[str, ...] | None = ("orders",),
        **more: Any,
    ) -> None:
        self.world = world
        self.member_id = member_id
        self.instance_id = more.pop("instance_id", None)
        self.said = {"subscribed_topic_names": topics, **more}
        self.epoch = 0
        self.owned: Partitions = frozenset()
        self.told: Partitions = frozenset()
        self.reported: Partitions | None = None
        self.is_slow = False
        self.has_lost_answer = False

    def join(self) -> Any:
        self.epoch, self.owned, self.reported = 0, frozenset(), None
        return self._send(**JOIN, **self.said)

    def beat(self, **more: Any) -> Any:
        """Send a heartbeat of the present state. It names the owned partitions only if they changed
        since the last one, and all fields after a lost answer."""
        if "owned" not in more and self.owned != self.reported:
            more["owned"] = self.owned
        if self.has_lost_answer:
            more = {"rebalance_timeout_ms": REBALANCE_MS, **self.said, **more, "owned": self.owned}
            self.has_lost_answer = False
        return self._send(**more)

    def leave(self, epoch: int = -1) -> Any:
        self.owned = frozenset()
        return self.world.beat(self.member_id, epoch, instance_id=self.instance_id)

    def _send(self, **more: Any) -> Any:
        owned = more.get("owned")
        answer = self.world.beat(self.member_id, self.epoch, instance_id=self.instance_id, **more)
        if isinstance(answer, ConsumerHeartbeated):
            if owned is not None:
                self.reported = owned
            self.take(answer)
        elif isinstance(answer, Rejected) and answer.code in (
            ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID,
        ):  # fmt: skip
            self.owned = frozenset()
        return answer

    def take(self, answer: ConsumerHeartbeated) -> None:
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.told = answer.assignment
            if not self.is_slow:
                self.own()

    def own(self) -> None:
        """The application has revoked and taken up partitions as it was told."""
        if self.owned == self.told:
            # Kafka's clients name their partitions again, because the epoch has changed.
            self.reported = None
        self.owned = self.told


def settle(members: list[Member], rounds: int = 12) -> None:
    """Everybody sends heartbeats until nothing changes."""
    for _ in range(rounds):
        for member in members:
            answer = member.beat()
            assert isinstance(answer, ConsumerHeartbeated), answer


def joined(world: ConsumerWorld, *names: str, **more: Any) -> list[Member]:
    """A group with this number of members, all stable."""
    members = [Member(world, name, **more) for name in names]
    for member in members:
        answer = member.join()
        assert isinstance(answer, ConsumerHeartbeated), answer
    settle(members)
    return members


def known(shard):
    """All state of the group that the log holds."""
    group = shard.groups.get(GROUP)
    if not isinstance(group, ConsumerGroup):
        return None
    return (
        group.group_epoch,
        group.metadata_hash,
        group.assignment_epoch,
        group.members,
        group.targets,
        group.holders,
        group.expressions,
        group.static_members,
    )


def set_configs(world: ConsumerWorld, group_id: str, **configs: str) -> None:
    """The metadata's configs of the group, with underscores for dots."""
    named = Map({key.replace("_", "."): value for key, value in configs.items()})
    image = replace(image_of(world.counts), configs=Map({(32, group_id): named}))
    world.give(TopicsChanged(image=image, changed=frozenset(), deleted=frozenset()))
