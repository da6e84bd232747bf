import pytest

from kvorum.metadata.controller.core.controller import ControllerConfig
from kvorum.metadata.image.records import NO_LEADER
from kvorum.metadata.requests.controller_requests import (
    AlterReassignments,
    CreatePartitions,
    ElectionType,
    ElectLeaders,
    NewPartitions,
    Reassignment,
    UnregisterBrokerRequest,
    UnregisteredBroker,
)
from kvorum.metadata.requests.directory_requests import AssignReplicas, ReplicaDirectory
from kvorum.runtime.errors import ErrorCode, Rejected
from tests.test_metadata.worlds import World


def test_a_brokers_epoch_is_the_offset_of_its_registration():
    world = World(brokers=())
    offset = world.image.end_offset
    assert world.register(101).broker_epoch == offset


def test_a_broker_stays_fenced_until_it_has_caught_up():
    world = World(brokers=())
    world.epochs[101] = world.register(101).broker_epoch
    assert world.heartbeat(101, metadata_offset=world.epochs[101]).is_fenced
    assert not world.heartbeat(101, metadata_offset=world.epochs[101] + 1).is_fenced


def test_the_same_incarnation_keeps_its_epoch():
    world = World()
    assert world.register(101, incarnation=1).broker_epoch == world.epochs[101]


def test_a_second_process_under_a_living_id_is_refused():
    world = World()
    refused = world.register(101, incarnation=2)
    assert isinstance(refused, Rejected)
    assert refused.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_restarted_process_takes_over_at_once_when_the_old_stream_broke():
    world = World()
    world.create("t")
    leader = world.partition().leader
    world.controller.sessions.stream_broke(leader, world.epochs[leader], 0)
    taken = world.register(leader, incarnation=2)
    assert taken.broker_epoch > world.epochs[leader]
    assert leader not in world.partition().isr
    assert world.image.brokers[leader].is_fenced
    # The epoch is the offset of the registration record itself, which follows the changes that it
    # caused.
    assert world.records[taken.broker_epoch].broker_id == leader


X, Y, Z = (bytes([last]) * 16 for last in (200, 201, 202))
SESSION_MS = ControllerConfig().broker_session_timeout_ms


def claimed_anew(world, *, log_dirs):
    """Broker 101 has these data directories; then another controller becomes active."""
    world.epochs[101] = world.register(101, log_dirs=log_dirs).broker_epoch
    world.heartbeat(101)
    world.controller.claim(2, world.image.end_offset, world.now_ms)
    world.records += world.controller.begin()
    world.controller.note_committed(world.controller.speculative)


def test_after_a_claim_a_restarted_process_takes_over_at_once_on_its_own_directories():
    world = World(brokers=())
    claimed_anew(world, log_dirs=(X, Y))
    assert world.register(101, 2, log_dirs=(Y, Z)).broker_epoch > world.epochs[101]


def test_after_a_claim_a_process_with_other_directories_waits_for_the_session_time():
    world = World(brokers=())
    claimed_anew(world, log_dirs=(X,))
    world.now_ms = SESSION_MS - 1
    refused = world.register(101, 2, log_dirs=(Z,))
    assert refused.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert "stop it, or give this one a node.id of its own" in refused.message
    world.now_ms = SESSION_MS
    assert world.register(101, 2, log_dirs=(Z,)).broker_epoch > world.epochs[101]


def test_a_process_with_other_directories_never_replaces_one_that_is_heard():
    world = World(brokers=())
    claimed_anew(world, log_dirs=(X,))
    sessions = world.controller.sessions
    for world.now_ms in range(0, 3 * SESSION_MS, SESSION_MS):
        world.heartbeat(101)
        # A link that flaps: the broker is fenced, and returns.
        sessions.stream_broke(101, world.epochs[101], world.now_ms)
        assert world.expire(world.now_ms + sessions.grace_ms(101, world.now_ms)) == [101]
        refused = world.register(101, 2, log_dirs=(Z,))
        assert refused.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert not world.heartbeat(101).is_fenced


