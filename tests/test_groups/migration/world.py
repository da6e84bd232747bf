"""Classic consumers as Kafka's clients are, beside those of the consumer protocol."""

from __future__ import annotations

import struct
from typing import Any

from kvorum.broker.groups.classic.group import ClassicGroup
from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.consumer.member import Partitions
from kvorum.broker.groups.migration.embedded import read_assignment, read_subscription
from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.broker.groups.steps.migration_policy import MigrationPolicy
from kvorum.broker.groups.steps.requests import Joined, ProtocolMetadata
from kvorum.runtime.errors import ErrorCode, Rejected
from tests.test_groups.consumer.world import ConsumerWorld, Member, parts, topic_id
from tests.test_groups.world import GROUP, join_body

EAGER = "range"
COOPERATIVE = "cooperative-sticky"
LOST = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)

Named = frozenset[tuple[str, int]]
"""(topic, partition)."""


def by_name(named: Named) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for name, partition in sorted(named):
        topics.setdefault(name, []).append(partition)
    return topics


def encoded(named: Named) -> bytes:
    """[topic, [partition]] with int32 counts, as subscriptions and assignments have it."""
    out = struct.pack(">i", len(by_name(named)))
    for name, numbers in by_name(named).items():
        out += struct.pack(">h", len(name)) + name.encode()
        out += struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return out


def subscription(
    topics: tuple[str, ...] = ("orders",),
    owned: Named = frozenset(),
    version: int = 3,
    rack: str | None = None,
) -> bytes:
    out = struct.pack(">hi", version, len(topics))
    for name in topics:
        out += struct.pack(">h", len(name)) + name.encode()
    out += struct.pack(">i", -1)
    if version >= 1:
        out += encoded(owned)
    if version >= 2:
        out += struct.pack(">i", -1)
    if version >= 3:
        out += (
            struct.pack(">h", -1) if rack is None else struct.pack(">h", len(rack)) + rack.encode()
        )
    return out


def assignment(named: Named, user_data: bytes = b"") -> bytes:
    return struct.pack(">h", 1) + encoded(named) + struct.pack(">i", len(user_data)) + user_data


def orders(*numbers: int) -> Named:
    return frozenset(("orders", number) for number in numbers)


