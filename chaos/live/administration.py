"""Requests of an administrator that an experiment sends as faults, through the Kafka protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvorum.chaos.targets import ClusterView, PartitionView, UnresolvableTarget

_TIMEOUT_S = 5.0

Key = tuple[str, int]


def away_from_preferred(view: ClusterView) -> Mapping[Key, PartitionView]:
    """The partitions whose leader is not their preferred replica (the first), while that one is in
    the ISR and could lead."""
    return {
        key: partition
        for key, partition in sorted(view.partitions.items())
        if partition.leader is not None
        and partition.leader != partition.replicas[0]
        and partition.replicas[0] in partition.isr
    }


def elect_preferred(bootstrap: str, keys: Sequence[Key]) -> None:
    """ElectLeaders (KIP-460) with the type PREFERRED, for topics that the cluster has: a view may
    name a topic twice.

    A partition that got its preferred leader meanwhile, or that lost it from the ISR, is left as
    it is. Raises UnresolvableTarget if no broker answers, or if no partition got its preferred
    leader.
    """
    from confluent_kafka import ElectionType, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient

    # The request's timeout is the socket's: `elect_leaders` of confluent-kafka 2.16 raises
    # SystemError when it is given one of its own.
    limits = {"socket.timeout.ms": round(_TIMEOUT_S * 1000), "log_level": 2}
    admin = AdminClient({"bootstrap.servers": bootstrap, **limits})
    try:
        topics = admin.list_topics(timeout=_TIMEOUT_S).topics
        asked = [TopicPartition(topic, number) for topic, number in keys if topic in topics]
        outcomes = admin.elect_leaders(ElectionType.PREFERRED, asked).result()
    except KafkaException as error:
        raise UnresolvableTarget(f"no preferred leader was elected: {error}") from error
    refused = [f"{p.topic}/{p.partition}: {e}" for p, e in outcomes.items() if e is not None]
    if len(refused) == len(outcomes):
        raise UnresolvableTarget(f"no preferred leader was elected: {'; '.join(refused)}")
