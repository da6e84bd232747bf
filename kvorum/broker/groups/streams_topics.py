"""The internal topics of Streams applications, created in the background for their members."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kvorum.broker.controller_channel.controller_api import ControllerChannel
from kvorum.broker.groups.streams.topology import InternalTopic
from kvorum.metadata.requests.controller_requests import CreateTopics, NewTopic
from kvorum.metadata.rpc.calls import CREATE_TOPICS
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.tasks import TaskGroup

CREATE_TIMEOUT_MS = 10_000
REFUSALS_MAX = 1_000
"""Refusals that are remembered; the oldest is forgotten first."""


class _Refusal(NamedTuple):
    reason: str
    until_ms: int


class StreamsTopicMaker:
    """Creates topics that heartbeats found missing. The next heartbeats see the topics, or why they
    could not be made."""

    def __init__(
        self, controller: ControllerChannel, tasks: TaskGroup, now_ms: Callable[[], int]
    ) -> None:
        """tasks: of the creations; their owner stops them. now_ms: a monotonic clock."""
        self._controller = controller
        self._tasks = tasks
        self._now_ms = now_ms
        self._under_way: set[str] = set()
        self._refusals: dict[str, _Refusal] = {}

    def make(self, topics: Iterable[InternalTopic], retry_ms: int) -> None:
        """Start to create the topics, but for those that are being created, or were refused less
        than `retry_ms` ago."""
        fresh = [
            topic
            for topic in topics
            if topic.name not in self._under_way and self.refusal(topic.name) is None
        ]
        if fresh:
            self._under_way.update(topic.name for topic in fresh)
            self._tasks.spawn(self._make(fresh, retry_ms), "make topics of a Streams application")

    def refusal(self, name: str) -> str | None:
        """Why the topic could not be created; None if nobody knows of a reason."""
        found = self._refusals.get(name)
        if found is None or found.until_ms <= self._now_ms():
            return None
        return found.reason

    async def _make(self, topics: list[InternalTopic], retry_ms: int) -> None:
        request = CreateTopics(
            topics=tuple(
                NewTopic(
                    name=topic.name,
                    num_partitions=topic.num_partitions,
                    replication_factor=topic.replication_factor or -1,
                    configs=topic.configs,
                )
                for topic in topics
            )
        )
        try:
            reply = await self._controller.request(CREATE_TOPICS, request, CREATE_TIMEOUT_MS)
        finally:
            self._under_way.difference_update(topic.name for topic in topics)
        for place, topic in enumerate(topics):
            outcome = reply if isinstance(reply, Rejected) else reply[place]
            code = outcome.code if isinstance(outcome, Rejected) else outcome.error
            self._refusals.pop(topic.name, None)
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._remember(topic.name, outcome.message or code.name, retry_ms)

    def _remember(self, name: str, reason: str, retry_ms: int) -> None:
        while len(self._refusals) >= REFUSALS_MAX:
            del self._refusals[next(iter(self._refusals))]
        self._refusals[name] = _Refusal(reason, self._now_ms() + retry_ms)
