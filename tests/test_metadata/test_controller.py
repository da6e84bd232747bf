import pytest

from kvorum.metadata.requests.controller_requests import AllocateProducerIds, CreateTopics, NewTopic
from kvorum.runtime.errors import InvariantViolated
from tests.test_metadata.worlds import World


def test_a_lost_leadership_drops_what_was_not_committed():
    world = World()
    controller = world.controller
    controller.decide(CreateTopics(topics=(NewTopic(name="t"),)), 0)
    assert controller.speculative.topic("t") is not None
    controller.renounce()
    assert controller.committed.topic("t") is None
    controller.claim(2, controller.committed.end_offset, 0)
    assert controller.speculative.topic("t") is None


def test_a_standby_decides_nothing():
    world = World()
    world.controller.renounce()
    with pytest.raises(InvariantViolated, match="standby"):
        world.create("t")


def test_a_claim_over_an_image_that_is_behind_is_a_bug():
    world = World()
    world.controller.renounce()
    with pytest.raises(InvariantViolated, match="claim"):
        world.controller.claim(2, world.image.end_offset + 5, 0)


def test_the_committed_image_never_goes_back():
    world = World()
    old = world.image
    world.create("t")
    with pytest.raises(InvariantViolated, match="go back"):
        world.controller.note_committed(old)


def test_no_block_of_producer_ids_is_handed_out_twice_even_across_fail_over():
    world = World()
    request = AllocateProducerIds(broker_id=101, broker_epoch=world.epochs[101])
    first = world.ask(request)
    world.controller.renounce()
    world.controller.claim(2, world.image.end_offset, 0)
    second = world.ask(request)
    assert first.start + first.length <= second.start
