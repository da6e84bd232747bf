"""Broker configs of Apache Kafka 0.10 to 4.2 that Kafka 4.4 does not have any more.

Files of older clusters carry them. The names are those of `KafkaConfig.configNames` in the releases
0.10.2, 1.0, 2.0, 2.8, 3.9, 4.0, 4.1 and 4.2.
"""

from __future__ import annotations

_NAMES = """
    advertised.host.name
    advertised.port
    auto.include.jmx.reporter
    broker.id.generation.enable
    control.plane.listener.name
    controlled.shutdown.max.retries
    controlled.shutdown.retry.backoff.ms
    delegation.token.master.key
    eligible.leader.replicas.enable
    group.coordinator.new.enable
    group.share.enable
    group.share.max.groups
    host.name
    inter.broker.protocol.version
    internal.metadata.max.fetch.size.in.bytes
    leader.imbalance.per.broker.percentage
    log.message.downconversion.enable
    log.message.format.version
    log.message.timestamp.difference.max.ms
    metadata.log.segment.min.bytes
    offsets.commit.required.acks
    password.encoder.cipher.algorithm
    password.encoder.iterations
    password.encoder.key.length
    password.encoder.keyfactory.algorithm
    password.encoder.old.secret
    password.encoder.secret
    port
    quota.consumer.default
    quota.producer.default
    reserved.broker.max.id
    share.fetch.max.fetch.records
"""
_EARLIER = frozenset(_NAMES.split())
_ZOOKEEPER = "zookeeper."


def is_earlier_key(name: str) -> bool:
    """True for a broker's config that an earlier release of Kafka had, and 4.4 has not."""
    return name in _EARLIER or name.startswith(_ZOOKEEPER)
