import pytest

from kvorum.metadata.requests.controller_requests import AlterPartition, ElectLeaders, IsrProposal
from kvorum.runtime.errors import ErrorCode, Rejected
from tests.test_metadata.worlds import World


@pytest.fixture
def world():
    world = World()
    world.create("t")
    return world


def proposal(world, isr, **changes):
    partition = world.partition()
    fields = {
        "topic_id": world.image.topic("t").topic_id,
        "partition_id": 0,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "new_isr": tuple((broker_id, world.epochs.get(broker_id, -1)) for broker_id in isr),
    }
    return IsrProposal(**{**fields, **changes})


def propose(world, isr, *, sender=None, **changes):
    sender = world.partition().leader if sender is None else sender
    request = AlterPartition(
        broker_id=sender,
        broker_epoch=world.epochs[sender],
        proposals=(proposal(world, isr, **changes),),
    )
    reply = world.ask(request)
    return reply if isinstance(reply, Rejected) else reply[0]


def test_a_leader_shrinks_and_expands_its_isr(world):
    leader, second, third = world.partition().replicas
    shrunk = propose(world, [leader, second])
    assert (shrunk.error, shrunk.isr, shrunk.partition_epoch) == (
        ErrorCode.NONE,
        (leader, second),
        1,
    )
    assert world.partition().isr == (leader, second)
    assert propose(world, [leader, second, third]).partition_epoch == 2
    assert world.partition().leader_epoch == 0


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"topic_id": b"x" * 16}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"partition_id": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
def test_stale_and_strange_proposals_are_refused(world, changes, error):
    before = world.image
    assert propose(world, world.partition().replicas, **changes).error is error
    assert world.image.topic("t") == before.topic("t")


def test_only_the_leader_may_propose(world):
    follower = world.partition().replicas[1]
    assert propose(world, [follower], sender=follower).error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("members", [[], [0, 0], [0, 104], [1, 2]])
def test_an_isr_without_the_leader_or_with_strangers_is_refused(world, members):
    replicas = world.partition().replicas
    isr = [replicas[m] if m < 3 else m for m in members]
    assert propose(world, isr).error is ErrorCode.INVALID_REQUEST


def test_a_fenced_member_is_ineligible(world):
    leader, second, third = world.partition().replicas
    world.controller.sessions.stream_broke(third, world.epochs[third], 0)
    world.expire(100)
    assert propose(world, [leader, second, third]).error is ErrorCode.INELIGIBLE_REPLICA


def test_a_member_that_restarted_since_is_ineligible(world):
    # KIP-903: it may have come back with an empty disk.
    leader, second, third = world.partition().replicas
    old = world.epochs[third]
    world.controller.sessions.stream_broke(third, old, 0)
    world.expire(100)
    world.join(third, incarnation=2)
    isr = ((leader, world.epochs[leader]), (second, world.epochs[second]), (third, old))
    assert propose(world, [], new_isr=isr).error is ErrorCode.INELIGIBLE_REPLICA


def test_a_stale_broker_epoch_refuses_the_whole_request(world):
    leader = world.partition().leader
    world.epochs[leader] -= 1
    assert propose(world, [leader]).code is ErrorCode.STALE_BROKER_EPOCH


def test_preferred_election_brings_the_first_replica_back(world):
    preferred, second, third = world.partition().replicas
    world.controller.sessions.stream_broke(preferred, world.epochs[preferred], 0)
    world.expire(100)
    world.join(preferred, incarnation=2)
    (refused,) = world.ask(ElectLeaders(partitions=(("t", 0),)))
    assert refused.error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    propose(world, [second, third, preferred])
    (elected,) = world.ask(ElectLeaders(partitions=(("t", 0),)))
    assert elected.error is ErrorCode.NONE
    assert world.partition().leader == preferred
    (again,) = world.ask(ElectLeaders(partitions=(("t", 0),)))
    assert again.error is ErrorCode.ELECTION_NOT_NEEDED
    assert world.ask(ElectLeaders()) == ()


def test_only_the_leader_proposes():
    world = World()
    world.create("t")
    partition = world.partition()
    follower = next(r for r in partition.replicas if r != partition.leader)
    refused = world.propose([partition.leader], sender=follower)
    assert refused.error is ErrorCode.INVALID_REQUEST
    assert world.partition() == partition
