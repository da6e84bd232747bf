"""A flapping link does not thrash leadership; the figures stand in docs/protocol/simulation.md."""

from __future__ import annotations

from kvorum.chaos.sim.controller.flapping import PARTITIONS, TOPICS, flap

LED = TOPICS * PARTITIONS


def test_the_flapping_link_of_one_broker_costs_it_its_leaderships_once():
    for seed in range(2):
        thrash = flap(seed, is_for_all=False)
        print(f"one broker, seed {seed}: {thrash}")
        assert thrash.flaps > 100
        assert 1 <= thrash.fencings <= 4
        assert thrash.leader_changes <= LED


def test_flapping_links_of_all_brokers_do_not_thrash_leadership():
    for seed in range(2):
        thrash = flap(seed, is_for_all=True)
        print(f"all brokers, seed {seed}: {thrash}")
        assert thrash.flaps > 300
        assert thrash.fencings <= 10
        assert thrash.leader_changes <= 4 * LED


def test_without_the_rule_every_flap_is_a_fencing(monkeypatch):
    monkeypatch.setattr(
        "kvorum.metadata.controller.core.broker_sessions.BrokerSessions._doublings", lambda *_: 0
    )
    thrash = flap(0, is_for_all=True)
    print(f"without the rule: {thrash}")
    assert thrash.fencings > 100
    assert thrash.leader_changes > 20 * LED