def test_a_broker_that_is_fenced_at_the_claim_may_be_alive_too():
    world = World(brokers=())
    world.epochs[101] = world.register(101, log_dirs=(X,)).broker_epoch  # it has not caught up
    world.controller.claim(2, world.image.end_offset, world.now_ms)
    refused = world.register(101, 2, log_dirs=(Z,))
    assert refused.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert "and may be alive, on other data directories, at localhost:9101" in refused.message


def test_an_unregistered_brokers_id_may_be_taken_with_other_directories_at_once():
    world = World(brokers=())
    claimed_anew(world, log_dirs=(X,))
    assert isinstance(world.ask(UnregisterBrokerRequest(broker_id=101)), UnregisteredBroker)
    assert world.register(101, 2, log_dirs=(Z,)).broker_epoch > world.epochs[101]


def test_a_foreign_cluster_is_refused():
    refused = World().register(104, cluster_id="AAAAAAAAAAAAAAAAAAAAAA")
    assert refused.code is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_a_broker_may_not_take_the_id_of_a_controller():
    world = World(brokers=())
    world.controller.voter_ids = (1, 2, 3)
    refused = world.register(2)
    assert refused.code is ErrorCode.INVALID_REGISTRATION
    assert "node 2 is a controller" in refused.message
    assert not world.image.brokers


def test_heartbeats_of_an_old_epoch_or_an_unknown_broker_are_refused():
    world = World()
    world.epochs[101] += 100
    assert world.heartbeat(101).code is ErrorCode.STALE_BROKER_EPOCH
    world.epochs[999] = 1
    assert world.heartbeat(999).code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_silence_fences_a_broker_after_its_session_timeout():
    world = World()
    world.now_ms = 1_000
    world.heartbeat(101)
    world.heartbeat(103)
    assert world.expire(1_999) == []
    assert world.expire(2_000) == [102]
    assert world.image.brokers[102].is_fenced


def test_a_broken_stream_fences_after_the_grace_and_not_if_it_returns():
    world = World()
    world.controller.sessions.stream_broke(101, world.epochs[101], 0)
    world.controller.sessions.stream_broke(102, world.epochs[102], 0)
    world.now_ms = 50
    world.heartbeat(102)
    assert world.expire(100) == [101]


def test_the_end_of_an_old_processs_stream_does_not_fence_the_new_one():
    world = World()
    old = world.epochs[101]
    world.controller.sessions.stream_broke(101, old, 0)
    world.epochs[101] = world.register(101, incarnation=2).broker_epoch
    world.heartbeat(101)
    world.controller.sessions.stream_broke(101, old, 0)
    assert world.expire(150) == []


def test_a_controller_that_stood_still_judges_nobody_by_it():
    world = World()
    world.controller.sessions.on_timer(2_000, 7_000)
    assert world.expire(6_999) == []


def test_a_timer_a_little_late_is_no_stall():
    world = World()
    world.controller.sessions.on_timer(2_000, 2_100)
    assert world.expire(2_100) == [101, 102, 103]


def test_a_new_active_controller_gives_everybody_a_fresh_session():
    world = World()
    world.controller.renounce()
    world.controller.claim(2, world.image.end_offset, 100_000)
    assert world.expire(101_999) == []
    assert world.expire(102_000) == [101, 102, 103]


def test_fencing_moves_leadership_to_the_next_in_sync_replica():
    world = World()
    world.create("t")
    before = world.partition()
    world.controller.sessions.stream_broke(before.leader, world.epochs[before.leader], 0)
    world.expire(100)
    after = world.partition()
    assert after.leader == before.replicas[1]
    assert after.leader_epoch == before.leader_epoch + 1
    assert before.leader not in after.isr


def test_fencing_a_follower_shrinks_the_isr_without_a_new_leader_epoch():
    world = World()
    world.create("t")
    before = world.partition()
    follower = before.replicas[2]
    world.controller.sessions.stream_broke(follower, world.epochs[follower], 0)
    world.expire(100)
    after = world.partition()
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
    assert after.partition_epoch == before.partition_epoch + 1


