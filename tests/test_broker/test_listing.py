"""The brokers that Metadata lists."""

from kvorum.broker.metadata_answers.fenced_broker_visibility import (
    FENCED_LISTING_MS,
    FencedBrokerVisibility,
)
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.persistent_map import Map
from tests.test_broker.led_partition import broker_image


def image(**fenced: bool) -> ClusterImage:
    return ClusterImage(
        brokers=Map({int(k[1:]): broker_image(int(k[1:]), is_fenced=v) for k, v in fenced.items()})
    )


def test_a_broker_that_was_never_unfenced_is_not_listed() -> None:
    listing = FencedBrokerVisibility()
    listing.observe(image(b1=False, b2=True), 0)
    assert listing.listed(image(b1=False, b2=True), 0) == (1,)


def test_a_broker_just_fenced_stays_listed_for_a_while() -> None:
    listing = FencedBrokerVisibility()
    before, after = image(b1=False, b2=False), image(b1=False, b2=True)
    listing.observe(before, 0)
    listing.observe(after, 100)
    assert listing.listed(after, 100 + FENCED_LISTING_MS - 1) == (1, 2)
    assert listing.listed(after, 100 + FENCED_LISTING_MS) == (1,)


def test_an_unregistered_broker_is_gone_at_once() -> None:
    listing = FencedBrokerVisibility()
    listing.observe(image(b1=False, b2=False), 0)
    listing.observe(image(b1=False, b2=True), 0)
    assert listing.listed(image(b1=False), 1) == (1,)
