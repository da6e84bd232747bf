"""A group whose members come and go while its coordinator is killed again and again.

No partition may have two owners in one generation, and no acknowledged commit may be lost.
"""

from __future__ import annotations

import pytest

from tests.clients.groups import QUICK_GROUPS, committed_offsets
from tests.live.clients import Topics
from tests.live.cluster import Cluster, broker_name
from tests.live.group_members import PARTITIONS, Member, Owned, Story
from tests.polling import eventually
from tests.test_broker.raw_client import RawClient

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

GROUP = "storm"
MEMBERS = 5
KILLS = 3


@pytest.fixture
def cluster(tmp_path):
    with Cluster(tmp_path, settings=QUICK_GROUPS) as cluster:
        yield cluster


def coordinator(cluster: Cluster) -> int:
    """The broker that leads the group's partition, as a live broker has it."""

    def ask() -> int:
        for i in range(3):
            try:
                client = RawClient(cluster.ports.broker + i)
            except OSError:
                continue
            values = {"key_type": 0, "coordinator_keys": [GROUP]}
            (found,) = client.call("find_coordinator", 4, values).coordinators
            client.close()
            if found.error_code == 0:
                return found.node_id
        return 0

    return eventually(ask, "there is a coordinator")


def test_no_partition_is_owned_twice_and_no_commit_is_lost(cluster: Cluster) -> None:
    Topics(cluster.bootstrap).create("storm", partitions=PARTITIONS)
    story = Story()
    ports = [cluster.ports.broker + i for i in range(3)]
    members = [Member(f"member-{i}", ports, GROUP, story, i) for i in range(MEMBERS)]
    for member in members:
        member.start()

    def wait_more(generations: int) -> None:
        with story.lock:
            before, commits = len(story.owned), story.commits
        eventually(
            lambda: len(story.owned) > before + generations and story.commits > commits + 20,
            f"the group lives on: {generations} more assignments",
        )

    wait_more(2 * MEMBERS)
    for _ in range(KILLS):
        victim = broker_name(coordinator(cluster))
        cluster.kill(victim)
        wait_more(2 * MEMBERS)
        cluster.restart(victim)
        wait_more(MEMBERS)
    for member in members:
        member.stop()
    for member in members:
        member.join(60)
    assert not any(member.is_alive() for member in members)
    assert story.owned_twice() == []
    assert story.lost == []
    found = committed_offsets(cluster.bootstrap, GROUP, "storm", PARTITIONS)
    for partition, offset in enumerate(found):
        assert offset >= story.acknowledged[partition]


def test_the_checks_see_what_they_are_for() -> None:
    story = Story()
    story.owned = [Owned(1, 7, "a", (0, 1)), Owned(1, 7, "b", (2,)), Owned(2, 8, "b", (0,))]
    assert story.owned_twice() == []
    story.owned.append(Owned(1, 7, "b", (1,)))
    story.owned.append(Owned(2, 9, "b", ()))
    assert len(story.owned_twice()) == 2
    story.read(0, 5, 5)
    assert story.lost == []
    story.read(0, 4, 5)
    assert len(story.lost) == 1
