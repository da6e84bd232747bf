"""Allocation of blocks of producer ids, which are never given out twice (KIP-730)."""

from __future__ import annotations

from kvorum.metadata.controller.decide import Decision
from kvorum.metadata.controller.decide.registered import stale_broker
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.records import ProducerIds
from kvorum.metadata.requests.controller_requests import AllocateProducerIds, ProducerIdBlock
from kvorum.runtime.errors import Rejected

BLOCK_LENGTH = 1_000


def allocate_producer_ids(
    image: ClusterImage, request: AllocateProducerIds
) -> Decision[ProducerIdBlock | Rejected]:
    """Allocate the next block to one broker."""
    stale = stale_broker(image, request.broker_id, request.broker_epoch)
    if stale is not None:
        return Decision((), stale)
    start = image.next_producer_id
    return Decision(
        (ProducerIds(request.broker_id, request.broker_epoch, start + BLOCK_LENGTH),),
        ProducerIdBlock(start=start, length=BLOCK_LENGTH),
    )
