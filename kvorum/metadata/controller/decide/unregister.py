"""UnregisterBroker: removes a broker from the cluster for good (KIP-631)."""

from __future__ import annotations

from kvorum.metadata.controller.decide import Decision
from kvorum.metadata.controller.decide.elections import changes_without_broker
from kvorum.metadata.controller.decide.eligible_brokers import eligible_brokers
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.records import UnregisterBroker
from kvorum.metadata.requests.controller_requests import UnregisterBrokerRequest, UnregisteredBroker
from kvorum.runtime.errors import ErrorCode, Rejected

SHOWN_MAX = 3
"""Partitions that a refusal names."""


def unregister(
    image: ClusterImage,
    request: UnregisterBrokerRequest,
    *,
    has_session: bool,
    is_unclean_default: bool = False,
) -> Decision[UnregisteredBroker | Rejected]:
    """Remove a broker's registration. If its process is still running, it must register again.

    Refused while the broker is alive, since it would register again at once. Refused also while it
    is the last in-sync replica of a partition, whose data would silently be lost. Replicas assigned
    to the broker stay assigned (a reassignment moves them), as in Apache Kafka.
    """
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        return _refused(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {request.broker_id} is not registered"
        )
    if has_session and broker.is_active:
        return _refused(
            ErrorCode.INVALID_REQUEST,
            f"broker {request.broker_id} is alive: stop it first",
        )
    only_here = [
        f"{topic.name}-{partition_id}"
        for topic in image.topics.values()
        for partition_id, partition in topic.partitions.items()
        if partition.isr == (request.broker_id,)
    ]
    if only_here:
        more = f" and {len(only_here) - SHOWN_MAX} more" if len(only_here) > SHOWN_MAX else ""
        return _refused(
            ErrorCode.INVALID_REQUEST,
            f"broker {request.broker_id} alone is in sync for "
            f"{', '.join(sorted(only_here)[:SHOWN_MAX])}{more}: delete or move them first, or "
            "bring it back",
        )
    eligible = eligible_brokers(
        image, leaving=request.broker_id, is_unclean_default=is_unclean_default
    )
    return Decision(
        (
            # The broker's replicas are given up too, so it is no eligible leader replica any more.
            *changes_without_broker(image, request.broker_id, eligible, is_lost=True),
            UnregisterBroker(request.broker_id, broker.broker_epoch),
        ),
        UnregisteredBroker(),
    )


def _refused(code: ErrorCode, message: str) -> Decision[Rejected]:
    return Decision((), Rejected(code, message))