def test_the_last_in_sync_replica_stays_in_the_isr_and_leads_again_when_it_returns():
    world = World()
    world.create("t")
    order = world.partition().replicas
    for at_ms, broker_id in enumerate(order, start=1):
        world.controller.sessions.stream_broke(broker_id, world.epochs[broker_id], 0)
        world.expire(100 * at_ms)
    # All three died at once: the last one to be fenced holds all acknowledged records.
    partition = world.partition()
    assert partition.leader == NO_LEADER
    assert len(partition.isr) == 1
    (last,) = partition.isr
    other = next(b for b in order if b != last)
    world.join(other, incarnation=2)
    assert world.partition().leader == NO_LEADER
    world.join(last, incarnation=2)
    assert world.partition().leader == last


@pytest.mark.parametrize("ahead", [{"metadata_offset": 1}, {"metadata_epoch": 1}])
def test_a_broker_with_more_metadata_than_the_quorum_does_not_join(ahead):
    """The voters have lost their disks: a broker that joined them would drop what it has."""
    world = World(brokers=())
    quorum = {"metadata_offset": world.image.end_offset, "metadata_epoch": world.controller.epoch}
    more = {name: value + ahead.get(name, 0) for name, value in quorum.items()}
    refused = world.register(101, **more)
    assert refused.code is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert "its voters have lost records, or are those of another quorum" in refused.message
    assert world.register(101, **quorum).broker_epoch >= 0


def test_controlled_shutdown_moves_leaders_first():
    world = World()
    world.create("t", partitions=6)
    reply = world.heartbeat(101, want_shutdown=True)
    assert reply.should_shut_down
    for partition in world.image.topic("t").partitions.values():
        assert partition.leader != 101
        assert 101 not in partition.isr


def test_a_broker_that_shuts_down_gets_no_new_replicas():
    world = World()
    world.heartbeat(101, want_shutdown=True)
    assert world.create("t", factor=3).error is ErrorCode.INVALID_REPLICATION_FACTOR
    world.create("u", factor=2)
    assert sorted(world.partition("u").replicas) == [102, 103]


def test_a_broker_that_was_shut_down_gets_replicas_as_any_fenced_one():
    """Or a planned stop of one of three brokers would stop the creation of topics."""
    world = World()
    world.heartbeat(101, want_shutdown=True)
    world.fence(101)
    assert world.image.brokers[101].in_controlled_shutdown
    assert world.create("t", factor=3).error is ErrorCode.NONE
    partition = world.partition("t")
    assert sorted(partition.replicas) == [101, 102, 103]
    assert partition.leader != 101 and 101 not in partition.isr
    (grown,) = world.ask(CreatePartitions(topics=(NewPartitions(name="t", count=3),)))
    assert grown.error is ErrorCode.NONE


def test_brokers_that_expire_together_are_fenced_together():
    # Bad sequence: 1. A fencing is decided before the records of the one before it are appended. 2.
    # The speculative image is ahead of the log. 3. The check of that ended every new active
    # controller of a restarted cluster.
    world = World()
    before = world.controller.speculative.end_offset
    fenced, records = world.controller.fence_next(2_000)
    assert list(fenced) == [101, 102, 103]
    assert world.controller.speculative.end_offset == before + len(records)


def test_a_broker_that_said_goodbye_may_come_back_at_once():
    world = World()
    world.heartbeat(101, want_shutdown=True)
    assert world.register(101, incarnation=2).broker_epoch > world.epochs[101]


def test_a_session_only_presumed_by_a_new_controller_keeps_nobody_out():
    world = World()
    world.controller.renounce()
    world.controller.claim(2, world.image.end_offset, 0)
    assert world.register(101, incarnation=2).broker_epoch > world.epochs[101]
    world.heartbeat(102)
    assert isinstance(world.register(102, incarnation=2), Rejected)


