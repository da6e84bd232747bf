"""AlterPartition: a leader's ISR proposal, checked against the image (KIP-497, KIP-903).

The checks are in Kafka's order, so that a stale proposal always gets the same error.
"""

from __future__ import annotations

from collections.abc import Container

from kvorum.metadata.controller.decide import Decision
from kvorum.metadata.controller.decide.eligible_brokers import EligibleBrokers
from kvorum.metadata.controller.decide.partition_change import PartitionTarget, change, changed
from kvorum.metadata.controller.decide.registered import stale_broker
from kvorum.metadata.image.image import ClusterImage, PartitionImage
from kvorum.metadata.image.records import Record
from kvorum.metadata.requests.controller_requests import (
    AlteredPartition,
    AlterPartition,
    IsrProposal,
)
from kvorum.runtime.errors import ErrorCode, Rejected


def alter_partition(
    image: ClusterImage,
    request: AlterPartition,
    eligible: EligibleBrokers,
    *,
    leaving: Container[int] = (),
) -> Decision[tuple[AlteredPartition, ...] | Rejected]:
    """Accept or refuse each proposal on its own.

    leaving: brokers that are being fenced; they may not join an ISR. NEW_LEADER_ELECTED: the
    proposal was accepted and completed a reassignment, and because of that another replica leads.
    """
    stale = stale_broker(image, request.broker_id, request.broker_epoch)
    if stale is not None:
        return Decision((), stale)
    records: list[Record] = []
    results: list[AlteredPartition] = []
    seen: set[tuple[bytes, int]] = set()
    for proposal in request.proposals:
        key = (proposal.topic_id, proposal.partition_id)
        partition = image.partition(*key)
        error = _problem(image, request.broker_id, proposal, partition, leaving)
        if error is ErrorCode.NONE and key in seen:
            # The first of the two has raised the partition epoch.
            error = ErrorCode.INVALID_UPDATE_VERSION
        if error is not ErrorCode.NONE or partition is None:
            results.append(
                AlteredPartition(
                    topic_id=proposal.topic_id, partition_id=proposal.partition_id, error=error
                )
            )
            continue
        seen.add(key)
        isr = tuple(broker_id for broker_id, _ in proposal.new_isr)
        rules = eligible.rules(image, image.topics[proposal.topic_id].name)
        record = change(key, partition, PartitionTarget(isr=isr, is_recovered=True), rules)
        after = partition
        if record is not None:
            records.append(record)
            after = changed(partition, record)
        lost_lead = after.leader != partition.leader
        results.append(
            AlteredPartition(
                topic_id=proposal.topic_id,
                partition_id=proposal.partition_id,
                error=ErrorCode.NEW_LEADER_ELECTED if lost_lead else ErrorCode.NONE,
                leader=after.leader,
                leader_epoch=after.leader_epoch,
                isr=after.isr,
                partition_epoch=after.partition_epoch,
            )
        )
    return Decision(tuple(records), tuple(results))


def _problem(
    image: ClusterImage,
    broker_id: int,
    proposal: IsrProposal,
    partition: PartitionImage | None,
    leaving: Container[int],
) -> ErrorCode:
    if proposal.topic_id not in image.topics:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    epochs = (proposal.leader_epoch, proposal.partition_epoch)
    if epochs[0] > partition.leader_epoch or epochs[1] > partition.partition_epoch:
        # The leader has seen more of the log than this controller, which is therefore the stale
        # one.
        return ErrorCode.NOT_CONTROLLER
    if epochs[0] < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if epochs[1] < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    return _member_problem(image, proposal, partition, leaving)


def _member_problem(
    image: ClusterImage, proposal: IsrProposal, partition: PartitionImage, leaving: Container[int]
) -> ErrorCode:
    members = [member for member, _ in proposal.new_isr]
    if (
        len(set(members)) != len(members)
        or partition.leader not in members
        or not set(members) <= set(partition.replicas)
    ):
        return ErrorCode.INVALID_REQUEST
    for member, broker_epoch in proposal.new_isr:
        broker = image.brokers.get(member)
        if broker is None or not broker.is_active:
            return ErrorCode.INELIGIBLE_REPLICA
        if member in leaving and member not in partition.isr:
            return ErrorCode.INELIGIBLE_REPLICA
        if broker_epoch != -1 and broker_epoch != broker.broker_epoch:
            # The replica restarted after the leader last heard from it, perhaps with an empty disk.
            return ErrorCode.INELIGIBLE_REPLICA
        if not broker.has_online(partition.directory_of(member)):
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE
