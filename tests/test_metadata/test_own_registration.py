"""A controller's own registration in the metadata, and another process that takes its place."""

from __future__ import annotations

from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.metadata.image.records import Endpoint, RegisterController
from kvorum.metadata.rpc.own_registration import OwnRegistration

OWN, EARLIER, LATER = (bytes([n]) * 16 for n in (1, 2, 3))


def image_with(incarnation_id, controller_id=1):
    delta = Delta(EMPTY_IMAGE)
    endpoint = Endpoint("CONTROLLER", "h", 9093)
    delta.replay_all([RegisterController(controller_id, incarnation_id, (endpoint,), {})])
    return delta.apply(end_offset=1, epoch=1)


def test_another_process_that_registers_later_replaces_this_one():
    own = OwnRegistration(1, OWN)
    assert own.replaced(image_with(OWN)) is None
    reason = own.replaced(image_with(LATER))
    assert reason.startswith("another process has registered as controller 1, at h:9093: ")


def test_the_registration_of_an_earlier_process_replaces_nobody():
    own = OwnRegistration(1, OWN)
    assert own.replaced(image_with(EARLIER)) is None
    assert not own.is_in(image_with(EARLIER))
    assert own.is_in(image_with(OWN))


def test_a_registration_that_an_operator_removed_is_missed_once_it_was_there():
    own = OwnRegistration(1, OWN)
    assert not own.is_removed(EMPTY_IMAGE)
    own.replaced(image_with(OWN))
    assert not own.is_removed(image_with(OWN))
    assert own.is_removed(EMPTY_IMAGE)
    assert not own.is_removed(image_with(LATER))


def test_a_metadata_without_this_controller_replaces_nobody():
    own = OwnRegistration(1, OWN)
    assert own.replaced(image_with(OWN)) is None
    assert own.replaced(EMPTY_IMAGE) is None
    assert own.replaced(image_with(LATER, controller_id=2)) is None
