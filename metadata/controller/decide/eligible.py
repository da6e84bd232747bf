"""Eligible leader replicas end where min.insync.replicas changes (KIP-966, Kafka's ClearElr).

Whoever stands in an ELR does so because the high watermark could not rise while the ISR was below
the minimum. 1. ISR {1}, ELR {2}, minimum 2. 2. The minimum becomes 1. 3. Broker 1 acknowledges
records that 2 never saw. 4. Broker 1 dies; electing 2 would lose them. So the records that change
the minimum are preceded, in the same batch, by records that empty the ELRs under it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvorum.metadata.controller.decide.eligible_brokers import MIN_INSYNC_REPLICAS
from kvorum.metadata.image.image import RESOURCE_TOPIC, ClusterImage, TopicImage
from kvorum.metadata.image.records import Config, PartitionChange, Record


def with_elr_cleared(image: ClusterImage, records: Sequence[Record]) -> tuple[Record, ...]:
    """The records of a decision, after those that empty the ELRs which they make worthless."""
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
    """Records that empty what is known of eligible replicas, as the feature is switched off: from
    then on nobody keeps what they are worth."""
    for topic in image.topics.values():
        for partition_id, partition in topic.partitions.items():
            if partition.elr or partition.last_known_elr:
                yield PartitionChange(topic.topic_id, partition_id, elr=(), last_known_elr=())


def _under(image: ClusterImage, record: Config) -> Iterator[TopicImage]:
    if record.resource_type != RESOURCE_TOPIC:
        # The cluster's default or one broker's own value: no telling which topics go by it, but
        # for those that had their own. One that loses it now has a record of its own.
        for topic in image.topics.values():
            if MIN_INSYNC_REPLICAS not in image.topic_configs(topic.name):
                yield topic
        return
    named = image.topic(record.resource_name)
    if named is not None:
        yield named
