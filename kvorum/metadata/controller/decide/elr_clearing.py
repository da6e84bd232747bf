"""Clearing of eligible leader replicas (ELRs) when min.insync.replicas changes (KIP-966, Kafka's
ClearElr).

A replica is in an ELR because the high watermark could not rise while the ISR was below the
minimum. Bad sequence when the minimum falls: 1. The ISR is {1}, the ELR {2}, the minimum 2. 2. The
minimum becomes 1. 3. Broker 1 acknowledges records that 2 never had. 4. Broker 1 dies; electing 2
would lose them. So the records that change the minimum follow, in the same batch, records that
clear the ELRs under it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvorum.metadata.controller.decide.eligible_brokers import MIN_INSYNC_REPLICAS
from kvorum.metadata.image.image import RESOURCE_TOPIC, ClusterImage, TopicImage
from kvorum.metadata.image.records import Config, PartitionChange, Record


def with_elr_cleared(image: ClusterImage, records: Sequence[Record]) -> tuple[Record, ...]:
    """The records of a decision, after records that clear the ELRs which they invalidate."""
    topics: dict[bytes, TopicImage] = {}
    for record in records:
        if isinstance(record, Config) and record.name == MIN_INSYNC_REPLICAS:
            topics.update((topic.topic_id, topic) for topic in _under(image, record))
    cleared = [
        PartitionChange(topic.topic_id, partition_id, elr=())
        for topic in topics.values()
        for partition_id, partition in topic.partitions.items()
        if partition.elr
    ]
    return (*cleared, *records)


def elr_forgotten(image: ClusterImage) -> Iterator[PartitionChange]:
    """The records that clear all eligible leader replicas when the feature is switched off: from
    then on no controller keeps them valid."""
    for topic in image.topics.values():
        for partition_id, partition in topic.partitions.items():
            if partition.elr or partition.last_known_elr:
                yield PartitionChange(topic.topic_id, partition_id, elr=(), last_known_elr=())


def _under(image: ClusterImage, record: Config) -> Iterator[TopicImage]:
    if record.resource_type != RESOURCE_TOPIC:
        # The record is for the cluster default or one broker. The change may affect every topic
        # without a value of its own; a topic that loses its own value now has a record itself.
        for topic in image.topics.values():
            if MIN_INSYNC_REPLICAS not in image.topic_configs(topic.name):
                yield topic
        return
    named = image.topic(record.resource_name)
    if named is not None:
        yield named
