"""AlterPartition: sends ISR proposals to the controller and applies its answers. A driver.

Proposals gather while a request is in flight, and the next request carries them all. A partition
has at most one proposal pending (`isr` ensures it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from kvorum.broker.controller_channel.controller_api import ControllerChannel
from kvorum.broker.controller_channel.retry_queue import RetryQueue, Unacknowledged
from kvorum.broker.partition.core.isr import Reaction
from kvorum.broker.partition.replica import Replica
from kvorum.metadata.image.image import TopicIdPartition
from kvorum.metadata.requests.controller_requests import (
    AlteredPartition,
    AlterPartition,
    IsrProposal,
)
from kvorum.metadata.rpc.calls import ALTER_PARTITION
from kvorum.runtime.errors import ErrorCode, Rejected

PROPOSALS_PER_REQUEST_MAX = 1_000
REFUSED_PAUSE_MS = 250
"""Pause of a partition after a refused proposal. Without it, a follower that may not join yet would
cause a request to the controller with each of its fetches."""


Proposed = tuple[Replica, IsrProposal]


class AlterPartitionManager:
    """The queue of proposals from all partitions to the controller."""

    def __init__(
        self, *, broker_id: int, controller: ControllerChannel, now_ms: Callable[[], int]
    ) -> None:
        self._broker_id = broker_id
        self._controller = controller
        self._now_ms = now_ms
        self._queue: RetryQueue[TopicIdPartition, Proposed] = RetryQueue(
            self._send, batch_max=PROPOSALS_PER_REQUEST_MAX, name="alter-partition"
        )
        self._not_before_ms: dict[TopicIdPartition, int] = {}

    def propose_expand(self, replica: Replica) -> None:
        """A fetch showed that a follower has caught up: propose to add it to the ISR."""
        self._propose(replica, None)

    def reconsider(self, replica: Replica) -> None:
        """An earlier proposal is settled: propose the followers that caught up while it was
        pending."""
        self._propose(replica, self._now_ms())

    def _propose(self, replica: Replica, now_ms: int | None) -> None:
        if replica.is_offline:
            return
        key = (replica.core.topic_id, replica.core.partition_id)
        if self._not_before_ms and self._now_ms() < self._not_before_ms.get(key, 0):
            return
        proposal = replica.core.propose_expand(now_ms)
        if proposal is not None:
            self._queue.put(key, (replica, proposal))

    def check(self, replicas: Iterable[Replica]) -> None:
        """The periodic check: remove lagging followers, add caught-up ones, send unanswered
        proposals again."""
        now_ms = self._now_ms()
        self._not_before_ms = {k: t for k, t in self._not_before_ms.items() if t > now_ms}
        for replica in replicas:
            core = replica.core
            if not core.is_leader or replica.is_offline:
                # Bad sequence otherwise: 1. The disk of leader A fails. 2. Its followers get only
                # errors and fall behind. 3. A removes them all from the ISR, and the controller has
                # no replica to elect.
                continue
            key = (core.topic_id, core.partition_id)
            proposal = (
                core.propose_shrink(now_ms)
                or core.propose_expand(now_ms)
                or core.propose_recovered()
            )
            if proposal is None and key not in self._queue:
                proposal = core.proposal_in_flight()
            if proposal is not None:
                self._queue.put(key, (replica, proposal))

    async def stop(self) -> None:
        await self._queue.stop()

    async def _send(
        self, proposals: Mapping[TopicIdPartition, Proposed]
    ) -> Unacknowledged[TopicIdPartition, Proposed]:
        reply = await self._controller.request(
            ALTER_PARTITION,
            AlterPartition(
                broker_id=self._broker_id,
                broker_epoch=self._controller.broker_epoch,
                proposals=tuple(proposal for _, proposal in proposals.values()),
            ),
        )
        if isinstance(reply, Rejected):
            # Retry only proposals that are still pending: newer metadata may have replaced the
            # others.
            still_meant = {
                key: (replica, proposal)
                for key, (replica, proposal) in proposals.items()
                if replica.core.proposal_in_flight() == proposal
            }
            return Unacknowledged(still_meant, is_whole=True)
        answered = {(a.topic_id, a.partition_id): a for a in reply}
        again = {
            key: (replica, proposal)
            for key, (replica, proposal) in proposals.items()
            if key in answered and self._on_answer(key, replica, proposal, answered[key])
        }
        return Unacknowledged(again)

    def _on_answer(
        self,
        key: TopicIdPartition,
        replica: Replica,
        proposal: IsrProposal,
        answer: AlteredPartition,
    ) -> bool:
        """Apply one answer; True if the proposal must be sent again."""
        if replica.is_closed:
            return False
        core = replica.core
        isr_before = core.isr_state.isr
        reaction = core.on_isr_answer(proposal, answer)
        replica.metrics.note_isr(isr_before, core.isr_state.isr)
        if answer.error != ErrorCode.NONE:
            replica.metrics.failed_isr_updates += 1
        if reaction is Reaction.RETRY:
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
        if not replica.is_closed and not self._queue.is_stopped:
            self.reconsider(replica)
