"""Checks that replies to a broker, or about one, agree with the image. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvorum.metadata.image.image import ClusterImage, PartitionImage
from kvorum.metadata.requests import controller_requests as r
from kvorum.runtime.errors import ErrorCode

SURVIVES, NO_TRACE, STALE = "AcknowledgedSurvives", "RefusedLeftNoTrace", "StaleIsRefused"

Verdicts = Iterator[tuple[bool, str, str]]
"""(True if the check holds, its name, the expected state)"""


def registered(
    request: r.RegisterBrokerRequest, reply: Any, before: ClusterImage, after: ClusterImage
) -> Verdicts:
    """Check that the registering process is in the image, with the broker epoch of its reply."""
    broker = after.brokers.get(request.broker_id)
    yield (
        broker is not None
        and broker.broker_epoch == reply.broker_epoch
        and broker.incarnation_id == request.incarnation_id,
        SURVIVES,
        f"broker {request.broker_id} is registered",
    )
    known = before.brokers.get(request.broker_id)
    if (
        known is not None
        and known.incarnation_id != request.incarnation_id
        and known.broker_epoch != request.broker_epoch_before
    ):
        # The broker may have lost its records (KIP-966).
        kept = [p for p in partitions_of(after) if request.broker_id in p.elr]
        yield not kept, "LostIsNotEligible", f"broker {request.broker_id} is eligible nowhere"


def heard(request: r.Heartbeat, reply: Any, before: ClusterImage, after: ClusterImage) -> Verdicts:
    """Check that the broker's state in the image is that of the heartbeat's reply."""
    broker = after.brokers.get(request.broker_id)
    yield (
        broker is not None
        and broker.broker_epoch == request.broker_epoch
        and broker.is_fenced == reply.is_fenced,
        SURVIVES,
        f"broker {request.broker_id} is as its heartbeat was told",
    )
    if not reply.is_fenced and before.brokers[request.broker_id].is_fenced:
        holds = request.metadata_offset > request.broker_epoch
        yield holds, "UnfencedOnceCaughtUp", "it has seen its own registration"
    if reply.should_shut_down and broker is not None:
        yield not broker.is_active, SURVIVES, f"broker {request.broker_id} leads no more"


def altered(
    request: r.AlterPartition, reply: Any, before: ClusterImage, after: ClusterImage
) -> Verdicts:
    """Check that each ISR is that of the reply, and that the sender was the leader who may propose
    it."""
    yield _is_current(before, request), STALE, "the sender is the process that is registered"
    for proposal, item in zip(request.proposals, reply, strict=True):
        key = (item.topic_id, item.partition_id)
        old, now = before.partition(*key), after.partition(*key)
        if item.error in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED):
            yield (
                old is not None
                and (old.leader, old.leader_epoch, old.partition_epoch)
                == (request.broker_id, proposal.leader_epoch, proposal.partition_epoch),
                STALE,
                f"{key} is as its leader believed: {old}",
            )
            for member, epoch in proposal.new_isr:
                broker = before.brokers.get(member)
                yield (
                    broker is not None and broker.is_active and epoch in (-1, broker.broker_epoch),
                    STALE,
                    f"{member} may join",
                )
            yield (
                now is not None
                and (now.isr, now.leader, now.leader_epoch, now.partition_epoch)
                == (item.isr, item.leader, item.leader_epoch, item.partition_epoch),
                SURVIVES,
                f"{key} is as answered",
            )
        else:
            yield now == old, NO_TRACE, f"{key} is as it was"


def allocated(
    request: r.AllocateProducerIds, reply: Any, before: ClusterImage, after: ClusterImage
) -> Verdicts:
    """Check that the block of producer ids is in the log, for the registered process."""
    yield _is_current(before, request), STALE, "the sender is the process that is registered"
    yield (
        before.next_producer_id <= reply.start
        and reply.start + reply.length <= after.next_producer_id,
        "ProducerIdBlockOnce",
        "the block is the log's",
    )


def unregistered(
    request: r.UnregisterBrokerRequest, reply: Any, before: ClusterImage, after: ClusterImage
) -> Verdicts:
    """Check that the broker is no longer registered, and that elections no longer count on it. A
    partition that only this broker had in sync has no leader, unless another replica took over."""
    yield request.broker_id not in after.brokers, SURVIVES, f"broker {request.broker_id} is gone"
    eligible = [p for p in partitions_of(after) if request.broker_id in p.elr]
    yield not eligible, "GoneIsNotEligible", f"broker {request.broker_id} is eligible: {eligible}"
    leading = [p for p in partitions_of(after) if p.isr == (request.broker_id,) and p.has_leader]
    yield not leading, "FencedNeverLeads", f"{leading} have a leader out of sync"


def controller_registered(
    request: r.RegisterControllerRequest, reply: Any, before: ClusterImage, after: ClusterImage
) -> Verdicts:
    """Check that the registering process is the one in the image."""
    known = after.controllers.get(request.controller_id)
    holds = known is not None and known.incarnation_id == request.incarnation_id
    yield holds, SURVIVES, f"controller {request.controller_id} is registered"


def partitions_of(image: ClusterImage) -> Iterator[PartitionImage]:
    """All partitions of an image."""
    for topic in image.topics.values():
        yield from topic.partitions.values()


def _is_current(image: ClusterImage, request: r.AlterPartition | r.AllocateProducerIds) -> bool:
    broker = image.brokers.get(request.broker_id)
    return broker is not None and broker.broker_epoch == request.broker_epoch
