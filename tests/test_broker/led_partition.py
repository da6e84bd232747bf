"""The core of a partition that broker 1 leads, and the fetches of followers and answers of the
controller that tests give it."""

from __future__ import annotations

from kvorum.broker.partition.core.partition import Partition
from kvorum.broker.partition.core.peer_brokers import PeerBrokers
from kvorum.metadata.image.image import BrokerImage, PartitionImage
from kvorum.metadata.image.records import Endpoint
from kvorum.metadata.requests.controller_requests import AlteredPartition
from kvorum.runtime.errors import ErrorCode

TOPIC_ID = bytes(range(16))
LAG_MS = 1000


def broker_image(broker_id: int, *, epoch: int = 10, is_fenced: bool = False) -> BrokerImage:
    return BrokerImage(
        broker_id=broker_id,
        broker_epoch=epoch,
        incarnation_id=bytes(16),
        endpoints=(Endpoint("PLAINTEXT", "h", 1),),
        rack=None,
        is_fenced=is_fenced,
        in_controlled_shutdown=False,
    )


def make(
    *, isr: tuple[int, ...] = (1, 2, 3), min_isr: int = 1, end_offset: int = 0, now_ms: int = 0
) -> Partition:
    """Broker 1 leading a partition on 1, 2 and 3."""
    facts = PeerBrokers()
    facts.brokers = {b: broker_image(b) for b in (1, 2, 3)}
    partition = Partition(
        broker_id=1,
        topic="t",
        topic_id=TOPIC_ID,
        partition_id=0,
        peer_brokers=facts,
        lag_time_max_ms=LAG_MS,
        min_insync_replicas=min_isr,
        end_offset=end_offset,
    )
    partition.become_leader(PartitionImage((1, 2, 3), isr, 1, 5, 7), now_ms)
    return partition


def fetch(
    partition: Partition, replica: int, offset: int, now_ms: int = 0, epoch: int = 10
) -> bool:
    partition.peer_brokers.last_fetch_ms[replica] = now_ms
    return partition.on_follower_fetch(replica, offset, 0, epoch, now_ms)


def answer(isr: tuple[int, ...], epoch: int, error: ErrorCode = ErrorCode.NONE) -> AlteredPartition:
    return AlteredPartition(
        topic_id=TOPIC_ID,
        partition_id=0,
        error=error,
        leader=1,
        leader_epoch=5,
        isr=isr,
        partition_epoch=epoch,
    )