def unregister(world, broker_id):
    return world.ask(UnregisterBrokerRequest(broker_id=broker_id))


def test_a_dead_broker_is_forgotten_and_its_replicas_stay_assigned():
    world = World()
    world.create("t", assignments=((101, 102, 103),), partitions=-1, factor=-1)
    leader = world.partition().leader
    assert world.expire_alone(leader, 10_000) == [leader]
    world.expire(20_000)
    for broker_id in world.epochs:
        if broker_id != leader:
            world.join(broker_id, incarnation=2)
    assert unregister(world, leader) == UnregisteredBroker()
    assert leader not in world.image.brokers
    assert leader in world.partition().replicas
    assert leader not in world.partition().isr
    refused = world.heartbeat(leader)
    assert refused.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    # Its id may be registered again.
    assert not world.join(leader, incarnation=3).is_fenced


def test_a_living_or_unknown_broker_is_not_unregistered():
    world = World()
    assert unregister(world, 101).message == "broker 101 is alive: stop it first"
    assert unregister(world, 109).code is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert 101 in world.image.brokers


def lost_for_good(world, broker_id):
    world.controller.sessions.stream_broke(broker_id, world.epochs[broker_id], world.now_ms)
    assert broker_id in world.expire(world.now_ms + 1_000)
    assert unregister(world, broker_id) == UnregisteredBroker()


def test_a_lost_machine_that_alone_was_in_sync_is_forgotten_and_leaves_no_leader():
    world = World()
    world.create("t", assignments=((101,),), partitions=-1, factor=-1)
    lost_for_good(world, 101)
    assert 101 not in world.image.brokers
    partition = world.partition()
    assert (partition.replicas, partition.isr, partition.leader) == ((101,), (101,), NO_LEADER)
    assert 101 not in partition.elr
    assert unregister(world, 101).code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_an_unclean_election_follows_a_lost_machine_that_alone_was_in_sync():
    world = World()
    world.create("t", assignments=((101, 102),), partitions=-1, factor=-1)
    world.expire_alone(101, 10_000)
    world.expire(20_000)
    world.join(102, incarnation=2)
    alone = world.partition()
    assert (alone.isr, alone.leader) == ((102,), 102)
    lost_for_good(world, 102)
    world.join(101, incarnation=2)
    assert world.partition().leader == NO_LEADER
    (elected,) = world.ask(ElectLeaders(election=ElectionType.UNCLEAN, partitions=(("t", 0),)))
    assert elected.error is ErrorCode.NONE
    assert (world.partition().isr, world.partition().leader) == ((101,), 101)


def test_a_reassignment_and_an_unclean_election_bring_back_a_partition_of_a_lost_machine():
    world = World()
    world.create("t", assignments=((101,),), partitions=-1, factor=-1)
    lost_for_good(world, 101)
    moved = Reassignment(topic="t", partition_id=0, replicas=(102,))
    (answer,) = world.ask(AlterReassignments(reassignments=(moved,)))
    assert answer.error is ErrorCode.NONE
    world.ask(ElectLeaders(election=ElectionType.UNCLEAN, partitions=(("t", 0),)))
    partition = world.partition()
    assert (partition.replicas, partition.isr, partition.leader) == ((102,), (102,), 102)


def test_a_new_machine_under_a_lost_id_does_not_lead_what_it_does_not_hold():
    world = World(brokers=())
    world.epochs[101] = world.register(101, log_dirs=(X,)).broker_epoch
    world.heartbeat(101)
    world.create("t", assignments=((101,),), partitions=-1, factor=-1)
    told = ReplicaDirectory(topic_id=world.image.topic_ids["t"], partition_id=0, directory_id=X)
    world.ask(AssignReplicas(broker_id=101, broker_epoch=world.epochs[101], replicas=(told,)))
    lost_for_good(world, 101)
    world.epochs[101] = world.register(101, 2, log_dirs=(Z,)).broker_epoch
    world.heartbeat(101)
    assert not world.image.brokers[101].is_fenced
    assert world.partition().leader == NO_LEADER
