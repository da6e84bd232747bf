"""Random lives of a classic group, with fail-overs, checked against rules that hold in each:

- a generation has one assignment: each member is told its own part of it, so no partition is owned
twice. This also holds when the number is used again after a fail-over;
- offsets are what a dictionary would hold, minus what was not replicated at a fail-over;
- every request is answered once, or is parked in a member and a timer will end it;
- timers belong to members, ids and phases that are there;
- a shard that reads the log, compacted or not, has the offsets that the living one has.
"""

from __future__ import annotations

import copy
import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvorum.broker.coordinator.model import ReplayedRecord, TopicsChanged
from kvorum.broker.groups.classic.states import ClassicGroupState
from kvorum.broker.groups.shard import GroupShard
from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.broker.groups.steps.records import group_key
from kvorum.broker.groups.steps.requests import (
    DeleteGroup,
    DeleteOffsets,
    Joined,
    OffsetsCommitted,
    OffsetsDeleted,
    Synced,
    TopicPartitions,
)
from kvorum.broker.groups.steps.timers import (
    ExpiryTimer,
    JoinTimer,
    PendingMemberTimer,
    SessionTimer,
    SyncTimer,
)
from kvorum.runtime.errors import ErrorCode
from tests.test_groups.world import (
    GROUP,
    World,
    commit_body,
    committed,
    compacted,
    transaction_commit_body,
)

NAMES = st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range")])
TOPICS = st.sampled_from([("orders",), ("orders", "payments")])
INSTANCES = st.sampled_from(["a", "b"])
KEYS = st.sampled_from([("orders", 0), ("orders", 1), ("payments", 0)])
PRODUCERS = st.sampled_from([7, 8])
CONFIG = GroupConfig(group_max_size=4)
NO_GENERATION = (0, 0)
"""(lives of the group before, generation)."""


class Offsets:
    """The offsets that the log must hold: a dictionary, and one for each open transaction."""

    def __init__(self) -> None:
        self.committed: dict[tuple[str, int], tuple[int, int]] = {}
        self.pending: dict[int, dict[tuple[str, int], tuple[int, int]]] = {}

    def forget(self, keys) -> None:
        for key in keys:
            self.committed.pop(key, None)
            for rows in self.pending.values():
                rows.pop(key, None)

    def end(self, producer_id: int, is_commit: bool) -> None:
        for key, (order, offset) in self.pending.pop(producer_id, {}).items():
            if is_commit and self.committed.get(key, (-1, 0))[0] < order:
                self.committed[key] = (order, offset)

    def values(self) -> dict[tuple[str, int], int]:
        return {key: offset for key, (_, offset) in self.committed.items()}


class GroupLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(CONFIG)
        self.order = itertools.count()
        self.known: dict[str, Joined] = {}
        self.instance_of: dict[str, str] = {}
        self.asked: dict[int, tuple[str, str, tuple[int, int]]] = {}
        self.told: dict[tuple[int, int], set[bytes]] = {}
        self.offsets = Offsets()
        self.history: list[tuple[int, Offsets]] = [(0, Offsets())]

    # --- answers -----------------------------------------------------------------------------

    def hear(self) -> None:
        """Process the answers that have come."""
        for token in [token for token in self.asked if token in self.world.answers]:
            kind, who, generation = self.asked.pop(token)
            answer = self.world.answers[token]
            if isinstance(answer, Joined) and answer.member_id:
                if answer.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                    self.known[answer.member_id] = answer
                    if kind == "static":
                        self.instance_of[answer.member_id] = who
            elif isinstance(answer, Synced) and answer.error == ErrorCode.NONE:
                self.told.setdefault(generation, set()).add(answer.assignment)

    def note(self) -> None:
        self.history.append((len(self.world.log), copy.deepcopy(self.offsets)))

    def outcome(self, token: int):
        """The answer that the shard decided, even if it waits for replication."""
        if token in self.world.answers:
            return self.world.answers[token]
        return next(a.response for _, a in self.world.parked if a.token == token)

    def lives(self) -> int:
        """The number of times that the group was deleted: generations restart after that."""
        tombstone = (group_key(GROUP), None)
        return sum(
            (item.key, item.value) == tombstone
            for item in self.world.log
            if isinstance(item, ReplayedRecord)
        )

    def pick(self, data) -> str:
        return data.draw(st.sampled_from(sorted(self.known)))

    # --- membership --------------------------------------------------------------------------

    @rule(names=NAMES, topics=TOPICS, version=st.sampled_from([3, 9]))
    def join_new(self, names, topics, version):
        token = self.world.join(names=names, topics=topics, version=version)
        self.asked[token] = ("dynamic", "", NO_GENERATION)
        self.hear()

    @rule(instance=INSTANCES, topics=TOPICS, version=st.sampled_from([8, 9]))
    def join_static(self, instance, topics, version):
        token = self.world.join(instance=instance, topics=topics, version=version)
        self.asked[token] = ("static", instance, NO_GENERATION)
        self.hear()

    @precondition(lambda self: self.known)
    @rule(data=st.data(), names=NAMES, topics=TOPICS)
    def join_again(self, data, names, topics):
        member_id = self.pick(data)
        instance = self.instance_of.get(member_id)
        token = self.world.join(member_id, names=names, topics=topics, instance=instance)
        kind = "dynamic" if instance is None else "static"
        self.asked[token] = (kind, instance or "", NO_GENERATION)
        self.hear()

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def sync(self, data):
        member_id = self.pick(data)
        answer = self.known[member_id]
        mark = next(self.order)
        given = {
            row.member_id: b"%d/%d/%d" % (answer.generation_id, mark, i)
            for i, row in enumerate(answer.members)
        }
        token = self.world.sync(
            member_id, answer.generation_id, given, instance=self.instance_of.get(member_id)
        )
        self.asked[token] = ("sync", member_id, (self.lives(), answer.generation_id))
        self.hear()

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def heartbeat(self, data):
        member_id = self.pick(data)
        self.world.heartbeat(
            member_id, self.known[member_id].generation_id, self.instance_of.get(member_id)
        )

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def leave(self, data):
        member_id = self.pick(data)
        before = self.world.is_replicating
        self.world.is_replicating = True
        self.world.leave((member_id, self.instance_of.get(member_id)))
        self.world.is_replicating = before
        self.hear()

    # --- offsets -----------------------------------------------------------------------------

    @rule(key=KEYS, data=st.data())
    def commit(self, key, data):
        member_id, generation_id = "", -1
        if self.known and data.draw(st.booleans()):
            member_id = self.pick(data)
            generation_id = self.known[member_id].generation_id
        order = next(self.order)
        token = self.world.ask(
            commit_body((*key, order), member_id=member_id, generation_id=generation_id)
        )
        if isinstance(self.outcome(token), OffsetsCommitted):
            self.offsets.committed[key] = (order, order)
            self.note()

    @rule(key=KEYS, producer_id=PRODUCERS)
    def commit_in_transaction(self, key, producer_id):
        order = next(self.order)
        token = self.world.ask(transaction_commit_body((*key, order), producer_id=producer_id))
        if isinstance(self.outcome(token), OffsetsCommitted):
            self.offsets.pending.setdefault(producer_id, {})[key] = (order, order)
            self.note()

    @rule(producer_id=PRODUCERS, is_commit=st.booleans())
    def end_transaction(self, producer_id, is_commit):
        self.world.marker(producer_id, is_commit=is_commit)
        self.offsets.end(producer_id, is_commit)
        self.note()

    @rule(key=KEYS)
    def delete_offset(self, key):
        body = DeleteOffsets(group_id=GROUP, topics=(TopicPartitions(key[0], (key[1],)),))
        answer = self.outcome(self.world.ask(body))
        if isinstance(answer, OffsetsDeleted) and answer.topics[0].error == ErrorCode.NONE:
            self.offsets.forget([key])
            self.note()

    @rule()
    def delete_group(self):
        if self.outcome(self.world.ask(DeleteGroup(group_id=GROUP))) == ErrorCode.NONE:
            self.offsets = Offsets()
            self.note()

    @rule()
    def delete_topic(self):
        gone = frozenset({"payments"})
        self.world.give(TopicsChanged(image=None, changed=gone, deleted=gone))
        self.offsets.forget([("payments", 0)])
        self.note()

    # --- the world ---------------------------------------------------------------------------

    @rule(by_ms=st.sampled_from([100, 3_000, 9_000, 61_000]))
    def time_passes(self, by_ms):
        self.world.advance(by_ms)
        self.hear()

    @rule(is_replicating=st.booleans())
    def replicate(self, is_replicating):
        self.world.is_replicating = is_replicating
        if is_replicating:
            self.world.replicate()
        self.hear()

    @rule()
    def fail_over(self):
        kept = self.world.replicated
        self.world.fail_over()
        self.asked.clear()
        self.history = [row for row in self.history if row[0] <= kept] or [(0, Offsets())]
        self.offsets = copy.deepcopy(self.history[-1][1])
        self.note()

    # --- what must be true -------------------------------------------------------------------

    @invariant()
    def a_generation_has_one_assignment(self):
        for generation, parts in self.told.items():
            marks = {part.rsplit(b"/", 1)[0] for part in parts if part}
            assert len(marks) <= 1, f"generation {generation} was told of {marks}"

    @invariant()
    def offsets_are_those_of_a_dictionary(self):
        if self.world.is_replicating:
            assert committed(self.world) == self.offsets.values()

    @invariant()
    def a_parked_request_will_be_ended_by_a_timer(self):
        group = self.world.shard.groups.get(GROUP)
        parked = {}
        for member in group.members.values() if group is not None else ():
            if member.join_token is not None:
                parked[member.join_token] = JoinTimer(GROUP)
                assert group.state == ClassicGroupState.PREPARING_REBALANCE
            if member.sync_token is not None:
                parked[member.sync_token] = SyncTimer(GROUP)
                assert group.state == ClassicGroupState.COMPLETING_REBALANCE
        assert set(parked) == self.world.waiting
        assert set(parked.values()) <= set(self.world.timers)

    @invariant()
    def timers_belong_to_what_is_there(self):
        group = self.world.shard.groups.get(GROUP)
        for name in self.world.timers:
            match name:
                case SessionTimer():
                    assert name.member_id in group.members
                case PendingMemberTimer():
                    assert name.member_id in group.pending_members
                case JoinTimer():
                    assert group.state == ClassicGroupState.PREPARING_REBALANCE
                case SyncTimer():
                    assert group.state in (
                        ClassicGroupState.COMPLETING_REBALANCE,
                        ClassicGroupState.STABLE,
                    )
                    assert group.pending_sync
                case _:
                    assert name == ExpiryTimer()
        if group is not None:
            for member in group.members.values():
                name = SessionTimer(GROUP, member.member_id)
                assert name in self.world.timers or (member.is_waiting and not member.is_new)
            for member_id in group.pending_members:
                assert PendingMemberTimer(GROUP, member_id) in self.world.timers
            if group.state in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE):
                # Only static members count beyond the limit: they keep their place while they are
                # away.
                dynamic = [m for m in group.members.values() if not m.is_static]
                assert len(dynamic) <= CONFIG.group_max_size
            assert group.leader_id is None or group.leader_id in group.members
            assert sorted(group.static_members.values()) == sorted(
                m.member_id for m in group.members.values() if m.is_static
            )

    @invariant()
    def the_log_says_what_the_shard_knows(self):
        living = offsets_of(self.world.shard)
        assert offsets_of(self.world.loaded()) == living
        assert offsets_of(self.world.loaded(compacted(self.world.log))) == living

    def teardown(self):
        """No member returns: every request and every membership ends."""
        self.world.is_replicating = True
        self.world.replicate()
        self.world.advance(1_000_000)
        assert not self.world.waiting
        for group in self.world.shard.groups.values():
            assert (group.state, group.members, group.pending_members) == (
                ClassicGroupState.EMPTY,
                {},
                {},
            )


def offsets_of(shard: GroupShard):
    """The offsets of all groups, without their places in the log, which may differ."""
    return {
        group_id: (
            {(t, p): stored.value for t, rows in b.committed.items() for p, stored in rows.items()},
            {
                producer_id: {key: stored.value for key, stored in rows.items()}
                for producer_id, rows in b.pending.items()
            },
        )
        for group_id, b in shard.offsets.books.items()
    }


TestGroupLife = GroupLife.TestCase
TestGroupLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
