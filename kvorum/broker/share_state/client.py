"""The share coordinators of a cluster, as the leaders of partitions and the group coordinators ask
them.

The coordinator of a share-partition is the leader of the partition of `__share_group_state` that
its key `group:topicId:partition` belongs to. A question that finds none, or gets no answer, is
asked again for a while: every question may be asked twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from kvorum.broker.coordinator.host import CoordinatorHost
from kvorum.broker.coordinator.keys import partition_of
from kvorum.broker.metadata_answers.topic_names import SHARE_STATE_TOPIC
from kvorum.broker.share_state import apis
from kvorum.broker.share_state.records import ShareKey, ShareState
from kvorum.broker.share_state.requests import (
    DeleteState,
    InitializeState,
    ReadState,
    ReadSummary,
    WriteState,
)
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.clock import Clock
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.versions import Api

PATIENCE_MS = 10_000
"""Time for which a question is asked again before its caller gets COORDINATOR_NOT_AVAILABLE."""
_PAUSE_MIN_MS, _PAUSE_MAX_MS = 20, 500

_RETRIED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class CallPeer(Protocol):
    """`Peers.call`."""

    def __call__(
        self, broker_id: int, api: Api, version: int, values: Mapping[str, Any]
    ) -> Coroutine[Any, Any, Any | None]: ...


def coordinator_key(key: ShareKey) -> str:
    """The key by which FindCoordinator finds the share coordinator."""
    return str(key)


class ShareStateClient:
    """See the docstring of this module."""

    def __init__(
        self,
        *,
        broker_id: int,
        coordinators: CoordinatorHost,
        call_peer: CallPeer,
        image: Callable[[], ClusterImage],
        make_topic: Callable[[str], None],
        clock: Clock,
    ) -> None:
        """coordinators: those on this broker."""
        self._broker_id = broker_id
        self._coordinators = coordinators
        self._call_peer = call_peer
        self._image = image
        self._make_topic = make_topic
        self._clock = clock

    async def initialize(self, body: InitializeState) -> ErrorCode | Rejected:
        answer: ErrorCode | Rejected = await self._ask(body, apis.INITIALIZE)
        return answer

    async def read(self, body: ReadState) -> ShareState | ErrorCode | Rejected:
        answer: ShareState | ErrorCode | Rejected = await self._ask(body, apis.READ)
        return answer

    async def summary(self, body: ReadSummary) -> ShareState | ErrorCode | Rejected | None:
        """None if there is no state."""
        answer: ShareState | ErrorCode | Rejected | None = await self._ask(body, apis.SUMMARY)
        return answer

    async def write(self, body: WriteState) -> ErrorCode | Rejected:
        answer: ErrorCode | Rejected = await self._ask(body, apis.WRITE)
        return answer

    async def delete(self, body: DeleteState) -> ErrorCode | Rejected:
        answer: ErrorCode | Rejected = await self._ask(body, apis.DELETE)
        return answer

    async def _ask(self, body: Any, form: apis.Form) -> Any:
        """The coordinator's answer; at the end of the patience, COORDINATOR_NOT_AVAILABLE."""
        deadline_ms = self._clock.monotonic_ms() + PATIENCE_MS
        pause_ms = _PAUSE_MIN_MS
        while True:
            answer = await self._ask_once(body, form)
            code = answer.code if isinstance(answer, Rejected) else answer
            if not isinstance(code, ErrorCode) or code not in _RETRIED:
                return answer
            if self._clock.monotonic_ms() + pause_ms >= deadline_ms:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, _PAUSE_MAX_MS)

    async def _ask_once(self, body: Any, form: apis.Form) -> Any:
        key = coordinator_key(body.key)
        topic = self._image().topic(SHARE_STATE_TOPIC)
        if topic is None:
            self._make_topic(SHARE_STATE_TOPIC)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        partition = topic.partitions.get(partition_of(key, len(topic.partitions)))
        if partition is None or not partition.has_leader:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if partition.leader == self._broker_id:
            return await self._coordinators.request(key=key, body=body)
        version = form.api.max_version
        said = await self._call_peer(partition.leader, form.api, version, form.request(body))
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if said is None else form.answer(said)
