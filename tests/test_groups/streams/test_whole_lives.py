"""Random lives of a Streams group, checked against rules that hold in each:

- no two members work on an active task at once, and no two members of a process have a copy of one
  state directory open. A member of the model closes a task when it is told to, or later if it is
  slow;
- group, assignment and member epochs never go back; a member's is never above the target's;
- the target of the group's epoch gives every task to one member;
- a shard that reads the log, compacted or not, knows what the living one knows;
- when everybody sends heartbeats, the group comes to rest and every task is worked on.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvorum.broker.groups.steps.timers import (
    ExpiryTimer,
    StreamsInitialDelayTimer,
    StreamsRebalanceTimer,
    StreamsSessionTimer,
)
from kvorum.broker.groups.streams.group import StreamsGroup
from kvorum.broker.groups.streams.requests import StreamsHeartbeated
from kvorum.broker.groups.streams.states import StreamsGroupState
from kvorum.runtime.errors import Rejected
from tests.test_groups.streams.world import (
    AT_ONCE,
    CHANGELOG,
    REBALANCE_MS,
    STATEFUL,
    StreamsWorld,
    Thread,
    known,
    settle,
)
from tests.test_groups.world import GROUP, compacted

CONFIG = replace(
    AT_ONCE,
    group_streams_max_size=6,
    group_streams_num_standby_replicas=1,
    group_streams_initial_rebalance_delay_ms=500,
)
PROCESSES = st.sampled_from(["p1", "p2", "p3"])


class StreamsGroupLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = StreamsWorld(config=CONFIG, counts={"orders": 3, CHANGELOG: 3})
        self.threads: dict[str, Thread] = {}
        self.epochs: dict[str, int] = {}
        self.group_epochs = (0, 0)
        self.number = 0
        self.count = 3

    @property
    def group(self) -> StreamsGroup | None:
        found = self.world.shard.groups.get(GROUP)
        return found if isinstance(found, StreamsGroup) else None

    def pick(self, data) -> Thread:
        return self.threads[data.draw(st.sampled_from(sorted(self.threads)))]

    def drop_lost(self) -> None:
        """Remove clients that are no longer members: their sessions are over by their own clocks
        too, and they have closed everything."""
        members = self.group.members if self.group is not None else {}
        for name in [name for name in self.threads if name not in members]:
            del self.threads[name]
        self.epochs = {name: e for name, e in self.epochs.items() if name in members}

    # --- members -----------------------------------------------------------------------------

    @rule(process=PROCESSES)
    def join(self, process):
        self.number += 1
        thread = Thread(self.world, f"m{self.number}", STATEFUL, process_id=process)
        if isinstance(thread.join(), StreamsHeartbeated):
            self.threads[thread.member_id] = thread

    @rule(instance=st.sampled_from(["one", "two"]), process=PROCESSES)
    def join_static(self, instance, process):
        self.number += 1
        name = f"s{self.number}"
        thread = Thread(self.world, name, STATEFUL, process_id=process, instance_id=instance)
        if isinstance(thread.join(), StreamsHeartbeated):
            self.threads[name] = thread

    @precondition(lambda self: self.threads)
    @rule(data=st.data())
    def beat(self, data):
        self.pick(data).beat()

    @precondition(lambda self: self.threads)
    @rule(data=st.data())
    def answer_is_lost(self, data):
        """A member sends a heartbeat and gets no answer; it names all it has in the next one."""
        thread = self.pick(data)
        before = (thread.epoch, thread.told, thread.owned)
        was_slow, thread.is_slow = thread.is_slow, True
        thread.beat()
        thread.epoch, thread.told, thread.owned = before
        thread.is_slow = was_slow

    @precondition(lambda self: self.threads)
    @rule(data=st.data(), is_slow=st.booleans())
    def become_slow(self, data, is_slow):
        thread = self.pick(data)
        thread.is_slow = is_slow
        if not is_slow:
            thread.own()

    @precondition(lambda self: self.threads)
    @rule(data=st.data())
    def leave(self, data):
        thread = self.pick(data)
        thread.leave()
        del self.threads[thread.member_id]

    @precondition(lambda self: any(one.instance_id for one in self.threads.values()))
    @rule(data=st.data())
    def go_away(self, data):
        """A static member leaves for a while (epoch -2)."""
        static = sorted(name for name, one in self.threads.items() if one.instance_id)
        self.threads.pop(data.draw(st.sampled_from(static))).leave(-2)

    # --- the world ---------------------------------------------------------------------------

    @rule(more=st.integers(1, 2))
    def grow(self, more):
        # Never fewer than members may own tasks of: these would be refused, as in Kafka.
        self.count = count = min(self.count + more, 6)
        for name in (CHANGELOG, "orders"):
            self.world.set_topic(name, count)

    @rule(name=st.sampled_from(["orders", CHANGELOG]))
    def delete_topic(self, name):
        if name in self.world.counts:
            self.world.delete_topic(name)

    @rule(by_ms=st.sampled_from([500, 1_000, 30_000, 46_000]))
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
        for name in [name for name in group.members if name not in self.threads]:
            held = group.members[name]
            self.world.beat(name, -1, instance_id=held.instance_id)
        self.world.advance(500)
        threads = list(self.threads.values())
        for thread in threads:
            thread.is_slow = False
            thread.own()
        for thread in threads:
            if isinstance(thread.beat(), Rejected):
                # It lost two answers in a row, and its epoch is too old.
                thread.join()
        settle(threads, rounds=2 * len(threads) + 4)
        if not threads:
            return
        is_ready = self.world.counts.get("orders") == self.world.counts.get(CHANGELOG) is not None
        wanted = StreamsGroupState.STABLE if is_ready else StreamsGroupState.NOT_READY
        assert group.state == wanted, group.summary()
        for thread in threads:
            assert thread.owned == group.target(thread.member_id)

    # --- what must be true -------------------------------------------------------------------

    @invariant()
    def nobody_works_on_what_another_has(self):
        group = self.group
        active: dict = {}
        open_: dict = {}
        for thread in self.threads.values():
            if group is None or thread.member_id not in group.members:
                continue
            for task in thread.owned.active:
                assert active.setdefault(task, thread) is thread, task
            for task in (*thread.owned.active, *thread.owned.standby):
                place = (thread.said["process_id"], task)
                assert open_.setdefault(place, thread) is thread, place

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
        settled = (StreamsGroupState.RECONCILING, StreamsGroupState.STABLE)
        if group is None or group.state not in settled or group.is_metadata_stale:
            return
        wanted = [("0", partition) for partition in range(self.world.counts["orders"])]
        assert (
            sorted(task for name in group.members for task in group.target(name).active) == wanted
        )

    @invariant()
    def timers_belong_to_members(self):
        group = self.group
        members = group.members if group is not None else {}
        for name in self.world.timers:
            if isinstance(name, (StreamsSessionTimer, StreamsRebalanceTimer)):
                assert name.member_id in members
            else:
                assert isinstance(name, (ExpiryTimer, StreamsInitialDelayTimer))
        for name, member in members.items():
            assert StreamsSessionTimer(GROUP, name) in self.world.timers
            is_revoking = StreamsRebalanceTimer(GROUP, name) in self.world.timers
            assert is_revoking == (member.state.name == "UNREVOKED_TASKS")

    @invariant()
    def the_log_says_what_the_shard_knows(self):
        living = known(self.world.shard)
        assert known(self.world.loaded()) == living
        assert known(self.world.loaded(compacted(self.world.log))) == living

    def teardown(self):
        self.come_to_rest()
        self.world.advance(100_000 + REBALANCE_MS)
        assert self.group is None or self.group.state == StreamsGroupState.EMPTY


TestStreamsGroupLife = StreamsGroupLife.TestCase
TestStreamsGroupLife.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
