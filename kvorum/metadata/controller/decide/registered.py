"""The check that a request comes from the registered process of a broker."""

from __future__ import annotations

from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.errors import ErrorCode, Rejected


def stale_broker(image: ClusterImage, broker_id: int, broker_epoch: int) -> Rejected | None:
    """STALE_BROKER_EPOCH unless the broker is registered with exactly that epoch."""
    broker = image.brokers.get(broker_id)
    if broker is not None and broker.broker_epoch == broker_epoch:
        return None
    return Rejected(
        ErrorCode.STALE_BROKER_EPOCH,
        f"broker {broker_id} is not registered under epoch {broker_epoch}",
    )
