"""Producer ids for idempotent producers, from blocks that the controller allocates."""

from __future__ import annotations

import asyncio

from kvorum.broker.controller_channel.controller_api import ControllerChannel
from kvorum.metadata.requests.controller_requests import AllocateProducerIds
from kvorum.metadata.rpc.calls import ALLOCATE_PRODUCER_IDS
from kvorum.runtime.errors import Rejected


class ProducerIdSource:
    """Gives out each producer id once. The rest of a block is lost when the process exits; ids have
    63 bits."""

    def __init__(self, controller: ControllerChannel, broker_id: int) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._next_id = 0
        self._end_id = 0
        self._lock = asyncio.Lock()

    async def take(self) -> int | Rejected:
        """A producer id that was never given out, or the reason why there is none now."""
        # The lock: requests that find the block empty together must not each allocate a block.
        async with self._lock:
            if self._next_id == self._end_id:
                block = await self._controller.request(
                    ALLOCATE_PRODUCER_IDS,
                    AllocateProducerIds(
                        broker_id=self._broker_id, broker_epoch=self._controller.broker_epoch
                    ),
                )
                if isinstance(block, Rejected):
                    return block
                self._next_id, self._end_id = block.start, block.start + block.length
            self._next_id += 1
            return self._next_id - 1