class Classic:
    """A classic consumer. `act` takes its next step, one request or one answer at a time.

    owned: the partitions that it reads. An eager consumer gives up all of them before it joins. A
    cooperative one gives up those that its new assignment lacks, and then joins again. told: its
    new assignment, while it is slow to give partitions up."""

    def __init__(
        self,
        world: ConsumerWorld,
        name: str = "",
        *,
        assignor: str = COOPERATIVE,
        instance: str | None = None,
        topics: tuple[str, ...] = ("orders",),
    ) -> None:
        self.world = world
        self.name = name
        self.assignor = assignor
        self.instance = instance
        self.topics = topics
        self.member_id = ""
        self.generation = -1
        self.owned: Named = frozenset()
        self.needs_join = True
        self.is_leader = False
        self.is_dead = False
        self.is_slow = False
        self.told: Named | None = None
        self.counts: dict[str, int] = {}
        self.join_token: int | None = None
        self.sync_token: int | None = None
        self.errors: list[ErrorCode] = []

    @property
    def owned_ids(self) -> Partitions:
        return frozenset(
            (topic_id(name, self.world.lives.get(name, 0)), p) for name, p in self.owned
        )

    def act(self) -> None:
        if self.is_dead:
            return
        answers = self.world.answers
        if self.join_token is not None:
            if self.join_token in answers:
                token, self.join_token = self.join_token, None
                self._joined(answers[token])
        elif self.sync_token is not None:
            if self.sync_token in answers:
                token, self.sync_token = self.sync_token, None
                self._synced(answers[token])
        elif self.told is not None:
            if self.is_slow:
                self.beat()
            else:
                self.own()
        elif self.needs_join:
            self.send_join()
        elif self.is_leader and self.counts != self.world.counts:
            self.needs_join = True
        else:
            self.beat()

    def enter(self, steps: int = 8) -> Classic:
        """Act until it has its assignment; the group must not have to wait for another member."""
        for _ in range(steps):
            self.act()
            if self.is_settled:
                return self
        raise AssertionError(f"{self.name} is not in: {self.errors}")

    @property
    def is_settled(self) -> bool:
        return not self.needs_join and self.join_token is None and self.sync_token is None

    def join_body(self) -> Any:
        owned = self.owned if self.assignor == COOPERATIVE else frozenset()
        offer = ProtocolMetadata(self.assignor, subscription(self.topics, owned))
        return join_body(self.member_id, instance=self.instance, offers=(offer,))

    def send_join(self) -> None:
        if self.assignor == EAGER:
            self.owned = frozenset()
        self.counts = dict(self.world.counts)
        self.join_token = self.world.ask(self.join_body(), self.name)

    def beat(self) -> ErrorCode:
        error = self.world.heartbeat(self.member_id, self.generation, self.instance)
        self._hear(error)
        return error

    def leave(self) -> Any:
        self.is_dead = True
        self.owned = frozenset()
        return self.world.leave((self.member_id, self.instance))

    def disconnect(self) -> None:
        """Its connection breaks: unanswered requests are lost, and it joins again."""
        if self.join_token is not None or self.sync_token is not None:
            self.join_token = self.sync_token = None
            self.needs_join = True

    # --- answers -----------------------------------------------------------------------------

    def _hear(self, error: ErrorCode) -> None:
        if error == ErrorCode.NONE:
            return
        self.errors.append(error)
        self.needs_join = True
        if error in LOST:
            self.owned, self.told = frozenset(), None
            self.generation = -1
        if error == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if error == ErrorCode.FENCED_INSTANCE_ID:
            self.is_dead = True
            self.owned = frozenset()

    def _joined(self, answer: Joined) -> None:
        if answer.error != ErrorCode.NONE:
            if answer.error == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            else:
                self._hear(answer.error)
            return
        self.needs_join = False
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self.is_leader = answer.leader == answer.member_id
        given = self._assigned(answer) if self.is_leader and not answer.skip_assignment else {}
        self.sync_token = self.world.sync(
            self.member_id,
            self.generation,
            given,
            instance=self.instance,
            protocol_type="consumer",
            protocol_name=self.assignor,
        )

    def _assigned(self, answer: Joined) -> dict[str, bytes]:
        """The assignment that the group's leader makes: members keep their partitions, and
        partitions that another member still owns wait for the next rebalance."""
        said = {row.member_id: read_subscription(row.metadata) for row in answer.members}
        every = {(n, p) for n in self.topics for p in range(self.world.counts.get(n, 0))}
        owner: dict[tuple[str, int], str] = {}
        for name, found in said.items():
            for row in found.owned:
                owner.setdefault(row, name)
        quota = -(-len(every) // len(said))
        given: dict[str, set] = {
            name: set(sorted(r for r in every if owner.get(r) == name)[:quota]) for name in said
        }
        for row in sorted(every - set().union(*given.values())):
            name = min(given, key=lambda name: len(given[name]))
            given[name].add(row)
        return {
            name: assignment(frozenset(r for r in rows if owner.get(r, name) == name))
            for name, rows in given.items()
        }

    def _synced(self, answer: Any) -> None:
        if answer.error != ErrorCode.NONE:
            self._hear(answer.error)
            return
        self.told = frozenset(read_assignment(answer.assignment).partitions)
        if not self.is_slow:
            self.own()

    def own(self) -> None:
        """The application has revoked and taken up partitions as it was told."""
        if self.told is not None:
            if self.assignor == COOPERATIVE and self.owned - self.told:
                self.needs_join = True
            self.owned, self.told = self.told, None


class MixedWorld(ConsumerWorld):
    """A group of consumers of both protocols."""

    @property
    def kind(self) -> str:
        group = self.shard.groups.get(GROUP)
        if group is None:
            return "none"
        return "consumer" if isinstance(group, ConsumerGroup) else "classic"

    @property
    def classic(self) -> ClassicGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group


def settle_classic(members: list[Classic], rounds: int = 12) -> None:
    """Let all act until the classic group of these members is stable."""
    for _ in range(rounds):
        for member in members:
            member.act()
        members[0].world.advance(1_000)
    assert all(member.is_settled for member in members), [m.errors for m in members]


def classics(world: MixedWorld, count: int = 2, **more: Any) -> list[Classic]:
    """This number of classic members in a stable classic group."""
    members = [Classic(world, f"c{number}", **more) for number in range(count)]
    settle_classic(members)
    return members


def settle_all(classic: list[Classic], consumers: list[Any], rounds: int = 12) -> None:
    """Let members of both protocols act until nothing changes."""
    for _ in range(rounds):
        for member in classic:
            member.act()
        for member in consumers:
            member.beat()


ALL = parts("orders", 0, 1, 2, 3)


def world_with(policy: MigrationPolicy, **more: Any) -> MixedWorld:
    return MixedWorld(GroupConfig(group_consumer_migration_policy=policy, **more))


def code(answer: Any) -> ErrorCode:
    assert isinstance(answer, Rejected), answer
    return answer.code


def owned(*members: Any) -> list[Any]:
    return sorted(
        row for m in members for row in (m.owned_ids if isinstance(m, Classic) else m.owned)
    )


def one_of_each(world: MixedWorld) -> tuple[MixedWorld, Classic, Member]:
    """One classic and one new member, two partitions each."""
    (old,) = classics(world, 1)
    new = Member(world, "n")
    new.join()
    settle_all([old], [new])
    old.errors.clear()
    assert (len(old.owned), len(new.owned)) == (2, 2)
    return world, old, new
