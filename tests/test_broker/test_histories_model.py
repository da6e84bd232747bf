"""Replicas whose histories diverge, are deleted and start again, against a model of what each must
hold. Elections are unclean, deletions often reach the end of another replica, and a power cut may
undo log starts and flushes. Then all replicas catch up, with few fetches, to exactly the leader's
records. Their files hold no other history, not even below the log start.
"""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvorum.storage.format.batch import iter_headers, iter_records
from kvorum.storage.log.retention import remove_deleted
from tests.scripts.partitions.harness import PartitionHarness

FETCHES_MAX = 6
NODES = st.integers(1, 3)


def in_files(node):
    """offset -> (value, epoch) of all that the segments hold, also below the log's start."""
    found = {}
    for base_offset in list(node.replica.log.segments.bases):
        path = f"{node.replica.log.directory}/{base_offset:020}.log"
        data = node.disk.read_bytes(path)
        for position, header in iter_headers(data):
            for record in iter_records(data, position, header):
                found[record.offset] = (record.value.decode(), header.leader_epoch)
    return found


class Histories(RuleBasedStateMachine):
    """The model. told: by node, offset -> (value, epoch): the node's whole history, as its leaders
    sent it. deleted: values that a leader was asked to delete."""

    @initialize(seed=st.integers(0, 1000), count=st.integers(2, 3))
    def begin(self, seed, count):
        self.harness = PartitionHarness()
        self.harness.do_cluster(count, seed=str(seed))
        self.nodes = self.harness.nodes
        self.told = {node_id: {} for node_id in self.nodes}
        self.deleted = set()
        self.values = 0

    @property
    def leader(self):
        node = self.nodes.get(self.harness._partition.leader)
        return None if node is None or node.replica is None else node

    def up(self, number):
        """The node of that number, None if it is down or there is none."""
        node = self.nodes.get(number)
        return None if node is None or node.replica is None else node

    def cut(self, node):
        end_offset = node.replica.log.end_offset
        told = self.told[node.id]
        self.told[node.id] = {at: told[at] for at in told if at < end_offset}

    def fetch_once(self, node):
        """One fetch; the answer that the follower got. After an answer without a truncation, its
        history is a prefix of the leader's."""
        self.harness.lines = []
        self.harness.do_fetch(str(node.id))
        said = self.harness.lines[-1]
        if "OUT_OF_RANGE" in said or "diverging" in said:
            self.told[node.id] = in_files(node)  # it may have started an empty log
        else:
            leader = self.told[self.leader.id]
            end_offset = node.replica.log.end_offset
            self.told[node.id] = {at: leader[at] for at in leader if at < end_offset}
        return said

    # --- what happens ------------------------------------------------------------------------

    @precondition(lambda self: self.leader)
    @rule(count=st.integers(1, 3))
    def produce(self, count):
        leader = self.leader
        for _ in range(count):
            self.values += 1
            value = f"v{self.values}"
            self.harness.do_produce(str(leader.id), value, acks="1")
            epoch = leader.replica.core.leader_epoch
            self.told[leader.id][leader.replica.log.end_offset - 1] = (value, epoch)

    @precondition(lambda self: self.leader)
    @rule(number=NODES)
    def fetch(self, number):
        node = self.up(number)
        if node is not None and node is not self.leader:
            self.fetch_once(node)

    @precondition(lambda self: self.leader)
    @rule(number=NODES, back=st.integers(0, 2))
    def delete(self, number, back):
        """Delete records up to the end of another replica, or up to two offsets below it."""
        log = self.leader.replica.log
        other = self.up(number) or self.leader
        core = self.leader.replica.core
        offset = min(other.replica.log.end_offset - back, core.high_watermark, log.end_offset)
        if offset > log.start_offset:
            told = self.told[self.leader.id]
            self.deleted.update(told[at] for at in told if at < offset)
            self.leader.replica.move_start(offset)

    @rule(number=NODES, is_flushed=st.booleans())
    def retire(self, number, is_flushed):
        node = self.up(number)
        if node is not None:
            log = node.replica.log
            log.roll(now_ms=0)
            if is_flushed:
                log.flush()
            node.replica.apply_retention(0)
            remove_deleted(log, 10**15)

    @rule(number=NODES, tells_late=st.booleans(), is_checkpointed=st.booleans())
    def upkeep(self, number, tells_late, is_checkpointed):
        node = self.up(number)
        if node is not None:
            node.tells_late = tells_late
            node.replica.log.flush()
            if is_checkpointed:
                node.checkpoint()

    @rule(number=NODES)
    def lead_uncleanly(self, number):
        if self.up(number) is not None:
            self.harness.do_lead(str(number), isr=str(number))
            self.harness.do_publish()

    @rule(number=NODES, is_power=st.booleans())
    def restart(self, number, is_power):
        node = self.up(number)
        if node is None:
            return
        self.harness.do_crash(str(number), *(["power"] if is_power else []))
        self.harness.do_restart(str(number))
        self.harness.do_unfence(str(number))
        self.cut(node)
        others = [n for n in self.nodes if self.up(n)]
        if self.harness._partition.leader in (number, -1):
            other = random.Random(self.values + number).choice(others)
            self.harness.do_lead(str(other), isr=str(other))
        self.harness.do_publish()

    # --- what holds --------------------------------------------------------------------------

    @precondition(lambda self: self.leader)
    @rule(number=NODES)
    def all_catch_up_and_another_leads(self, number):
        leader = self.leader
        for node in self.nodes.values():
            if node is not leader:
                node.tells_late = False
                self.catch_up(node)
        before = {at: told for at, told in self.told[leader.id].items() if told not in self.deleted}
        members = ",".join(str(n) for n in self.nodes)
        chosen = self.nodes.get(number, leader)
        self.harness.do_lead(str(chosen.id), isr=members)
        self.harness.do_publish()
        for node in self.nodes.values():
            if node is not chosen:
                self.catch_up(node)
        for node in self.nodes.values():
            held = in_files(node)
            missing = {at: told for at, told in before.items() if held.get(at) != told}
            assert not missing, f"{node.id} lacks what was not deleted: {missing}"

    def catch_up(self, node):
        leader = self.leader
        said = []
        for _ in range(FETCHES_MAX):
            before = node.replica.log.end_offset
            said.append(self.fetch_once(node))
            log = node.replica.log
            is_told = "OUT_OF_RANGE" not in said[-1] and "diverging" not in said[-1]
            if is_told and before == log.end_offset == leader.replica.log.end_offset:
                break
        else:
            raise AssertionError(f"{node.id} never catches up: {said}")
        truth, held = self.told[leader.id], in_files(node)
        others = {at: found for at, found in held.items() if truth.get(at, found) != found}
        assert not others, f"{node.id} has {others}, the leader had {truth}"
        skipped = range(leader.replica.log.start_offset, log.start_offset)
        lost = [truth[at] for at in skipped if truth[at] not in self.deleted]
        assert not lost, f"{node.id} begins at {log.start_offset}, behind {lost}"

    @invariant()
    def epochs_never_fall(self):
        for node in getattr(self, "nodes", {}).values():
            if node.replica is not None:
                epochs = [epoch for _, (_, epoch) in sorted(in_files(node).items())]
                assert epochs == sorted(epochs)

    @invariant()
    def the_epoch_below_is_that_of_the_record_below(self):
        for node in getattr(self, "nodes", {}).values():
            if node.replica is None:
                continue
            log = node.replica.log
            below = self.told[node.id].get(log.start_offset - 1)
            if below is not None and log.epochs.epoch_before_start >= 0:
                assert log.epochs.epoch_before_start == below[1]


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=100, stateful_step_count=40)
