"""Leaders, eligible leaders, and last known leaders: KIP-966, KIP-460."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.metadata.controller.core.controller import ControllerConfig
from kvorum.metadata.controller.decide import elections
from kvorum.metadata.controller.decide.eligible_brokers import ElectionRules
from kvorum.metadata.controller.decide.elr_clearing import with_elr_cleared
from kvorum.metadata.controller.decide.partition_change import change, dropped, without
from kvorum.metadata.image.image import PartitionImage
from kvorum.metadata.image.records import NO_LEADER, RECOVERED, RECOVERING, Config
from kvorum.metadata.requests.controller_requests import (
    ElectionType,
    ElectLeaders,
    UnregisterBrokerRequest,
)
from kvorum.runtime.errors import ErrorCode
from tests.test_metadata.worlds import World

A, B, C = 101, 102, 103


def world_with(*, unclean="false", min_isr=1, config=None, replicas=(A, B, C)):
    world = World(brokers=(A, B, C, 104), config=config)
    made = world.create(
        "t",
        partitions=-1,
        factor=-1,
        assignments=(replicas,),
        configs=(
            ("unclean.leader.election.enable", unclean),
            ("min.insync.replicas", str(min_isr)),
        ),
    )
    assert made.error is ErrorCode.NONE, made
    return world


def elect(world, election=ElectionType.PREFERRED, partitions=(("t", 0),)):
    return world.ask(ElectLeaders(partitions=partitions, election=election))


def state(world):
    partition = world.partition()
    return partition.leader, partition.isr, partition.elr


# Online elections.


def test_the_first_active_member_of_the_isr_in_the_order_of_the_replicas_leads_next():
    world = world_with(replicas=(C, A, B))
    world.propose([B, C, A])
    world.fence(C)
    assert state(world) == (A, (B, A), ())


def test_the_last_member_stays_in_the_isr_and_brings_the_partition_back():
    world = world_with()
    for broker_id in (A, B, C):
        world.fence(broker_id)
    assert state(world) == (NO_LEADER, (C,), ())
    assert world.partition().last_known_elr == (C,)
    world.heartbeat(A)
    assert state(world) == (NO_LEADER, (C,), ())
    world.heartbeat(C)
    assert state(world) == (C, (C,), ())
    assert world.partition().last_known_elr == ()


def test_a_leader_epoch_rises_with_every_leader_and_not_with_the_isr():
    world = world_with()
    world.propose([A, B])
    assert (world.partition().leader_epoch, world.partition().partition_epoch) == (0, 1)
    world.fence(A)
    assert (world.partition().leader_epoch, world.partition().partition_epoch) == (1, 2)


# Eligible leader replicas.


def test_who_leaves_an_isr_below_the_minimum_is_eligible():
    world = world_with(min_isr=2)
    world.propose([A, B])
    assert state(world) == (A, (A, B), ())
    world.propose([A])
    assert state(world) == (A, (A,), (B,))


def test_the_elr_ends_when_the_isr_has_the_minimum_again():
    world = world_with(min_isr=2)
    world.propose([A])
    assert state(world) == (A, (A,), (B, C))
    world.propose([A, C])
    assert state(world) == (A, (A, C), ())


def test_an_eligible_replica_leads_when_the_isr_is_fenced():
    world = world_with(min_isr=2)
    world.fence(C)
    world.fence(B)
    world.fence(A)
    assert state(world) == (NO_LEADER, (A,), (B,))
    world.heartbeat(C)  # left while the ISR still had its minimum, so it is not in the ELR
    assert state(world) == (NO_LEADER, (A,), (B,))
    world.heartbeat(B)
    assert state(world) == (B, (B,), (A,))
    assert world.partition().leader_recovery_state == RECOVERED


def test_a_minimum_above_the_number_of_replicas_is_that_number():
    world = world_with(min_isr=3, replicas=(A, B))
    world.propose([A])
    assert state(world) == (A, (A,), (B,))
    world.propose([A, B])
    assert state(world) == (A, (A, B), ())


def test_without_a_minimum_nobody_is_eligible():
    world = world_with(min_isr=1)
    world.propose([A])
    assert state(world) == (A, (A,), ())


def test_an_unclean_restart_ends_eligibility_and_a_clean_one_does_not():
    world = world_with(min_isr=3)
    world.propose([A])
    world.fence(B)
    world.fence(C)
    world.restart(B, is_clean=True)
    assert world.partition().elr == (B, C)
    world.restart(C, is_clean=False)
    assert world.partition().elr == (B,)


def test_an_unregistered_broker_is_no_eligible_leader_and_gives_way_to_one():
    world = world_with(min_isr=3)
    world.propose([A, B])
    world.fence(C)
    world.fence(B)
    world.fence(A)
    assert state(world) == (NO_LEADER, (A,), (B, C))
    for broker_id in (C, A):
        world.ask(UnregisterBrokerRequest(broker_id=broker_id))
    assert state(world) == (NO_LEADER, (B,), ())
    world.heartbeat(B)
    assert state(world) == (B, (B,), ())


def test_a_lost_last_member_gives_way_to_an_eligible_replica():
    world = world_with(min_isr=2)
    world.propose([A, B])
    world.fence(B)
    world.fence(A)
    assert state(world) == (NO_LEADER, (A,), (B,))
    world.restart(A, is_clean=False)
    assert state(world) == (NO_LEADER, (B,), ())
    assert world.partition().last_known_elr == (A,)
    world.heartbeat(B)
    assert state(world) == (B, (B,), ())


def test_a_lost_last_member_without_an_eligible_one_stays():
    world = world_with(min_isr=1)
    for broker_id in (C, B, A):
        world.fence(broker_id)
    world.restart(A, is_clean=False)
    assert state(world) == (A, (A,), ())


def eligible_under(*minimums):
    """A partition with an ELR, after these records."""
    world = World(brokers=(A, B, C))
    world.create("t", partitions=-1, factor=-1, assignments=((A, B, C),))
    world.commit(*minimums)
    world.propose([A])
    assert world.partition().elr == (B, C)
    return world


OWN, DEFAULT = (2, "t", "min.insync.replicas"), (4, "", "min.insync.replicas")


@pytest.mark.parametrize(
    "known, changed",
    [(OWN, OWN), (DEFAULT, DEFAULT), (DEFAULT, (4, "101", "min.insync.replicas"))],
)
@pytest.mark.parametrize("value", ["1", None])
def test_another_minimum_empties_the_elr_before_it_holds(known, changed, value):
    world = eligible_under(Config(*known, "2"))
    config = Config(*changed, value)
    cleared, last = with_elr_cleared(world.image, [config])
    assert (cleared.elr, last) == ((), config)
    other = Config(*changed[:2], "retention.ms", "1")
    assert with_elr_cleared(world.image, [other]) == (other,)


@pytest.mark.parametrize("name", ["", "101"])
def test_a_minimum_of_brokers_leaves_the_elrs_of_topics_that_have_their_own(name):
    world = eligible_under(Config(*OWN, "2"))
    config = Config(4, name, "min.insync.replicas", "3")
    assert with_elr_cleared(world.image, [config]) == (config,)


@pytest.mark.parametrize("own", [None, "1"])
def test_a_topics_own_minimum_that_goes_with_the_default_empties_its_elr(own):
    world = eligible_under(Config(*OWN, "2"), Config(*DEFAULT, "2"))
    for records in (
        (Config(*DEFAULT, "1"), Config(*OWN, own)),
        (Config(*OWN, own), Config(*DEFAULT, "1")),
    ):
        cleared, *others = with_elr_cleared(world.image, records)
        assert (cleared.elr, tuple(others)) == ((), records)


@pytest.mark.parametrize("text", ["2", "+2", " 2 ", "02"])
def test_a_minimum_counts_as_brokers_read_it(text):
    world = world_with(min_isr=text)
    world.propose([A])
    assert world.partition().elr == (B, C)


@pytest.mark.parametrize("text", ["true", "TRUE", " True "])
def test_whether_unclean_elections_are_allowed_counts_as_it_is_described(text):
    world = world_with(unclean=text)
    world.propose([A])
    world.fence(A)
    assert world.partition().leader in (B, C)


def test_the_clusters_default_minimum_holds_where_the_topic_has_none():
    world = World(brokers=(A, B, C))
    world.commit(Config(4, "", "min.insync.replicas", "2"))
    world.create("t")
    leader = world.partition().leader
    world.propose([leader])
    assert len(world.partition().elr) == 2


def test_a_brokers_own_lower_minimum_holds_for_all_where_the_topic_has_none():
    world = World(brokers=(A, B, C))
    world.commit(Config(4, "", "min.insync.replicas", "2"))
    world.commit(Config(4, str(B), "min.insync.replicas", "1"))
    world.create("t")
    world.propose([world.partition().leader])
    assert world.partition().elr == ()


# Unclean elections.


def offline(world):
    """B and C leave the ISR and are fenced; A, alone in the ISR, is fenced too; then B comes
    back."""
    world.propose([A])
    for broker_id in (B, C, A):
        world.fence(broker_id)
    world.heartbeat(B)
    return world


def test_an_unclean_election_is_not_held_unless_it_is_allowed():
    assert state(offline(world_with())) == (NO_LEADER, (A,), ())


def test_an_unclean_election_is_held_at_once_where_it_is_allowed():
    world = offline(world_with(unclean="true"))
    partition = world.partition()
    assert (partition.leader, partition.isr) == (B, (B,))
    assert partition.leader_recovery_state == RECOVERING
    world.heartbeat(A)
    world.propose([B, A])
    assert world.partition().leader_recovery_state == RECOVERED


def test_the_topics_word_on_unclean_elections_beats_the_defaults():
    config = ControllerConfig(unclean_leader_election_enable=True)
    assert state(offline(world_with(unclean="false", config=config))) == (NO_LEADER, (A,), ())
    silent = World(brokers=(A, B, C), config=config)
    silent.create("t", partitions=-1, factor=-1, assignments=((A, B, C),))
    assert state(offline(silent)) == (B, (B,), ())


def test_an_unclean_election_forgets_who_was_eligible():
    world = world_with(unclean="true", min_isr=2)
    world.propose([A, B])
    world.fence(B)
    world.fence(A)
    partition = world.partition()
    assert (partition.leader, partition.isr, partition.elr) == (C, (C,), ())
    assert partition.leader_recovery_state == RECOVERING


def test_an_unclean_election_prefers_the_last_leader():
    world = world_with(min_isr=2)
    world.propose([A, B])
    for broker_id in (B, C, A):
        world.fence(broker_id)
    # A, the last leader, comes back after an unclean stop and may lack records; B is in the ELR,
    # but down.
    world.restart(A, is_clean=False)
    world.heartbeat(C)
    (elected,) = elect(world, ElectionType.UNCLEAN)
    assert elected.error is ErrorCode.NONE
    assert state(world) == (A, (A,), ())


def test_an_operator_may_order_an_unclean_election_where_none_is_allowed():
    world = offline(world_with())
    (elected,) = elect(world, ElectionType.UNCLEAN)
    assert elected.error is ErrorCode.NONE
    assert state(world) == (B, (B,), ())


@pytest.mark.parametrize("election", list(ElectionType))
def test_an_election_that_is_not_needed_or_cannot_be_held_says_so(election):
    world = world_with()
    assert elect(world, election)[0].error is ErrorCode.ELECTION_NOT_NEEDED
    for broker_id in (A, B, C):
        world.fence(broker_id)
    unavailable = {
        ElectionType.PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ElectionType.UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    }
    assert elect(world, election)[0].error is unavailable[election]
    for name, partition_id in (("t", 7), ("nobody", 0)):
        (unknown,) = elect(world, election, ((name, partition_id),))
        assert unknown.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_one_bad_item_does_not_spoil_an_election():
    world = world_with()
    world.fence(A)
    world.heartbeat(A)
    world.propose([A, B, C])
    answers = elect(world, partitions=(("nobody", 0), ("t", 0), ("t", 0)))
    assert [a.error for a in answers] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert world.partition().leader == A


# The periodic check.


def unbalanced(partitions, **config):
    """All partitions prefer A, which is back in sync and leads none."""
    world = World(brokers=(A, B, C), config=ControllerConfig(**config))
    world.create("t", partitions=-1, factor=-1, assignments=((A, B, C),) * partitions)
    world.fence(A)
    world.heartbeat(A)
    for partition_id in range(partitions):
        world.propose([A, B, C], partition_id=partition_id)
    return world


def sweep(world):
    """One whole sweep; the number of elections in each chunk."""
    sizes, at = [], None
    while True:
        decision = world.controller.sweep_leaders(at)
        world.controller.note_committed(world.controller.speculative)
        sizes.append(len(decision.records))
        at = decision.reply
        if at is None:
            return sizes


def test_the_check_gives_leadership_back_to_preferred_leaders():
    world = unbalanced(3)
    assert {world.partition("t", i).leader for i in range(3)} == {B}
    assert sweep(world) == [3]
    assert {world.partition("t", i).leader for i in range(3)} == {A}
    assert sweep(world) == [0]


def test_the_check_goes_in_bounded_chunks(monkeypatch):
    monkeypatch.setattr(elections, "SWEEP_ELECTIONS_MAX", 2)
    assert sweep(unbalanced(5)) == [2, 2, 1]
    monkeypatch.setattr(elections, "SWEEP_PARTITIONS_MAX", 1)
    assert sweep(unbalanced(3)) == [1, 1, 1]


def test_the_check_leaves_leaders_alone_where_that_is_configured():
    world = unbalanced(2, auto_leader_rebalance_enable=False)
    assert sweep(world) == [0]


def test_the_check_passes_over_topics_that_went_away_under_it(monkeypatch):
    monkeypatch.setattr(elections, "SWEEP_ELECTIONS_MAX", 1)
    world = unbalanced(2)
    world.create("u", partitions=-1, factor=-1, assignments=((A, B),))
    decision = world.controller.sweep_leaders(None)
    world.controller.note_committed(world.controller.speculative)
    world.delete("t")
    world.delete("u")
    assert world.controller.sweep_leaders(decision.reply).reply is None


def test_the_check_holds_unclean_elections_that_have_become_allowed():
    world = offline(world_with())
    assert sweep(world) == [0]
    world.commit(Config(2, "t", "unclean.leader.election.enable", "true"))
    assert sweep(world) == [1]
    assert world.partition().leader == B


# The shortcut for a dead broker.

members = st.lists(st.integers(1, 5), unique=True)


@given(
    members.filter(bool),
    members.filter(bool),
    members,
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.sets(st.integers(2, 5)),
    st.integers(1, 4),
    st.integers(0, 2),
    st.sampled_from([{1}, {1, 2}, {1, 2, 3, 4}]),
)
def test_the_short_way_leads_to_the_same_record(
    replicas, in_sync, eligible, special, active, min_isr, leader, gone
):
    isr = tuple(r for r in in_sync if r in replicas) or (replicas[0],)
    partition = PartitionImage(
        tuple(replicas),
        isr,
        (*isr, NO_LEADER, NO_LEADER)[leader],
        3,
        4,
        adding_replicas=tuple(replicas[:1]) if special[0] else (),
        elr=tuple(r for r in eligible if r in replicas and r not in isr) if special[1] else (),
        last_known_elr=tuple(replicas[:1]) if special[2] else (),
    )
    rules = ElectionRules(active=active, min_isr=min_isr)
    for is_lost in (False, True):
        slow = change((b"t" * 16, 0), partition, without(partition, gone, is_lost=is_lost), rules)
        assert dropped((b"t" * 16, 0), partition, gone, rules, is_lost=is_lost) == slow
