from __future__ import annotations

import random

from kvorum.chaos.roles import roles_of
from kvorum.chaos.targets import PartitionView, TargetView, by_role, parse_target, resolve


def view(leaders: dict[int, str], active: str = "controller-2", killed=frozenset()) -> TargetView:
    brokers = ("broker-101", "broker-102", "broker-103")
    return TargetView(
        controllers=("controller-1", "controller-2"),
        brokers=brokers,
        killed=killed,
        active_controller=active,
        partitions={
            ("orders", number): PartitionView(leader=leader, replicas=brokers, isr=brokers)
            for number, leader in leaders.items()
        },
    )


def test_a_node_says_what_it_leads_and_follows():
    found = roles_of(
        ["broker-102", "controller-2", "controller-1", "clients"],
        view({0: "broker-102", 1: "broker-101", 2: "broker-103", 3: "broker-101", 4: "broker-101"}),
    )
    assert found == [
        "broker-102: leader of orders/0, follower of orders/1, orders/2, orders/3 and 1 more",
        "controller-2: active controller",
        "controller-1: standby controller",
    ]


def test_a_killed_controller_has_no_role():
    assert roles_of(["controller-1"], view({}, killed=frozenset({"controller-1"}))) == []


def test_candidates_are_in_the_order_of_their_roles():
    seen = view({0: "broker-103", 1: "broker-101", 2: "broker-102"})
    assert by_role(seen.brokers, seen) == ("broker-103", "broker-101", "broker-102")
    assert by_role(seen.controllers, seen) == ("controller-2", "controller-1")


def test_one_seed_strikes_one_role_whoever_holds_it():
    names = ("broker-101", "broker-102", "broker-103")
    for seed in range(20):
        struck = set()
        for turn in range(3):
            leaders = {number: names[(number + turn) % 3] for number in range(3)}
            (node,) = resolve(parse_target("one:brokers"), view(leaders), random.Random(seed))
            struck.add(next(number for number, name in leaders.items() if name == node))
        assert len(struck) == 1
