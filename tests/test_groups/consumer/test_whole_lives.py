"""Random lives of a group of the consumer protocol, checked against rules that hold in each:

- no two members of the group read a partition at once. A member of the model stops reading when it
is told to, or later if it is slow;
- group, assignment and member epochs never go back; a member's is never above the target's;
- the target of the group's epoch gives every partition of the subscribed topics to one subscriber;
- a shard that reads the log, compacted or not, knows what the living one knows;
- when everybody sends heartbeats, the group comes to rest and everything is read.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.consumer.requests import ConsumerHeartbeated
from kvorum.broker.groups.consumer.states import ConsumerGroupState
from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.broker.groups.steps.timers import (
    ConsumerRebalanceTimer,
    ConsumerSessionTimer,
    ExpiryTimer,
)
from tests.test_groups.consumer.world import (
    JOIN,
    ConsumerWorld,
    Member,
    image_of,
    known,
    settle,
    topic_id,
)
from tests.test_groups.world import GROUP, compacted

CONFIG = GroupConfig(group_consumer_max_size=4)
TOPICS = st.sampled_from([("orders",), ("orders", "payments"), ("payments",), ()])
EXPRESSIONS = st.sampled_from(["", "ord.*", ".*"])
NAMES = ("orders", "payments")


class ConsumerGroupLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = ConsumerWorld(CONFIG)
        self.members: dict[str, Member] = {}
        self.away: dict[str, Member] = {}
        self.epochs: dict[str, int] = {}
        self.group_epochs = (0, 0)
        self.number = 0

    @property
    def group(self) -> ConsumerGroup | None:
        found = self.world.shard.groups.get(GROUP)
        return found if isinstance(found, ConsumerGroup) else None

    def pick(self, data) -> Member:
        return self.members[data.draw(st.sampled_from(sorted(self.members)))]

    def drop_lost(self) -> None:
        """Remove clients that are no longer members."""
        group = self.group
        known = group.members if group is not None else {}
        for name in [name for name in self.members if name not in known]:
            # Such a client has stopped reading, because its session is over by its own clock too.
            del self.members[name]
        for name in [name for name in self.epochs if name not in known]:
            del self.epochs[name]

    # --- members -----------------------------------------------------------------------------

    @rule(topics=TOPICS, expression=EXPRESSIONS, assignor=st.sampled_from([None, "range"]))
    def join(self, topics, expression, assignor):
        self.number += 1
        name = f"m{self.number}"
        member = Member(
            self.world, name, topics, subscribed_topic_regex=expression, server_assignor=assignor
        )
        if isinstance(member.join(), ConsumerHeartbeated):
            self.members[name] = member

    @rule(instance=st.sampled_from(["one", "two"]))
    def join_static(self, instance):
        self.number += 1
        name = f"s{self.number}"
        member = Member(self.world, name, instance_id=instance)
        if isinstance(member.join(), ConsumerHeartbeated):
            self.members[name] = member

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def join_answer_is_lost(self, data):
        """An old join request of the member arrives again."""
        member = self.pick(data)
        said = {**JOIN, **member.said}
        self.world.beat(member.member_id, 0, instance_id=member.instance_id, **said)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def beat(self, data):
        self.pick(data).beat()

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def answer_is_lost(self, data):
        """A member sends a heartbeat, gets no answer, and sends the same heartbeat again."""
        member = self.pick(data)
        before = (member.epoch, member.told, member.owned)
        was_slow, member.is_slow = member.is_slow, True
        member.beat()
        member.epoch, member.told, member.owned = before
        member.has_lost_answer = True
        member.is_slow = was_slow

    @precondition(lambda self: self.members)
    @rule(data=st.data(), is_slow=st.booleans())
    def become_slow(self, data, is_slow):
        """The member's application becomes slow to revoke and take up partitions."""
        member = self.pick(data)
        member.is_slow = is_slow
        if not is_slow:
            member.own()

    @precondition(lambda self: self.members)
    @rule(data=st.data(), topics=TOPICS, expression=EXPRESSIONS)
    def subscribe(self, data, topics, expression):
        member = self.pick(data)
        member.said |= {"subscribed_topic_names": topics, "subscribed_topic_regex": expression}
        member.beat(subscribed_topic_names=topics, subscribed_topic_regex=expression)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data):
        member = self.pick(data)
        member.leave()
        del self.members[member.member_id]

    @precondition(lambda self: any(m.instance_id for m in self.members.values()))
    @rule(data=st.data())
    def go_away(self, data):
        """A static member leaves for a while (epoch -2)."""
        static = sorted(name for name, m in self.members.items() if m.instance_id)
        self.members.pop(data.draw(st.sampled_from(static))).leave(-2)

    # --- the world ---------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), more=st.integers(1, 3))
    def grow(self, name, more):
        self.world.set_topic(name, min(self.world.counts.get(name, 0) + more, 8))

    @rule(name=st.sampled_from(NAMES))
    def delete_topic(self, name):
        if name in self.world.counts:
            self.world.delete_topic(name)

    @rule(by_ms=st.sampled_from([1_000, 30_000, 46_000]))
    def time_passes(self, by_ms):
        self.world.advance(by_ms)
        self.drop_lost()

    @rule()
    def fail_over(self):
        self.world.fail_over()

    @rule()
    def come_to_rest(self):
        """Everybody sends heartbeats, and is quick."""
        group = self.group
        if group is None:
            return
        # Those that went away are not waited for.
        for name in [name for name in group.members if name not in self.members]:
            held = group.members[name]
            self.world.beat(name, -1, instance_id=held.instance_id)
        for member in self.members.values():
            member.is_slow = False
            member.own()
        settle(list(self.members.values()), rounds=2 * len(self.members) + 2)
        if not self.members:
            return
        assert group.state == ConsumerGroupState.STABLE, group.summary()
        for member in self.members.values():
            assert member.owned == group.target(member.member_id)

    # --- what must be true -------------------------------------------------------------------

    @invariant()
    def nobody_reads_what_another_reads(self):
        group = self.group
        readers: dict = {}
        for member in self.members.values():
            if group is None or member.member_id not in group.members:
                continue
            for row in member.owned:
                assert readers.setdefault(row, member) is member, row
                holder = group.holders.get(row)
                # The coordinator may already have freed a partition that the member still reads,
                # but it has never given it to another member.
                assert holder in (None, member.member_id), (row, holder, member.member_id)

    @invariant()
    def epochs_never_go_back(self):
        group = self.group
        if group is None:
            self.group_epochs = (0, 0)
            return
        now = (group.group_epoch, group.assignment_epoch)
        assert now[0] >= self.group_epochs[0]
        assert now[1] >= self.group_epochs[1]
        assert now[1] <= now[0]
        self.group_epochs = now
        for name, member in group.members.items():
            assert member.member_epoch <= group.assignment_epoch
            if member.member_epoch >= 0:
                assert member.member_epoch >= self.epochs.get(name, 0)
                self.epochs[name] = member.member_epoch
        self.epochs = {name: e for name, e in self.epochs.items() if name in group.members}

    @invariant()
    def the_target_gives_everything_once(self):
        group = self.group
        if group is None or group.state in (ConsumerGroupState.EMPTY, ConsumerGroupState.ASSIGNING):
            return
        if group.is_metadata_stale:
            return  # topics may have changed since
        image = image_of(self.world.counts, self.world.lives)
        names = {name for name in group.subscribed_topics() if image.topic(name) is not None}
        wanted = {
            (topic_id(name, self.world.lives.get(name, 0)), p)
            for name in names
            for p in range(self.world.counts[name])
        }
        rows = [row for name in group.members for row in group.target(name)]
        assert len(rows) == len(set(rows))
        assert set(rows) == wanted
        for name, member in group.members.items():
            ids = {image.topic(t).topic_id for t in group.topics_of(member) & names}
            assert {topic for topic, _ in group.target(name)} <= ids

    @invariant()
    def timers_belong_to_members(self):
        group = self.group
        members = group.members if group is not None else {}
        for name in self.world.timers:
            if isinstance(name, (ConsumerSessionTimer, ConsumerRebalanceTimer)):
                assert name.member_id in members
            else:
                assert name == ExpiryTimer()
        for name, member in members.items():
            assert ConsumerSessionTimer(GROUP, name) in self.world.timers
            is_revoking = ConsumerRebalanceTimer(GROUP, name) in self.world.timers
            assert is_revoking == (member.state.name == "UNREVOKED_PARTITIONS")

    @invariant()
    def the_log_says_what_the_shard_knows(self):
        living = known(self.world.shard)
        assert known(self.world.loaded()) == living
        assert known(self.world.loaded(compacted(self.world.log))) == living

    @invariant()
    def static_ids_and_holders_follow_from_the_members(self):
        group = self.group
        if group is None:
            return
        assert group.static_members == {
            m.instance_id: name for name, m in group.members.items() if m.instance_id is not None
        }
        assert group.holders == {row: n for n, m in group.members.items() for row in m.held}
        used = {m.subscribed_topic_regex for m in group.members.values()} - {None}
        assert set(group.expressions) == used

    def teardown(self):
        self.come_to_rest()
        self.world.advance(100_000)
        assert self.group is None or self.group.state == ConsumerGroupState.EMPTY


TestConsumerGroupLife = ConsumerGroupLife.TestCase
TestConsumerGroupLife.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
