"""Blocks of producer ids, never handed out twice (kraft.md section 15)."""

from __future__ import annotations

from metadata.decide import Decision
from metadata.image import ClusterImage
from metadata.records import ProducerIds
from metadata.requests import AllocateProducerIds, ProducerIdBlock
from runtime.errors import ErrorCode, Rejected

BLOCK_LENGTH = 1_000


def allocate_producer_ids(
    image: ClusterImage, request: AllocateProducerIds
) -> Decision[ProducerIdBlock | Rejected]:
    """The next block, for this broker alone."""
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.broker_epoch != request.broker_epoch:
        return Decision(
            (),
            Rejected(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {request.broker_id} is not registered under epoch {request.broker_epoch}",
            ),
        )
    start = image.next_producer_id
    return Decision(
        (ProducerIds(request.broker_id, request.broker_epoch, start + BLOCK_LENGTH),),
        ProducerIdBlock(start=start, length=BLOCK_LENGTH),
    )
