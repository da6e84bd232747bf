"""The rule for making `__kvorum_events`. Pure."""

from __future__ import annotations

import enum

from kvorum.broker.metadata_answers.topic_names import EVENTS_TOPIC
from kvorum.metadata.image.image import ClusterImage


class TopicStep(enum.Enum):
    """A broker's next action for the topic; see `topic_step`."""

    NONE = "none"
    WAIT = "wait"
    MAKE = "make"


def topic_step(
    image: ClusterImage, *, broker_id: int, broker_epoch: int, replication_factor: int
) -> TopicStep:
    """The step for an image. broker_epoch: of the broker's registration, -1 before it.

    NONE: the topic exists, this broker is fenced, or the image is older than this process's
    registration (while the metadata log is replayed, images show the registration of an earlier
    process). WAIT: there are too few active brokers. After a pause the broker sends CreateTopics
    all the same, and the refusal says what is wrong.
    """
    if image.topic(EVENTS_TOPIC) is not None:
        return TopicStep.NONE
    broker = image.brokers.get(broker_id)
    if broker is None or broker.broker_epoch != broker_epoch or not broker.is_active:
        return TopicStep.NONE
    is_enough = len(image.active_broker_ids()) >= replication_factor
    return TopicStep.MAKE if is_enough else TopicStep.WAIT
