"""The effective configs of this broker and of its topics, by the image that it adopted last.

`broker.config.dynamic_config` and `broker.config.topic_config` have the rules; this module keeps
their results, since every replica asks for them. No I/O.
"""

from __future__ import annotations

import logging

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.config.dynamic_config import listener_limits, with_dynamic
from kvorum.broker.config.topic_config import TopicConfig, TopicConfigs
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import (
    EMPTY_IMAGE,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    ClusterImage,
    TopicImage,
)

_log = logging.getLogger(__name__)


class CurrentConfigs:
    """broker: the static config of this broker with its dynamic configs on top.
    listener_limits: connections that a listener may have by a dynamic config, by its name.
    """

    def __init__(self, broker_id: int, static: BrokerConfig) -> None:
        """static: as read from the broker's file."""
        self.broker = static
        self.listener_limits: dict[str, int] = {}
        self._broker_id = broker_id
        self._static = static
        self._image: ClusterImage = EMPTY_IMAGE
        self._topic_configs = TopicConfigs()

    def adopt(self, delta: Delta | None, image: ClusterImage) -> bool:
        """Adopt the configs of `image`; True if this broker's own settings have changed.

        delta: the changes since the last adopted image; None if they are not known.
        """
        self._image = image
        if delta is not None and all(kind != RESOURCE_BROKER for kind, _ in delta.changed_configs):
            return False
        self.listener_limits = listener_limits(image, self._broker_id)
        before = self.broker
        self.broker = with_dynamic(self._static, image, self._broker_id)
        if self.broker == before:
            return False
        _log.info("broker=%d adopts changed configs", self._broker_id)
        return True

    def of_topic(self, topic: str) -> TopicConfig:
        """The effective configs of the topic that has this name in the image."""
        return self._topic_configs.of(self.broker, self._image.topic_configs(topic))

    def topics_changed_by(self, delta: Delta) -> list[TopicImage]:
        """The topics in the image whose own configs `delta` changed, by name."""
        # Look topics up by name instead of walking over all topics: every topic created with its
        # own configs causes this call.
        names = sorted(name for kind, name in delta.changed_configs if kind == RESOURCE_TOPIC)
        topics = (self._image.topic(name) for name in names)
        return [topic for topic in topics if topic is not None]
