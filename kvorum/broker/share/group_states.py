"""Carries out the questions of group coordinators about the states of share-partitions."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from kvorum.broker.coordinator.model import FactLearned
from kvorum.broker.coordinator.shard_context import ShardContext
from kvorum.broker.groups.share.requests import (
    DeleteStates,
    InitializeStates,
    StatesAnswered,
    StateToInitialize,
)
from kvorum.broker.share_state.client import ShareStateClient
from kvorum.broker.share_state.records import ShareKey
from kvorum.broker.share_state.requests import DeleteState, InitializeState
from kvorum.runtime.errors import ErrorCode, InvariantViolated
from kvorum.runtime.tasks import TaskGroup, report_failure

_log = logging.getLogger(__name__)


class GroupStates:
    """Asks share coordinators; each answer is given to the shard that asked."""

    def __init__(self, client: ShareStateClient) -> None:
        self._client = client
        self._tasks = TaskGroup(report_failure)

    def ask(self, context: ShardContext, question: Any) -> None:
        """Carry out a shard's question; the answer is a `FactLearned`."""
        match question:
            case InitializeStates():
                self._tasks.spawn(self._initialize(context, question), "initialize share states")
            case DeleteStates():
                self._tasks.spawn(self._delete(context, question), "delete share states")
            case _:
                raise InvariantViolated(f"{context.name} asks {question!r}")

    async def stop(self) -> None:
        await self._tasks.stop()

    async def _initialize(self, context: ShardContext, question: InitializeStates) -> None:
        async def one(row: StateToInitialize) -> Any:
            body = InitializeState(
                key=ShareKey(question.group_id, row.topic_id, row.partition),
                state_epoch=question.state_epoch,
                start_offset=row.start_offset,
            )
            return await self._client.initialize(body)

        answers = await asyncio.gather(*(one(row) for row in question.rows))
        rows = [(row.topic_id, row.partition) for row in question.rows]
        self._tell(context, question, dict(zip(rows, answers, strict=True)))

    async def _delete(self, context: ShardContext, question: DeleteStates) -> None:
        async def one(topic_id: bytes, partition: int) -> Any:
            key = ShareKey(question.group_id, topic_id, partition)
            return await self._client.delete(DeleteState(key=key))

        answers = await asyncio.gather(*(one(*row) for row in question.partitions))
        self._tell(context, question, dict(zip(question.partitions, answers, strict=True)))

    @staticmethod
    def _tell(
        context: ShardContext, question: InitializeStates | DeleteStates, errors: dict[Any, Any]
    ) -> None:
        failed = next((error for error in errors.values() if error != ErrorCode.NONE), None)
        if failed is not None:
            _log.info("states of share group %r: %s", question.group_id, failed)
        context.give(FactLearned(fact=StatesAnswered(question=question, errors=errors)))
