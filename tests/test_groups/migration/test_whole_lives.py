"""Random lives of a group whose members are of both protocols, with fail-overs and restarts.

- no two members of the group read a partition at once;
- a partition that one member reads is never held by another in the coordinator's state;
- epochs and generations that a client is told never go back, nor do the group's;
- a shard that reads the log, compacted or not, knows what the living one knows;
- timers belong to members that are there;
- offsets are what a dictionary would hold, whatever the group is;
- when everybody goes on, the group comes to rest and everything is read once.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvorum.broker.groups.classic.group import ClassicGroup
from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.consumer.requests import ConsumerHeartbeated
from kvorum.broker.groups.consumer.states import ConsumerGroupState, MemberState
from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.broker.groups.steps.migration_policy import MigrationPolicy
from kvorum.broker.groups.steps.requests import OffsetsCommitted
from kvorum.broker.groups.steps.timers import (
    ClassicRejoinTimer,
    ClassicSyncTimer,
    ConsumerRebalanceTimer,
    ConsumerSessionTimer,
    ExpiryTimer,
    JoinTimer,
    PendingMemberTimer,
    SessionTimer,
    SyncTimer,
)
from kvorum.runtime.errors import ErrorCode, Rejected
from tests.test_groups.consumer import world as consumer_world
from tests.test_groups.consumer.world import Member
from tests.test_groups.migration.world import COOPERATIVE, EAGER, Classic, MixedWorld
from tests.test_groups.world import GROUP, commit_body, committed, compacted

INSTANCES = ("one", "two")
MEMBERS_MAX = 5
POLICIES = st.sampled_from(
    [MigrationPolicy.BIDIRECTIONAL] * 4 + [MigrationPolicy.UPGRADE, MigrationPolicy.DOWNGRADE]
)


class MixedGroupLife(RuleBasedStateMachine):
    @initialize(assignor=st.sampled_from([COOPERATIVE, EAGER]), policy=POLICIES)
    def begin(self, assignor, policy):
        config = GroupConfig(
            group_consumer_migration_policy=policy, group_initial_rebalance_delay_ms=1_000
        )
        self.world = MixedWorld(config)
        self.assignor = assignor
        self.classic: list[Classic] = []
        self.consumers: list[Member] = []
        self.told: dict[str, int] = {}
        self.number_of_group = 0
        self.offsets: dict[tuple[str, int], int] = {}
        self.number = 0

    @property
    def group(self):
        return self.world.shard.groups.get(GROUP)

    def is_member(self, member_id: str) -> bool:
        return self.group is not None and member_id in self.group.members

    def name(self, kind: str) -> str:
        self.number += 1
        return f"{kind}{self.number}"

    def has_room(self) -> bool:
        return len(self.classic) + len(self.consumers) < MEMBERS_MAX

    # --- members -----------------------------------------------------------------------------

    @precondition(lambda self: self.has_room())
    @rule(instance=st.sampled_from([None, None, *INSTANCES]))
    def start_classic(self, instance):
        if instance is None or self.is_free(instance):
            member = Classic(self.world, self.name("c"), assignor=self.assignor, instance=instance)
            self.classic.append(member)
            member.act()

    @precondition(lambda self: self.has_room())
    @rule(instance=st.sampled_from([None, None, *INSTANCES]))
    def start_consumer(self, instance):
        if instance is None or self.is_free(instance):
            self.admit(Member(self.world, self.name("n"), instance_id=instance))

    def is_free(self, instance) -> bool:
        """True if no process uses the instance id."""
        of_classic = [m.instance for m in self.classic]
        return instance not in [*of_classic, *(m.instance_id for m in self.consumers)]

    def admit(self, member: Member) -> None:
        answer = member.join()
        if isinstance(answer, ConsumerHeartbeated):
            self.consumers.append(member)

    @precondition(lambda self: self.classic)
    @rule(data=st.data(), steps=st.integers(1, 4))
    def act(self, data, steps):
        member = data.draw(st.sampled_from(self.classic))
        for _ in range(steps):
            member.act()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def beat(self, data):
        self.go_on(data.draw(st.sampled_from(self.consumers)))

    def go_on(self, member: Member) -> None:
        answer = member.beat()
        if not isinstance(answer, Rejected):
            return
        # The member was fenced, or the group has changed its kind: the member joins again.
        member.owned = frozenset()
        self.consumers.remove(member)
        if answer.code != ErrorCode.FENCED_INSTANCE_ID:
            self.admit(member)

    @precondition(lambda self: self.classic or self.consumers)
    @rule(data=st.data(), is_slow=st.booleans())
    def become_slow(self, data, is_slow):
        """The member's application becomes slow to revoke and take up partitions."""
        member = data.draw(st.sampled_from([*self.classic, *self.consumers]))
        member.is_slow = is_slow
        if not is_slow:
            member.own()

    @precondition(lambda self: self.classic)
    @rule(data=st.data())
    def classic_leaves(self, data):
        member = data.draw(st.sampled_from(self.classic))
        self.classic.remove(member)
        if member.member_id:
            member.leave()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def consumer_leaves(self, data):
        member = data.draw(st.sampled_from(self.consumers))
        self.consumers.remove(member)
        member.leave()

    @precondition(lambda self: self.classic or self.consumers)
    @rule(data=st.data())
    def die(self, data):
        """The member dies silently; no other member may get its partitions before its session
        ends."""
        member = data.draw(st.sampled_from([*self.classic, *self.consumers]))
        (self.classic if isinstance(member, Classic) else self.consumers).remove(member)

    # --- rolling restarts --------------------------------------------------------------------

    @precondition(lambda self: self.classic)
    @rule(data=st.data())
    def upgrade_one(self, data):
        """A classic client is started again with the new protocol. Static ones do not leave."""
        old = data.draw(st.sampled_from(self.classic))
        self.classic.remove(old)
        if old.instance is None and old.member_id:
            old.leave()
            self.epochs_never_go_back()
        self.admit(Member(self.world, self.name("n"), instance_id=old.instance))

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def downgrade_one(self, data):
        old = data.draw(st.sampled_from(self.consumers))
        self.consumers.remove(old)
        old.leave(-1 if old.instance_id is None else -2)
        self.epochs_never_go_back()
        new = Classic(self.world, self.name("c"), assignor=self.assignor, instance=old.instance_id)
        self.classic.append(new)
        new.act()

    # --- the world ---------------------------------------------------------------------------

    def leader_is_here(self) -> bool:
        """A static leader that returns skips the assignment (KIP-814) and only watches for topics
        that grow from then on. Partitions added while it was away wait for the next rebalance, in
        Kafka too."""
        group = self.group
        return not isinstance(group, ClassicGroup) or group.leader_id in (
            None, *(m.member_id for m in self.classic)
        )  # fmt: skip

    @precondition(lambda self: self.leader_is_here())
    @rule(more=st.integers(1, 2))
    def grow(self, more):
        self.world.set_topic("orders", min(self.world.counts["orders"] + more, 8))

    @rule(by_ms=st.sampled_from([500, 5_000, 12_000, 46_000, 61_000]))
    def time_passes(self, by_ms):
        self.world.advance(by_ms)

    @rule()
    def fail_over(self):
        if isinstance(self.group, ClassicGroup):
            # Generations without a replicated assignment are lost, and their numbers are used
            # again.
            self.number_of_group = 0
        self.world.fail_over()
        for member in self.classic:
            member.disconnect()

    @precondition(lambda self: self.classic or self.consumers)
    @rule(data=st.data(), partition=st.integers(0, 3), offset=st.integers(0, 99))
    def commit(self, data, partition, offset):
        member = data.draw(st.sampled_from([*self.classic, *self.consumers]))
        epoch = member.generation if isinstance(member, Classic) else member.epoch
        if not member.member_id or epoch < 0:
            return
        row = ("orders", partition, offset)
        body = commit_body(row, member_id=member.member_id, generation_id=epoch)
        answer = self.world.call(body)
        if isinstance(answer, OffsetsCommitted):
            assert self.is_member(member.member_id)
            self.offsets["orders", partition] = offset
        elif isinstance(self.group, ConsumerGroup):
            found = self.group.members.get(member.member_id)
            assert found is None or found.member_epoch != epoch

    def _outlast_sessions(self):
        """Advance by more than any session time-out, so that dead members are removed."""
        for _ in range(75):
            for one in self.classic:
                one.act()
            for member in list(self.consumers):
                self.go_on(member)
            self.world.advance(1_000)
        self.classic = [m for m in self.classic if not m.is_dead]

    def _owned(self):
        owned = [row for m in self.consumers for row in m.owned]
        return owned + [row for m in self.classic for row in m.owned_ids]

    @rule()
    def come_to_rest(self):
        if not self.classic and not self.consumers:
            return
        self.classic = [m for m in self.classic if not m.is_dead]
        for member in [*self.classic, *self.consumers]:
            member.is_slow = False
            member.own()
        self._outlast_sessions()
        if len(self._owned()) < self.world.counts["orders"]:
            # A static leader that returns after a topic grew gets the old assignment, and believes
            # that it covers the topics as they are now. Kafka's client does the same (KIP-814); the
            # next rebalance assigns the rest.
            for member in self.classic:
                member.needs_join = member.needs_join or member.is_leader
            self._outlast_sessions()
        group = self.group
        owned = self._owned()
        if not self.classic and not self.consumers:
            return
        errors = [(m.name, m.errors[-3:]) for m in self.classic]
        assert len(owned) == len(set(owned)) == self.world.counts["orders"], (
            group.summary(), owned, errors,
        )  # fmt: skip
        if isinstance(group, ConsumerGroup):
            assert group.state == ConsumerGroupState.STABLE, group.summary()
            assert group.members.keys() == {m.member_id for m in [*self.classic, *self.consumers]}
            policy = self.world.config.group_consumer_migration_policy
            assert self.consumers or policy == MigrationPolicy.UPGRADE
        else:
            assert self.world.state == "Stable"
            assert not self.consumers

    # --- what must be true -------------------------------------------------------------------

    @invariant()
    def nobody_reads_what_another_reads(self):
        readers: dict = {}
        rows = [(m.member_id, m.owned_ids) for m in self.classic]
        rows += [(m.member_id, m.owned) for m in self.consumers]
        for member_id, owned in rows:
            if not self.is_member(member_id):
                continue
            for row in owned:
                assert readers.setdefault(row, member_id) == member_id, row
                if isinstance(self.group, ConsumerGroup):
                    holder = self.group.holders.get(row)
                    assert holder in (None, member_id), (row, holder, member_id)

    @invariant()
    def epochs_never_go_back(self):
        for member in self.classic:
            if member.generation >= 0 and self.is_member(member.member_id):
                assert member.generation >= self.told.get(member.member_id, 0)
                self.told[member.member_id] = member.generation
        for member in self.consumers:
            if self.is_member(member.member_id):
                assert member.epoch >= self.told.get(member.member_id, 0)
                self.told[member.member_id] = member.epoch
        group = self.group
        if group is None or not group.members:
            # An empty group of the consumer protocol may end, and its epochs start again.
            self.number_of_group = 0
            self.told.clear()
            return
        is_consumer = isinstance(group, ConsumerGroup)
        number = group.group_epoch if is_consumer else group.generation_id
        assert number >= self.number_of_group
        self.number_of_group = number
        if is_consumer:
            assert group.assignment_epoch <= group.group_epoch
            assert all(m.member_epoch <= group.assignment_epoch for m in group.members.values())

    @invariant()
    def the_log_says_what_the_shard_knows(self):
        group, living = self.group, known(self.world.shard)
        for log in (self.world.log, compacted(self.world.log)):
            loaded = self.world.loaded(log)
            found = loaded.groups.get(GROUP)
            assert isinstance(found, ConsumerGroup) == isinstance(group, ConsumerGroup)
            if not isinstance(group, ClassicGroup) or self.world.state == "Stable":
                # During a rebalance the log holds the previous generation.
                assert known(loaded) == living

    @invariant()
    def offsets_stay(self):
        assert committed(self.world) == self.offsets

    @invariant()
    def timers_belong_to_members(self):
        group = self.group
        names = set(self.world.timers) - {ExpiryTimer()}
        if not isinstance(group, ConsumerGroup):
            kinds = (SessionTimer, JoinTimer, SyncTimer, PendingMemberTimer)
            assert all(isinstance(name, kinds) for name in names)
            return
        wanted = {ConsumerSessionTimer(GROUP, member_id) for member_id in group.members}
        wanted |= {ClassicRejoinTimer(GROUP, member_id) for member_id in group.awaited_joins}
        wanted |= {ClassicSyncTimer(GROUP, member_id) for member_id in group.awaited_syncs}
        wanted |= {
            ConsumerRebalanceTimer(GROUP, name)
            for name, member in group.members.items()
            if member.classic is None and member.state == MemberState.UNREVOKED_PARTITIONS
        }
        assert names == wanted
        classic = {name for name, m in group.members.items() if m.classic is not None}
        assert group.awaited_joins | group.awaited_syncs <= classic

    def teardown(self):
        if hasattr(self, "world"):
            self.come_to_rest()


def known(shard):
    """All that is stored of the group, of whichever kind it is."""
    group = shard.groups.get(GROUP)
    if isinstance(group, ConsumerGroup):
        return consumer_world.known(shard)
    if isinstance(group, ClassicGroup):
        return (
            group.generation_id,
            group.protocol_name,
            [(m.member_id, m.group_instance_id, m.assignment) for m in group.members.values()],
        )
    return None


TestMixedGroupLife = MixedGroupLife.TestCase
TestMixedGroupLife.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
