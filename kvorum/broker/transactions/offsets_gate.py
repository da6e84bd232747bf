"""The gate of a transaction's offsets: they wait until the transaction's coordinator has verified
them.

The rules are those of transactional batches (`verification`). The first offsets of a transaction in
a partition of `__consumer_offsets` wait for the answer of the transaction's coordinator.
"""

from __future__ import annotations

import asyncio

from kvorum.broker.partition.replica import Replica
from kvorum.broker.transactions.coordinators import Coordinators
from kvorum.broker.transactions.core.model import TopicPartition
from kvorum.runtime.errors import ErrorCode


async def admit_offsets(
    coordinators: Coordinators,
    replica: Replica,
    *,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    is_add: bool,
) -> ErrorCode:
    """NONE if the transaction is open here, or if the caller's very next append may open it;
    otherwise the coordinator's error.

    The caller must not await anything between NONE and that append: a marker could come between.
    is_add: the coordinator is to add the partition (KIP-890 part 2).
    """
    core, verifications = replica.core, replica.verifications
    while not replica.log.producers.is_open(producer_id, producer_epoch):
        if not core.is_leader:
            return ErrorCode.NOT_COORDINATOR
        verdict: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        is_first = verifications.wait(producer_id, producer_epoch, 0, verdict.set_result)
        if not is_first:
            error = await verdict
            if error != ErrorCode.NONE:
                return error
            # The first request has opened the transaction by now, or failed to, or the transaction
            # has ended already.
            continue
        partition = TopicPartition(core.topic, core.partition_id)
        errors = await coordinators.join(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=(partition,),
            is_add=is_add,
        )
        waiting, error = verifications.settle(producer_id, producer_epoch, errors[partition])
        verifications.on_append(producer_id, producer_epoch)
        for tell in waiting:
            tell(error)
        return error
    return ErrorCode.NONE
