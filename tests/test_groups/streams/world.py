"""A group shard, a cluster's topics, and members that do what Kafka Streams' threads do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.broker.groups.streams.group import StreamsGroup
from kvorum.broker.groups.streams.requests import StreamsHeartbeat, StreamsHeartbeated
from kvorum.broker.groups.streams.tasks import NO_ROLES, Tasks
from kvorum.broker.groups.streams.topology import InternalTopic, Subtopology, Topology
from kvorum.runtime.errors import ErrorCode, Rejected
from tests.test_groups.consumer.world import ConsumerWorld
from tests.test_groups.world import GROUP

REBALANCE_MS = 60_000
CHANGELOG = "counts-changelog"
AT_ONCE = GroupConfig(
    group_streams_initial_rebalance_delay_ms=0, group_streams_assignment_interval_ms=0
)
"""No group waits for more members, and no target for the last one's age."""


def one_part(
    *sources: str, changelogs: tuple[str, ...] = (), epoch: int = 0, name: str = "0"
) -> Topology:
    """A topology of one subtopology."""
    part = Subtopology(
        subtopology_id=name,
        source_topics=sources,
        state_changelog_topics=tuple(InternalTopic(topic) for topic in changelogs),
    )
    return Topology(epoch=epoch, subtopologies=(part,))


STATELESS = one_part("orders")
STATEFUL = one_part("orders", changelogs=(CHANGELOG,))


@dataclass
class StreamsWorld(ConsumerWorld):
    config: GroupConfig = field(default_factory=lambda: AT_ONCE)

    def beat(self, member_id: str, epoch: int, **more: Any) -> Any:
        return self.call(
            StreamsHeartbeat(group_id=GROUP, member_id=member_id, member_epoch=epoch, **more)
        )

    @property
    def streams(self) -> StreamsGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, StreamsGroup)
        return group


class Thread:
    """A member. owned: the tasks that it works on. It gives tasks up at once, unless `is_slow`."""

    def __init__(
        self, world: StreamsWorld, member_id: str, topology: Topology = STATELESS, **more: Any
    ) -> None:
        self.world = world
        self.member_id = member_id
        self.topology = topology
        self.instance_id = more.pop("instance_id", None)
        self.said = {"process_id": f"process-{member_id}", **more}
        self.epoch = 0
        self.owned = self.told = NO_ROLES
        self.is_slow = False
        self.statuses: list[int] = []

    def join(self, **more: Any) -> Any:
        self.epoch, self.owned = 0, NO_ROLES
        return self._send(
            owned=NO_ROLES,
            topology=self.topology,
            rebalance_timeout_ms=REBALANCE_MS,
            **{**self.said, **more},
        )

    def beat(self, **more: Any) -> Any:
        return self._send(**{"owned": self.owned, **more})

    def leave(self, epoch: int = -1) -> Any:
        self.owned = NO_ROLES
        return self.world.beat(self.member_id, epoch, instance_id=self.instance_id)

    def _send(self, **more: Any) -> Any:
        answer = self.world.beat(self.member_id, self.epoch, instance_id=self.instance_id, **more)
        if isinstance(answer, StreamsHeartbeated):
            self.epoch = answer.member_epoch
            self.statuses = [int(status.code) for status in answer.statuses]
            if answer.assignment is not None:
                self.told = answer.assignment.tasks
            if not self.is_slow:
                self.own()
        elif isinstance(answer, Rejected) and answer.code in (
            ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID,
        ):  # fmt: skip
            self.owned = NO_ROLES
        return answer

    def own(self) -> None:
        """The application has closed and opened tasks as it was told."""
        self.owned = self.told


def settle(threads: list[Thread], rounds: int = 8) -> None:
    """Everybody sends heartbeats until nothing changes."""
    for _ in range(rounds):
        for thread in threads:
            answer = thread.beat()
            assert isinstance(answer, StreamsHeartbeated), answer


def joined(world: StreamsWorld, *names: str, **more: Any) -> list[Thread]:
    """A group with this number of members, all stable."""
    threads = [Thread(world, name, **more) for name in names]
    for thread in threads:
        answer = thread.join()
        assert isinstance(answer, StreamsHeartbeated), answer
    settle(threads)
    return threads


def tasks(name: str, *partitions: int) -> frozenset[tuple[str, int]]:
    return frozenset((name, partition) for partition in partitions)


def roles(thread: Thread) -> Tasks:
    return thread.owned


def known(shard: Any) -> Any:
    """All state of the group that the log holds."""
    group = shard.groups.get(GROUP)
    if not isinstance(group, StreamsGroup):
        return None
    return (
        group.epoch,
        group.target_epoch,
        group.topology,
        group.members,
        group.targets,
        group.static_members,
        group.description,
        group._active,
        group._standby,
    )
