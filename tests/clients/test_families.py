"""Every client family runs the same scenarios against one cluster; see scenarios.json."""

from __future__ import annotations

import pytest

from tests.clients.families import (
    FAMILIES,
    Family,
    differences,
    names_for,
    run_family,
    scenarios,
)
from tests.clients.groups import QUICK_GROUPS
from tests.live.clients import Topics
from tests.live.cluster import Cluster, broker_name

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

SETTINGS = (
    *QUICK_GROUPS,
    "offsets.topic.num.partitions=5",
    "transaction.state.log.num.partitions=5",
)
NOT_ENOUGH_REPLICAS = "not-enough-replicas"

each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("families"), settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """A folder for what must be compiled."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def one_dead_broker(cluster):
    """The topics of the last scenario, and then one broker fewer."""
    topics = Topics(cluster.bootstrap)
    for family in FAMILIES:
        name = f"{family.name}-{NOT_ENOUGH_REPLICAS}"
        topics.create(name, replicas=3, min_insync_replicas=3)
    cluster.kill(broker_name(103))
    for family in FAMILIES:
        topics.wait_isr(f"{family.name}-{NOT_ENOUGH_REPLICAS}", {101, 102})
    return cluster


def run(family: Family, cluster, programs, names):
    if reason := family.missing():
        pytest.skip(f"{family.name}: {reason}")
    lines = list(run_family(family, cluster.bootstrap, family.name, names, programs))
    assert differences(lines, names) == []


@each_family
def test_a_family_sees_what_it_must_see(family, cluster, programs):
    run(family, cluster, programs, names_for(family.name, needs_dead_broker=False))


@each_family
def test_a_family_is_told_that_replicas_are_missing(family, one_dead_broker, programs):
    run(family, one_dead_broker, programs, names_for(family.name, needs_dead_broker=True))


def test_scenarios_have_names_of_their_own_and_absences_of_known_families():
    names = [scenario.name for scenario in scenarios()]
    assert len(set(names)) == len(names)
    absent = {family for scenario in scenarios() for family in scenario.absent}
    assert absent <= {family.name for family in FAMILIES}


def test_a_difference_is_told():
    (first, *_) = scenarios()
    good = {"scenario": first.name, "outcome": first.outcome}
    bad = {"scenario": first.name, "outcome": {**first.outcome, "records": 19}}
    broken = {"scenario": first.name, "failure": "no broker"}
    assert differences([good], [first.name]) == []
    assert "19" in differences([bad], [first.name])[0]
    assert "no broker" in differences([broken], [first.name])[0]
    assert "no line" in differences([], [first.name])[0]
