"""Transactions over fail-overs at any point: long random walks, and hypothesis for small examples.

What must hold is in `world`. A walk that fails names its seed.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kvorum.broker.transactions.core.model import EPOCH_EXHAUSTED, TopicPartition
from tests.test_transactions.world import PARTITIONS, World

FIRST_EPOCHS = [None, 0, EPOCH_EXHAUSTED - 2, EPOCH_EXHAUSTED]
VERSIONS = [(2, 2), (0, 0), (0, 2)]
"""Both by KIP-890, none, one of each."""
WALKS, WALKS_AT_ONCE, STEPS = 2_000, 100, 60
FOUND = (15_672, 18_637, 18_672)
"""Walks that once went wrong: a producer worked with the epoch that is kept for fencing it."""


def walk(seed: int) -> None:
    rng = random.Random(seed)
    world = World(rng.choice(FIRST_EPOCHS), rng.choice(VERSIONS))
    for _ in range(STEPS):
        step(world, rng)
        world.check()
    world.finish()


def step(world: World, rng: random.Random) -> None:
    which = rng.randrange(2)
    partitions = rng.sample(PARTITIONS, rng.randint(1, 3))
    actions = {
        "work": (4, lambda: world.work(which, partitions)),
        "init": (2, lambda: world.init(which, goes_on=rng.random() < 0.5)),
        "add": (3, lambda: world.add(which, partitions)),
        "end": (6, lambda: world.end(which, is_commit=rng.random() < 0.6)),
        "repeat": (8, lambda: world.repeat(which)),
        "change_mind": (1, lambda: world.change_mind(which)),
        "replicate": (5, lambda: world.replicate(rng.randint(1, 2))),
        "settle": (3, world.settle),
        "producer_ids": (2, lambda: world.give_producer_ids(is_there=rng.random() < 0.8)),
        "fail_over": (3, lambda: world.fail_over(rng.choice([0, 0, 1, 2]))),
        "time": (1, lambda: world.pass_time(rng.choice([15_000, 80_000]))),
        "deliver": (6, lambda: deliver(world, rng)),
        "carry_through": (2, world.carry_through),
    }
    weights = [weight for weight, _ in actions.values()]
    (name,) = rng.choices(list(actions), weights)
    actions[name][1]()


def deliver(world: World, rng: random.Random) -> None:
    if world.sent:
        sent = rng.choice(world.sent)
        world.deliver(sent, rng.choice(sorted(sent.missing)), times=rng.choice([1, 1, 2]))


@pytest.mark.parametrize("first", range(0, WALKS, WALKS_AT_ONCE))
def test_whatever_happens_transactions_are_whole(first: int) -> None:
    for seed in range(first, first + WALKS_AT_ONCE):
        try:
            walk(seed)
        except BaseException as failure:
            failure.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("seed", FOUND)
def test_what_went_wrong_once_does_not_again(seed: int) -> None:
    walk(seed)


class Transactions(RuleBasedStateMachine):
    """The steps of `walk`, chosen and shrunk by hypothesis."""

    @initialize(epoch=st.sampled_from(FIRST_EPOCHS), versions=st.sampled_from(VERSIONS))
    def start(self, epoch: int | None, versions: tuple[int, int]) -> None:
        self.world = World(epoch, versions)

    @rule(which=st.integers(0, 1), partitions=st.frozensets(st.sampled_from(PARTITIONS)))
    def work(self, which: int, partitions: frozenset[TopicPartition]) -> None:
        self.world.work(which, partitions | {PARTITIONS[0]})

    @rule(which=st.integers(0, 1), goes_on=st.booleans())
    def init(self, which: int, goes_on: bool) -> None:
        self.world.init(which, goes_on=goes_on)

    @rule(which=st.integers(0, 1), is_commit=st.booleans())
    def end(self, which: int, is_commit: bool) -> None:
        self.world.end(which, is_commit=is_commit)

    @rule(which=st.integers(0, 1))
    def repeat(self, which: int) -> None:
        self.world.repeat(which)

    @rule(count=st.integers(1, 2))
    def replicate(self, count: int) -> None:
        self.world.replicate(count)

    @rule(is_there=st.booleans())
    def give_producer_ids(self, is_there: bool) -> None:
        self.world.give_producer_ids(is_there=is_there)

    @rule(keep=st.integers(0, 2))
    def fail_over(self, keep: int) -> None:
        self.world.fail_over(keep)

    @rule()
    def pass_time(self) -> None:
        self.world.pass_time()

    @rule(data=st.data())
    def deliver(self, data: Any) -> None:
        if self.world.sent:
            sent = data.draw(st.sampled_from(self.world.sent))
            self.world.deliver(sent, data.draw(st.sampled_from(sorted(sent.missing))))

    @invariant()
    def all_holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish()


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
