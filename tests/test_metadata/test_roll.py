"""The order of a rolling restart, and when the next node may follow."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.metadata.image.image import ControllerImage
from kvorum.metadata.image.records import Endpoint
from kvorum.metadata.inspect.health import VOTER_LAG_MS_MAX, ClusterView
from kvorum.metadata.inspect.roll import (
    CLOCK_MS_MAX,
    SETTLE_S_MAX,
    RollNode,
    clock_of,
    gone_controllers,
    hazards_of_start,
    nodes_of,
    not_back,
    roll_order,
    settle_s,
)
from tests.test_metadata.worlds import World

NOW_MS = 1_000_000


def node(node_id, role="broker", incarnation=b"a"):
    return RollNode(
        node_id=node_id, role=role, host=f"h{node_id}.example", incarnation_id=incarnation
    )


NODES = [*(node(i, "controller") for i in (1, 2, 3)), *(node(i) for i in (101, 102, 103))]


@pytest.fixture
def image():
    """Brokers 101 to 103, controllers 1 to 3, all registered."""
    world = World()
    return dataclasses.replace(
        world.image,
        controllers={
            i: ControllerImage(
                controller_id=i,
                incarnation_id=bytes([i]) * 16,
                endpoints=(Endpoint("CONTROLLER", f"c{i}.example", 9093),),
                features=(),
            )
            for i in (1, 2, 3)
        },
    )


def view(end_offset, *, behind=None, missing=None, fenced=(), isr=(101, 102, 103)):
    def replica(node_id):
        offset = end_offset - 1 if node_id == behind else end_offset
        return {
            "node_id": node_id, "log_end_offset": offset, "last_caught_up_timestamp": NOW_MS,
            "last_fetch_timestamp": NOW_MS,
        }  # fmt: skip

    return ClusterView(
        quorum={
            "leader_id": 1,
            "leader_epoch": 7,
            "voters": [replica(i) for i in (1, 2, 3) if i != missing],
            "observers": [replica(i) for i in (101, 102, 103) if i != missing],
        },
        no_quorum="",
        brokers=[{"broker_id": i, "is_fenced": i in fenced} for i in (101, 102, 103)],
        topics=[
            {
                "topic": "t",
                "partitions": [
                    {"partition": 0, "leader": isr[0], "replicas": (101, 102, 103), "isr": isr}
                ],
            }
        ],
        min_isr={"t": 2},
        asked_ms=(NOW_MS, NOW_MS),
    )


def asked(found, before_ms, round_trip_ms=0):
    """The view as if the quorum had been asked at another time."""
    return dataclasses.replace(found, asked_ms=(before_ms, before_ms + round_trip_ms))


def earlier(image, node_id):
    """The node before its restart: another process."""
    found = next(n for n in nodes_of(image) if n.node_id == node_id)
    return dataclasses.replace(found, incarnation_id=b"earlier")


def ids(nodes):
    return [n.node_id for n in nodes]


def test_followers_come_before_the_leader_and_controllers_before_brokers():
    assert ids(roll_order(NODES, 1)) == [2, 3, 1, 101, 102, 103]
    assert ids(roll_order(NODES, 2)) == [1, 3, 2, 101, 102, 103]


def test_the_order_follows_a_leader_that_changes_meanwhile():
    assert ids(roll_order(NODES, 3, done={2})) == [1, 3, 101, 102, 103]
    assert ids(roll_order(NODES, 2, done={2})) == [1, 3, 101, 102, 103]


@given(
    st.lists(st.integers(1, 7), max_size=14),
    st.integers(-1, 7),
    st.sets(st.integers(1, 110)),
)
def test_every_node_is_restarted_exactly_once_whoever_leads(leaders, last_leader, before):
    done = set(before)
    order = []
    leader_of = iter([*leaders, *[last_leader] * (len(NODES) + 1)])
    while left := roll_order(NODES, next(leader_of), done):
        order.append(left[0].node_id)
        done.add(left[0].node_id)
    assert sorted(order) == [n.node_id for n in NODES if n.node_id not in before]


def test_nodes_come_from_the_registrations(image):
    found = nodes_of(image)
    assert [n.name for n in found] == [
        "controller-1", "controller-2", "controller-3", "broker-101", "broker-102", "broker-103",
    ]  # fmt: skip
    assert (found[0].host, found[0].short_host) == ("c1.example", "c1")


def test_a_node_that_registers_again_in_a_healthy_cluster_is_back(image):
    for node_id in (1, 2, 101):
        assert not_back(view(image.end_offset), image, earlier(image, node_id)) is None


def test_a_command_that_returned_early_is_no_restart(image):
    still_the_old = next(n for n in nodes_of(image) if n.node_id == 102)
    reason = not_back(view(image.end_offset), image, still_the_old)
    assert reason == "broker-102 has not registered again"


def test_a_voter_must_have_the_log_up_to_its_registration(image):
    end = image.end_offset
    # It was level with the leader just before it stopped, so the health alone would pass.
    assert not_back(view(end, behind=2), image, earlier(image, 2)) == (
        f"controller-2 has the metadata log up to offset {end - 1}, and needs {end}"
    )
    assert not_back(view(end, missing=2), image, earlier(image, 2)) == (
        "controller-2 does not follow the metadata log"
    )


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"fenced": (101,)}, "brokers: 2 of 3 active; fenced: broker 101"),
        ({"isr": (102, 103)}, "under-replicated: 1 of 1 partition: t-0"),
    ],
)
def test_the_next_node_waits_for_full_isrs_and_unfenced_brokers(image, state, reason):
    assert not_back(view(image.end_offset, **state), image, earlier(image, 101)) == reason


def test_a_node_is_restarted_only_in_a_healthy_cluster(image):
    end = image.end_offset
    assert hazards_of_start(view(end), node(101)) == []
    # 103 is not among the in-sync replicas: its own restart breaks nothing, and still waits.
    assert hazards_of_start(view(end, isr=(101, 102)), node(103)) == [
        "under-replicated: 1 of 1 partition: t-0"
    ]


@pytest.mark.parametrize(
    ("off_ms", "is_healthy", "words"),
    [
        (0, True, "controller 1 is 0 ms behind this machine (± 1 ms)"),
        (250, True, "controller 1 is 250 ms ahead of this machine (± 1 ms)"),
        (CLOCK_MS_MAX, True, "10.0 s ahead of this machine"),
        (-3_600_000, False, "3,600.0 s behind this machine (± 1 ms); let NTP set the clocks"),
        (CLOCK_MS_MAX + 1, False, "ahead of this machine (± 1 ms); let NTP set the clocks"),
    ],
)
def test_a_clock_that_is_off_is_told_with_the_way_out(image, off_ms, is_healthy, words):
    found = clock_of(asked(view(image.end_offset), NOW_MS - off_ms))
    assert found.is_healthy is is_healthy
    assert words in found.detail


def test_a_clock_is_told_with_half_the_round_trip_as_its_error(image):
    # The leader read its clock at NOW_MS: when the question was sent, or when the answer came.
    detail = clock_of(asked(view(image.end_offset), NOW_MS - 40, round_trip_ms=40)).detail
    assert detail.startswith("controller 1 is 20 ms ahead of this machine (± 21 ms)")
    detail = clock_of(asked(view(image.end_offset), NOW_MS, round_trip_ms=40)).detail
    assert detail.startswith("controller 1 is 20 ms behind this machine (± 21 ms)")


def with_clocks(found, **ahead_ms):
    """A view in which nodes' clocks are ahead of the leader's; None: their builds do not tell."""
    for replica in (*found.quorum["voters"], *found.quorum["observers"]):
        replica["clock_ahead_ms"] = ahead_ms.get(f"node_{replica['node_id']}", 0)
    return found


@pytest.mark.parametrize(
    ("node_id", "role"), [(2, "a voter"), (102, "an observer")], ids=["controller", "broker"]
)
def test_the_clock_of_each_node_is_held_against_the_leaders(image, node_id, role):
    off = with_clocks(view(image.end_offset), **{f"node_{node_id}": 7_200_000})
    found = clock_of(off)
    assert not found.is_healthy, role
    assert found.detail.endswith(
        f"node {node_id} is 7,200.0 s ahead of controller 1; let NTP set the clocks"
    )
    level = clock_of(with_clocks(view(image.end_offset), node_2=-CLOCK_MS_MAX))
    assert level.is_healthy
    assert level.detail.endswith("5 other nodes are within 10 s")


def test_a_node_that_fetches_no_more_has_no_clock(image):
    off = with_clocks(view(image.end_offset), node_102=7_200_000)
    gone = next(row for row in off.quorum["observers"] if row["node_id"] == 102)
    gone["last_fetch_timestamp"] = NOW_MS - VOTER_LAG_MS_MAX - 1
    assert clock_of(off).is_healthy
    # It lost its disk: the same id fetches under another directory id.
    off.quorum["observers"].insert(0, {**gone, "last_fetch_timestamp": NOW_MS, "clock_ahead_ms": 5})
    found = clock_of(off)
    assert found.is_healthy and found.detail.endswith("5 other nodes are within 10 s")


def test_a_roll_leaves_out_controllers_that_neither_vote_nor_follow(image):
    removed = [*NODES, dataclasses.replace(NODES[0], node_id=4)]
    assert gone_controllers(view(image.end_offset), NODES) == []
    assert gone_controllers(view(image.end_offset), removed) == [removed[-1]]
    follows = view(image.end_offset)
    row = {"node_id": 4, "log_end_offset": 1, "last_caught_up_timestamp": -1}
    follows.quorum["observers"].append({**row, "last_fetch_timestamp": NOW_MS})
    assert gone_controllers(follows, removed) == []
    follows.quorum["observers"][-1]["last_fetch_timestamp"] -= VOTER_LAG_MS_MAX + 1
    assert gone_controllers(follows, removed) == [removed[-1]]
    # A voter belongs to the quorum also while it is down.
    follows.quorum["voters"][1]["last_fetch_timestamp"] = -1
    assert gone_controllers(follows, NODES) == []


def test_clocks_that_are_not_known_are_not_called_well(image):
    told = with_clocks(view(image.end_offset), node_2=None, node_101=None)
    assert clock_of(told).detail.endswith("3 other nodes are within 10 s")
    untold = clock_of(view(image.end_offset))
    assert untold.detail.endswith("for the other nodes' clocks ask with --bootstrap-controller")


def test_without_a_leader_no_clock_is_well(image):
    nobody = dataclasses.replace(view(image.end_offset), quorum=None, no_quorum="none")
    found = clock_of(nobody)
    assert (found.is_healthy, found.detail) == (False, "not known without a leader")


def test_clients_have_time_to_connect_to_a_broker_before_the_next_one_is_restarted():
    controller, broker, last = NODES[0], NODES[3], NODES[5]
    assert settle_s(broker, [last], 1.5) == 4.5
    assert settle_s(broker, [last], 60.0) == SETTLE_S_MAX
    assert settle_s(last, [], 1.5) == 0
    # No client is connected to a controller.
    assert settle_s(controller, NODES[1:], 1.5) == 0


def test_a_node_waits_for_the_end_of_a_reassignment_and_says_so(image):
    moving = dataclasses.replace(view(image.end_offset), reassigning={("t", 0): [104]})
    node = next(n for n in nodes_of(image) if n.node_id == 101)
    assert hazards_of_start(moving, node) == [
        "a reassignment is under way (t-0): wait for its end, or cancel it with kvorum partitions "
        "reassign --cancel"
    ]
