"""Blocks of producer ids, never handed out twice (kraft.md section 15)."""

from __future__ import annotations

from metadata.decide import Decision
from metadata.decide.registered import stale_broker
from metadata.image import ClusterImage
from metadata.records import ProducerIds
from metadata.requests import AllocateProducerIds, ProducerIdBlock
from runtime.errors import Rejected

BLOCK_LENGTH = 1_000


def allocate_producer_ids(
    image: ClusterImage, request: AllocateProducerIds
) -> Decision[ProducerIdBlock | Rejected]:
    """The next block, for this broker alone."""
    stale = stale_broker(image, request.broker_id, request.broker_epoch)
    if stale is not None:
        return Decision((), stale)
    start = image.next_producer_id
    return Decision(
        (ProducerIds(request.broker_id, request.broker_epoch, start + BLOCK_LENGTH),),
        ProducerIdBlock(start=start, length=BLOCK_LENGTH),
    )
