"""The images in which a broker asks for `__kvorum_events`."""

from __future__ import annotations

from functools import partial

import pytest

from kvorum.broker.events.topic import TopicStep, topic_step
from kvorum.broker.metadata_answers.topic_names import EVENTS_TOPIC
from kvorum.metadata.image.records import Endpoint, RegisterBroker, Topic
from tests.test_metadata.event_source import image_of

ENDPOINT = Endpoint("PLAINTEXT", "host", 9092)


def registered(broker_id: int, epoch: int, *, is_fenced: bool = False) -> RegisterBroker:
    return RegisterBroker(broker_id, epoch, bytes(16), (ENDPOINT,), is_fenced=is_fenced)


@pytest.mark.parametrize(
    ("epoch", "is_fenced", "others", "step"),
    [
        (7, False, 2, TopicStep.MAKE),
        (7, False, 1, TopicStep.WAIT),
        (7, True, 3, TopicStep.NONE),
        (8, False, 3, TopicStep.NONE),
        (-1, False, 3, TopicStep.NONE),
    ],
)
def test_a_broker_asks_in_images_in_which_its_own_process_serves(
    epoch: int, is_fenced: bool, others: int, step: TopicStep
) -> None:
    """The image shows the broker with epoch 7. A process with another epoch makes no topic: while
    the metadata log is replayed, the image still shows the registration of the process before."""
    records = [registered(1, 7, is_fenced=is_fenced)]
    records += [registered(broker_id, 3) for broker_id in range(2, 2 + others)]
    asked = partial(topic_step, broker_id=1, broker_epoch=epoch, replication_factor=3)
    assert asked(image_of(records)) is step
    assert asked(image_of([*records, Topic(EVENTS_TOPIC, bytes(16))])) is TopicStep.NONE


def test_an_image_without_the_broker_says_nothing_of_it() -> None:
    image = image_of([registered(2, 3)])
    step = topic_step(image, broker_id=1, broker_epoch=-1, replication_factor=1)
    assert step is TopicStep.NONE
