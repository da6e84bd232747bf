"""What the periodic look at a broker's partitions sends to the controller."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from broker.isr_link import IsrLink
from metadata.image import PartitionImage
from metadata.records import RECOVERED, RECOVERING
from tests.test_broker.test_partition import make


class Controller:
    """Takes requests and does not answer."""

    broker_epoch = 10

    def __init__(self):
        self.asked = asyncio.Queue()

    async def alter_partition(self, request):
        await self.asked.put(request)
        await asyncio.Event().wait()


def test_a_lone_leader_that_was_elected_uncleanly_is_reported_as_recovered():
    async def scenario():
        controller = Controller()
        link = IsrLink(broker_id=1, controller=controller, now_ms=lambda: 0)
        quiet, recovering = make(), make()
        for core, state in ((quiet, RECOVERED), (recovering, RECOVERING)):
            image = PartitionImage((1,), (1,), 1, 6, 8, leader_recovery_state=state)
            core.become_leader(image, 0)
        recovering.partition_id = 1
        link.check(
            SimpleNamespace(
                core=core,
                log=SimpleNamespace(start_offset=0),
                is_offline=False,
                is_closed=False,
            )
            for core in (quiet, recovering)
        )
        async with asyncio.timeout(10):
            request = await controller.asked.get()
        await link.stop()
        assert [(p.partition_id, p.new_isr) for p in request.proposals] == [(1, ((1, 10),))]

    asyncio.run(scenario())
