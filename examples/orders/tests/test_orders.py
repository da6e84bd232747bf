"""The application's tests. The fixture `kvorum` comes with the package; nothing is to be set up."""

from __future__ import annotations

import threading

from orders import place_orders, read_orders

NAMES = [f"order-{number}" for number in range(500)]


def test_orders_come_back_in_order(kvorum):
    topic = kvorum.create_topic("orders")
    place_orders(kvorum.bootstrap_servers, topic, NAMES)
    assert read_orders(kvorum.bootstrap_servers, topic, len(NAMES)) == NAMES


def test_orders_survive_the_death_of_their_leader(kvorum):
    topic = kvorum.create_topic("orders")
    with kvorum.fault("kill", target="leader:orders/0"):
        place_orders(kvorum.bootstrap_servers, topic, NAMES)
    kvorum.wait_until("isr-full")
    assert read_orders(kvorum.bootstrap_servers, topic, len(NAMES)) == NAMES


def test_orders_wait_for_a_leader_that_hangs(kvorum):
    topic = kvorum.create_topic("orders")
    kvorum.pause("leader:orders/0")
    resuming = threading.Timer(1.0, kvorum.heal)
    resuming.start()
    place_orders(kvorum.bootstrap_servers, topic, NAMES)
    resuming.join()
    assert read_orders(kvorum.bootstrap_servers, topic, len(NAMES)) == NAMES
