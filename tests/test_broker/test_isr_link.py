"""AlterPartition requests that the periodic ISR check sends to the controller."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from kvorum.broker.controller_channel.alter_partition_manager import AlterPartitionManager
from kvorum.broker.metrics.counters import TopicMetrics
from kvorum.metadata.image.image import PartitionImage
from kvorum.metadata.image.records import RECOVERED, RECOVERING
from kvorum.metadata.requests.controller_requests import AlteredPartition
from kvorum.runtime.errors import ErrorCode
from tests.test_broker.led_partition import fetch, make


class Refusing:
    """A controller that refuses each proposal for good."""

    broker_epoch = 10

    async def request(self, call, request):
        return tuple(
            AlteredPartition(
                topic_id=p.topic_id, partition_id=p.partition_id,
                error=ErrorCode.INELIGIBLE_REPLICA, leader=1, leader_epoch=p.leader_epoch,
                isr=(1,), partition_epoch=p.partition_epoch,
            )
            for p in request.proposals
        )  # fmt: skip


class Controller:
    """A controller that takes requests and does not answer."""

    broker_epoch = 10

    def __init__(self):
        self.asked = asyncio.Queue()

    async def request(self, call, request):
        await self.asked.put(request)
        await asyncio.Event().wait()


def test_a_lone_leader_that_was_elected_uncleanly_is_reported_as_recovered():
    async def scenario():
        controller = Controller()
        link = AlterPartitionManager(broker_id=1, controller=controller, now_ms=lambda: 0)
        quiet, recovering = make(), make()
        for core, state in ((quiet, RECOVERED), (recovering, RECOVERING)):
            image = PartitionImage((1,), (1,), 1, 6, 8, leader_recovery_state=state)
            core.become_leader(image, 0)
        recovering.partition_id = 1
        link.check(
            SimpleNamespace(core=core, is_offline=False, is_closed=False)
            for core in (quiet, recovering)
        )
        async with asyncio.timeout(10):
            request = await controller.asked.get()
        await link.stop()
        assert [(p.partition_id, p.new_isr) for p in request.proposals] == [(1, ((1, 10),))]

    asyncio.run(scenario())


def test_a_deletion_that_waits_for_a_proposal_hears_that_it_is_refused():
    async def scenario():
        link = AlterPartitionManager(broker_id=1, controller=Refusing(), now_ms=lambda: 0)
        core = make(isr=(1,))
        has_looked = asyncio.Event()
        metrics = TopicMetrics("t")
        replica = SimpleNamespace(
            core=core, is_offline=False, is_closed=False, on_low_watermark=has_looked.set,
            metrics=metrics,
        )  # fmt: skip
        fetch(core, 2, 0)
        link.propose_expand(replica)
        assert 2 in core.isr_state.maximal
        async with asyncio.timeout(10):
            await has_looked.wait()
        assert 2 not in core.isr_state.maximal
        assert metrics.failed_isr_updates == 1
        await link.stop()

    asyncio.run(scenario())
