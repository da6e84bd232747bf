"""AlterPartition: a leader's proposal for its ISR, checked against the truth (KIP-497, KIP-903).

The checks stand in Kafka's order (kraft.md section 13), so that a stale proposal meets the same
error whoever sends it.
"""

from __future__ import annotations

from metadata.decide import Decision
from metadata.image import ClusterImage, PartitionImage
from metadata.records import PartitionChange, Record
from metadata.requests import AlteredPartition, AlterPartition, IsrProposal
from runtime.errors import ErrorCode, Rejected


def alter_partition(
    image: ClusterImage, request: AlterPartition
) -> Decision[tuple[AlteredPartition, ...] | Rejected]:
    """Accept or refuse each proposal on its own."""
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.broker_epoch != request.broker_epoch:
        return Decision(
            (),
            Rejected(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {request.broker_id} is not registered under epoch {request.broker_epoch}",
            ),
        )
    records: list[Record] = []
    results: list[AlteredPartition] = []
    for proposal in request.proposals:
        partition = image.partition(proposal.topic_id, proposal.partition_id)
        error = _problem(image, request.broker_id, proposal, partition)
        if error is not ErrorCode.NONE or partition is None:
            results.append(
                AlteredPartition(
                    topic_id=proposal.topic_id, partition_id=proposal.partition_id, error=error
                )
            )
            continue
        isr = tuple(broker_id for broker_id, _ in proposal.new_isr)
        records.append(PartitionChange(proposal.topic_id, proposal.partition_id, isr=isr))
        results.append(
            AlteredPartition(
                topic_id=proposal.topic_id,
                partition_id=proposal.partition_id,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                isr=isr,
                partition_epoch=partition.partition_epoch + 1,
            )
        )
    return Decision(tuple(records), tuple(results))


def _problem(
    image: ClusterImage, broker_id: int, proposal: IsrProposal, partition: PartitionImage | None
) -> ErrorCode:
    if proposal.topic_id not in image.topics:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    epochs = (proposal.leader_epoch, proposal.partition_epoch)
    if epochs[0] > partition.leader_epoch or epochs[1] > partition.partition_epoch:
        # The leader has seen more of the log than this controller: it is the stale one.
        return ErrorCode.NOT_CONTROLLER
    if epochs[0] < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if epochs[1] < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    return _member_problem(image, proposal, partition)


def _member_problem(
    image: ClusterImage, proposal: IsrProposal, partition: PartitionImage
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
        if broker_epoch != -1 and broker_epoch != broker.broker_epoch:
            # The replica restarted since the leader heard of it, perhaps with an empty disk.
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE
