"""AlterPartition: sends ISR proposals to the controller and takes its answers in. A driver.

Proposals gather while a request is under way and leave together in the next one; a partition has
at most one in flight (`isr` sees to it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from kvorum.broker.controller.controller_api import Controller
from kvorum.broker.failures import report_failure
from kvorum.broker.partition.isr import Reaction
from kvorum.broker.partition.replica import Replica
from kvorum.metadata.requests.controller_requests import (
    AlteredPartition,
    AlterPartition,
    IsrProposal,
)
from kvorum.metadata.rpc.calls import ALTER_PARTITION
from kvorum.runtime.errors import Rejected
from kvorum.runtime.tasks import TaskGroup

PROPOSALS_PER_REQUEST_MAX = 1_000
RETRY_FIRST_MS = 20
RETRY_MAX_MS = 1_000
REFUSED_PAUSE_MS = 250
"""After a refused proposal: pause before the same partition proposes anew. Without it a follower
that may not join yet would cause a request to the controller with each of its fetches."""

Key = tuple[bytes, int]


class IsrLink:
    """The queue between the partitions and the controller."""

    def __init__(
        self, *, broker_id: int, controller: Controller, now_ms: Callable[[], int]
    ) -> None:
        self._broker_id = broker_id
        self._controller = controller
        self._now_ms = now_ms
        self._queue: dict[Key, tuple[Replica, IsrProposal]] = {}
        self._in_flight: dict[Key, tuple[Replica, IsrProposal]] = {}
        self._not_before_ms: dict[Key, int] = {}
        self._tasks = TaskGroup(report_failure)
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def propose_expand(self, replica: Replica) -> None:
        """A fetch showed that a follower has caught up: ask to add it, if it is not in yet."""
        self._propose(replica, None)

    def reconsider(self, replica: Replica) -> None:
        """An earlier proposal is settled: ask for whoever caught up while it was in flight."""
        self._propose(replica, self._now_ms())

    def _propose(self, replica: Replica, now_ms: int | None) -> None:
        if replica.is_offline:
            return
        key = (replica.core.topic_id, replica.core.partition_id)
        if self._not_before_ms and self._now_ms() < self._not_before_ms.get(key, 0):
            return
        proposal = replica.core.propose_expand(now_ms)
        if proposal is not None:
            self._enqueue(key, replica, proposal)

    def check(self, replicas: Iterable[Replica]) -> None:
        """The periodic look: drop laggards, add returners, send again what got no answer."""
        now_ms = self._now_ms()
        self._not_before_ms = {k: t for k, t in self._not_before_ms.items() if t > now_ms}
        for replica in replicas:
            core = replica.core
            if not core.is_leader or replica.is_offline:
                # 1. The disk of a leader fails, 2. its followers hear only errors and fall behind,
                # 3. it would drop them all: nobody were left whom the controller could elect.
                continue
            key = (core.topic_id, core.partition_id)
            proposal = (
                core.propose_shrink(now_ms)
                or core.propose_expand(now_ms)
                or core.propose_recovered()
            )
            if proposal is None and key not in self._queue and key not in self._in_flight:
                proposal = core.proposal_in_flight()
            if proposal is not None:
                self._enqueue(key, replica, proposal)

    async def stop(self) -> None:
        self._is_stopped = True
        self._queue.clear()
        await self._tasks.stop()

    def _enqueue(self, key: Key, replica: Replica, proposal: IsrProposal) -> None:
        if self._is_stopped:
            return
        self._queue[key] = (replica, proposal)
        if self._task is None or self._task.done():
            self._task = self._tasks.spawn(self._run(), "isr-link")

    async def _run(self) -> None:
        pause_ms = RETRY_FIRST_MS
        while self._queue:
            keys = list(self._queue)[:PROPOSALS_PER_REQUEST_MAX]
            self._in_flight = {key: self._queue.pop(key) for key in keys}
            reply = await self._send([proposal for _, proposal in self._in_flight.values()])
            in_flight, self._in_flight = self._in_flight, {}
            if isinstance(reply, Rejected):
                for key, (replica, proposal) in in_flight.items():
                    # Only what is still meant: metadata may have overtaken it.
                    if replica.core.proposal_in_flight() == proposal:
                        self._queue.setdefault(key, (replica, proposal))
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(pause_ms * 2, RETRY_MAX_MS)
                continue
            pause_ms = RETRY_FIRST_MS
            answered = {(a.topic_id, a.partition_id): a for a in reply}
            needs_pause = False
            for key, (replica, proposal) in in_flight.items():
                answer = answered.get(key)
                if answer is not None and self._on_answer(key, replica, proposal, answer):
                    needs_pause = True
            if needs_pause:
                await asyncio.sleep(pause_ms / 1000)

    async def _send(self, proposals: list[IsrProposal]) -> tuple[AlteredPartition, ...] | Rejected:
        request = AlterPartition(
            broker_id=self._broker_id,
            broker_epoch=self._controller.broker_epoch,
            proposals=tuple(proposals),
        )
        return await self._controller.request(ALTER_PARTITION, request)

    def _on_answer(
        self, key: Key, replica: Replica, proposal: IsrProposal, answer: AlteredPartition
    ) -> bool:
        """Take one answer in; True when the proposal goes out again."""
        if replica.is_closed:
            return False
        core = replica.core
        reaction = core.on_isr_answer(proposal, answer)
        if reaction is Reaction.RETRY:
            self._queue.setdefault(key, (replica, proposal))
            return True
        if core.raise_high_watermark(self._now_ms()):
            replica.on_high_watermark()
        replica.on_low_watermark()
        if reaction is Reaction.APPLIED:
            self.reconsider(replica)
        elif reaction is Reaction.ROLLED_BACK:
            self._not_before_ms[key] = self._now_ms() + REFUSED_PAUSE_MS
            asyncio.get_running_loop().call_later(
                (REFUSED_PAUSE_MS + 1) / 1000, self._expand_if_open, replica
            )
        return False

    def _expand_if_open(self, replica: Replica) -> None:
        if not replica.is_closed and not self._is_stopped:
            self.reconsider(replica)
