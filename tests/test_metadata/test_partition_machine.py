"""Everything that may happen to partitions, in any order, against a slow obvious model of logs.

The model keeps, for each replica, the records it holds, and what was committed: a record counts
as committed once every member of an ISR of at least min.insync.replicas has it. The leader must
hold all committed records, unless an unclean election was allowed or ordered.
"""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvorum.metadata.controller.decide.eligible_brokers import min_isr_of
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.metadata.image.records import NO_LEADER, RECOVERING, Config
from kvorum.metadata.image.snapshot_job import records_of
from kvorum.metadata.requests.controller_requests import (
    AlterPartition,
    CreatePartitions,
    ElectionType,
    ElectLeaders,
    NewPartitions,
)
from kvorum.runtime.errors import ErrorCode
from tests.test_metadata.worlds import World

BROKERS = (101, 102, 103, 104, 105)
TOPICS = ("a", "b")
PARTITIONS_MAX = 3

brokers = st.sampled_from(BROKERS)
replica_lists = st.lists(brokers, min_size=1, max_size=4, unique=True)
picks = st.integers(min_value=0, max_value=1_000)


def _agreed(one, other):
    """The number of records at their beginning that two logs have in common."""
    differ = (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differ, min(len(one), len(other)))


class PartitionMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.world = World(brokers=BROKERS)
        self.logs = {}  # (topic id, partition id) -> broker -> records held
        self.committed = {}  # (topic id, partition id) -> records
        self.wanted = {}  # (topic id, partition id) -> (target, set of original replicas)
        self.unclean = set()  # partitions that may have lost records by an operator's order
        self.delayed = []
        self.seen = {}
        self.records = itertools.count()

    # State.

    def keys(self):
        return [
            (topic.name, topic.topic_id, partition_id)
            for topic in sorted(self.world.image.topics.values(), key=lambda t: t.name)
            for partition_id in sorted(topic.partitions)
        ]

    def pick(self, number):
        keys = self.keys()
        name, topic_id, partition_id = keys[number % len(keys)]
        partition = self.world.partition(name, partition_id)
        return name, partition_id, (topic_id, partition_id), partition

    def is_active(self, broker_id):
        return self.world.image.brokers[broker_id].is_active

    def log(self, key, broker_id):
        return self.logs.setdefault(key, {}).setdefault(broker_id, [])

    def min_isr(self, name, partition):
        return min(min_isr_of(self.world.image, name), len(partition.replicas))

    def may_lose(self, name, key):
        configs = self.world.image.topic_configs(name)
        return key in self.unclean or configs["unclean.leader.election.enable"] == "true"

    # Topics.

    @initialize(minimum=st.integers(1, 3), size=st.integers(2, 4))
    def begin(self, minimum, size):
        self.create("a", [list(BROKERS[:size])], minimum, "false")

    @rule(
        name=st.sampled_from(TOPICS),
        replicas=st.lists(replica_lists, min_size=1, max_size=2),
        minimum=st.integers(1, 3),
        unclean=st.sampled_from(["false", "false", "true"]),
    )
    def make(self, name, replicas, minimum, unclean):
        self.create(name, replicas, minimum, unclean)

    def create(self, name, replicas, minimum, unclean):
        size = len(replicas[0])
        self.world.create(
            name,
            partitions=-1,
            factor=-1,
            assignments=tuple(tuple(r) for r in replicas if len(r) == size),
            configs=(
                ("min.insync.replicas", str(minimum)),
                ("unclean.leader.election.enable", unclean),
            ),
        )

    @precondition(lambda self: self.keys())
    @rule(name=st.sampled_from(TOPICS), luck=st.integers(0, 3))
    def delete(self, name, luck):
        if luck == 0:
            self.world.delete(name)

    @rule(name=st.sampled_from(TOPICS), count=st.integers(1, PARTITIONS_MAX))
    def add_partitions(self, name, count):
        topic = self.world.image.topic(name)
        before = None if topic is None else dict(topic.partitions)
        wanted = (NewPartitions(name=name, count=count),)
        (grown,) = self.world.ask(CreatePartitions(topics=wanted))
        if before is None:
            assert grown.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        after = self.world.image.topic(name).partitions
        assert {i: after[i] for i in before} == before
        assert len(after) == (count if grown.error is ErrorCode.NONE else len(before))

    @precondition(lambda self: self.keys())
    @rule(name=st.sampled_from(TOPICS), minimum=st.integers(1, 3))
    def change_minimum(self, name, minimum):
        if self.world.image.topic(name) is not None:
            self.world.commit_decided(Config(2, name, "min.insync.replicas", str(minimum)))

    # Brokers.

    @rule(broker_id=brokers)
    def fence(self, broker_id):
        self.world.fence(broker_id)

    @rule(broker_id=brokers)
    def shut_down(self, broker_id):
        self.world.heartbeat(broker_id, want_shutdown=True)

    @rule(broker_id=brokers)
    def unfence(self, broker_id):
        if not self.world.image.brokers[broker_id].in_controlled_shutdown:
            self.world.heartbeat(broker_id)

    @rule(broker_id=brokers, is_clean=st.booleans())
    def restart(self, broker_id, is_clean):
        self.world.fence(broker_id)
        if not is_clean:
            self.lose(broker_id)
        self.world.restart(broker_id, is_clean=is_clean)

    def lose(self, broker_id):
        """A replica loses its records that were not on disk. Only one replica does so at a time, so
        another one holds them."""
        for name, topic_id, partition_id in self.keys():
            partition = self.world.partition(name, partition_id)
            others = {*partition.isr, *partition.elr} - {broker_id}
            if others:
                self.log((topic_id, partition_id), broker_id).clear()

    # Data.

    @precondition(lambda self: self.keys())
    @rule(number=picks)
    def produce(self, number):
        _, _, key, partition = self.pick(number)
        if partition.has_leader:
            self.log(key, partition.leader).append(next(self.records))

    @precondition(lambda self: self.keys())
    @rule(number=picks)
    def write(self, number):
        """Write a record that all members of the ISR get. It is committed if they are at least
        min.insync.replicas."""
        name, partition_id, key, partition = self.pick(number)
        if partition.has_leader:
            self.log(key, partition.leader).append(next(self.records))
            for member in partition.isr:
                self.copy(name, partition_id, key, partition, member)

    @precondition(lambda self: self.keys())
    @rule(number=picks, broker_id=brokers)
    def replicate(self, number, broker_id):
        self.copy(*self.pick(number), broker_id)

    @precondition(lambda self: self.keys())
    @rule(number=picks)
    def replicate_to_all(self, number):
        picked = self.pick(number)
        for broker_id in picked[3].replicas:
            self.copy(*picked, broker_id)

    def copy(self, name, partition_id, key, partition, broker_id):
        leader = partition.leader
        if leader != NO_LEADER and broker_id in partition.replicas and broker_id != leader:
            self.logs[key][broker_id] = list(self.log(key, leader))
        self.commit(name, key, partition)

    def commit(self, name, key, partition):
        if not partition.has_leader or len(partition.isr) < self.min_isr(name, partition):
            return
        # Of a member, only the records that its log shares with the leader's count: it truncates
        # the others before it fetches.
        held = self.log(key, partition.leader)
        end = min(_agreed(held, self.log(key, member)) for member in partition.isr)
        if end > len(self.committed.get(key, ())):
            self.committed[key] = held[:end]

    # Proposals.

    def holders(self, key, partition):
        """The replicas whose logs reach the leader's end offset."""
        leader_log = self.log(key, partition.leader)
        return {r for r in partition.replicas if self.log(key, r) == leader_log}

    @precondition(lambda self: self.keys())
    @rule(number=picks, members=st.sets(brokers), is_late=st.booleans())
    def propose(self, number, members, is_late):
        name, partition_id, key, partition = self.pick(number)
        if not partition.has_leader:
            return
        joining = members & self.holders(key, partition)
        isr = {partition.leader, *joining, *(members & set(partition.isr))}
        proposal = self.world.proposal(sorted(isr), name, partition_id)
        sender = (partition.leader, self.world.epochs[partition.leader])
        self.delayed.append((sender, proposal))  # the network may repeat what it has delivered
        if not is_late:
            self.deliver(sender, proposal)

    @precondition(lambda self: self.delayed)
    @rule(number=picks)
    def deliver_late(self, number):
        sender, proposal = self.delayed[-1 - number % min(len(self.delayed), 4)]
        partition = self.world.image.partition(proposal.topic_id, proposal.partition_id)
        is_current = partition is not None and (
            (proposal.leader_epoch, proposal.partition_epoch)
            == (partition.leader_epoch, partition.partition_epoch)
        )
        if is_current:
            # A proposal that is still current but would add a broker without all records cannot be
            # in the network: the leader counts a joining broker for the high watermark until the
            # proposal is answered.
            key = (proposal.topic_id, proposal.partition_id)
            members = {member for member, _ in proposal.new_isr}
            if members - set(partition.isr) - self.holders(key, partition):
                return
        before = self.world.image.topics
        answer = self.deliver(sender, proposal)
        if not is_current:
            assert self.world.image.topics == before
            if self.world.image.brokers[sender[0]].broker_epoch == sender[1]:
                assert answer.error is not ErrorCode.NONE
            else:
                assert answer is None

    def deliver(self, sender, proposal):
        broker_id, epoch = sender
        request = AlterPartition(broker_id=broker_id, broker_epoch=epoch, proposals=(proposal,))
        reply = self.world.ask(request)
        return reply[0] if isinstance(reply, tuple) else None

    # Elections and reassignments.

    @precondition(lambda self: self.keys())
    @rule(number=picks, election=st.sampled_from(ElectionType))
    def elect(self, number, election):
        name, partition_id, key, _ = self.pick(number)
        if election is ElectionType.UNCLEAN:
            self.unclean.add(key)
        self.world.ask(ElectLeaders(partitions=((name, partition_id),), election=election))

    @rule()
    def sweep(self):
        assert self.world.controller.sweep_leaders(None).reply is None
        self.world.controller.note_committed(self.world.controller.speculative)

    @precondition(lambda self: self.keys())
    @rule(number=picks, replicas=replica_lists)
    def reassign(self, number, replicas):
        name, partition_id, key, before = self.pick(number)
        origin = set(before.replicas) - set(before.adding_replicas)
        if self.world.reassign(replicas, name, partition_id).error is not ErrorCode.NONE:
            assert self.world.partition(name, partition_id) == before
            return
        after = self.world.partition(name, partition_id)
        self.wanted.pop(key, None)
        if after.is_reassigning:
            self.wanted[key] = (tuple(replicas), origin)
        else:
            assert after.replicas == tuple(replicas)

    @precondition(lambda self: self.keys())
    @rule(number=picks)
    def cancel(self, number):
        name, partition_id, key, before = self.pick(number)
        answer = self.world.reassign(None, name, partition_id)
        after = self.world.partition(name, partition_id)
        if answer.error is ErrorCode.NONE:
            assert set(after.replicas) == self.wanted.pop(key)[1]
            assert not after.is_reassigning
        else:
            assert after == before

    @precondition(lambda self: self.keys())
    @rule(number=picks)
    def finish(self, number):
        """With every broker back and everything copied, a reassignment must end at its target."""
        name, partition_id, key, _ = self.pick(number)
        for broker_id in BROKERS:
            if not self.is_active(broker_id):
                self.world.fence(broker_id)
                self.world.restart(broker_id, is_clean=True)
        partition = self.world.partition(name, partition_id)
        assert partition.has_leader
        for broker_id in partition.replicas:
            self.copy(name, partition_id, key, self.world.partition(name, partition_id), broker_id)
        self.world.propose(partition.replicas, name, partition_id)
        after = self.world.partition(name, partition_id)
        assert not after.is_reassigning
        if key in self.wanted:
            assert after.replicas == self.wanted.pop(key)[0]

    # Invariants.

    @invariant()
    def every_partition_is_sound(self):
        for name, topic_id, partition_id in self.keys():
            partition = self.world.partition(name, partition_id)
            self.check_sets(name, partition)
            self.check_leader(partition)
            self.check_data(name, (topic_id, partition_id), partition)
            key = (topic_id, partition_id)
            epochs = (partition.leader_epoch, partition.partition_epoch)
            before = self.seen.get(key, (0, 0))
            assert epochs[0] >= before[0]
            assert epochs[1] >= before[1]
            self.seen[key] = epochs
            if not partition.is_reassigning and key in self.wanted:
                target, _ = self.wanted.pop(key)
                assert partition.replicas == target
                assert set(partition.isr) == set(target)

    def check_sets(self, name, partition):
        replicas = set(partition.replicas)
        for members in (partition.replicas, partition.isr, partition.elr):
            assert len(set(members)) == len(members)
            assert set(members) <= replicas
        adding, removing = set(partition.adding_replicas), set(partition.removing_replicas)
        assert adding <= replicas
        assert removing <= replicas
        assert not adding & removing
        assert partition.isr
        assert not set(partition.isr) & set(partition.elr)
        if len(partition.isr) >= self.min_isr(name, partition):
            assert not partition.elr
        if len(partition.isr) > 1:
            assert all(self.is_active(member) for member in partition.isr)

    def check_leader(self, partition):
        if partition.has_leader:
            assert partition.leader in partition.isr
            assert self.is_active(partition.leader)
            assert partition.last_known_elr == ()
        else:
            assert not any(self.is_active(m) for m in (*partition.isr, *partition.elr))

    def check_data(self, name, key, partition):
        if not partition.has_leader:
            return
        held = self.log(key, partition.leader)
        committed = self.committed.get(key, [])
        if self.may_lose(name, key):
            self.committed[key] = held[: len(committed)]
        else:
            assert partition.leader_recovery_state != RECOVERING
            assert held[: len(committed)] == committed, "a committed record is lost"
        self.commit(name, key, partition)

    @invariant()
    def a_snapshot_leads_to_the_same_image(self):
        image = self.world.image
        delta = Delta(EMPTY_IMAGE)
        delta.replay_all(records_of(image))
        assert delta.apply(end_offset=image.end_offset, epoch=image.epoch) == image


PartitionMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=60, deadline=None
)
TestPartitions = PartitionMachine.TestCase
