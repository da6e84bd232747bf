"""Conversion of an image to a snapshot and back, as the records that make it from nothing.

A snapshot takes the same way as the log: `Delta` replays its records.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgpack

from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.features import METADATA_VERSION, level_of
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.metadata.image.record_codec import UnreadableRecord, decode_record, encode_record
from kvorum.metadata.image.records import (
    AccessControlEntry,
    BrokerRegistrationChange,
    ClientQuota,
    Config,
    FeatureLevel,
    Partition,
    ProducerIds,
    Record,
    RegisterBroker,
    RegisterController,
    Topic,
)
from kvorum.runtime.async_disk import AsyncDisk
from kvorum.runtime.memory import long_lived_objects
from kvorum.snapshots.format import SnapshotHeader, Voter, iter_payloads, read_header
from kvorum.storage.format.batch import iter_headers, iter_records

RECORDS_PER_FRAME = 1_000


def records_of(image: ClusterImage) -> Iterator[Record]:
    """The records that turn the empty image into this one, in a fixed order."""
    for name, level in sorted(image.features.items()):
        yield FeatureLevel(name, level)
    for broker in sorted(image.brokers.values(), key=lambda b: b.broker_id):
        yield RegisterBroker(
            broker.broker_id,
            broker.broker_epoch,
            broker.incarnation_id,
            broker.endpoints,
            broker.rack,
            broker.is_fenced,
            broker.features,
            broker.log_dirs,
        )
        if broker.in_controlled_shutdown:
            yield BrokerRegistrationChange(
                broker.broker_id, broker.broker_epoch, in_controlled_shutdown=True
            )
    for controller in sorted(image.controllers.values(), key=lambda c: c.controller_id):
        yield RegisterController(
            controller.controller_id,
            controller.incarnation_id,
            controller.endpoints,
            controller.features,
        )
    for topic in sorted(image.topics.values(), key=lambda t: t.topic_id):
        yield Topic(topic.name, topic.topic_id)
        for partition_id, partition in sorted(topic.partitions.items()):
            yield Partition(
                topic.topic_id,
                partition_id,
                partition.replicas,
                partition.isr,
                partition.leader,
                partition.leader_epoch,
                partition.partition_epoch,
                partition.adding_replicas,
                partition.removing_replicas,
                partition.leader_recovery_state,
                partition.elr,
                partition.last_known_elr,
                partition.directories,
            )
    for (resource_type, resource_name), configs in sorted(image.configs.items()):
        for name, value in sorted(configs.items()):
            yield Config(resource_type, resource_name, name, value)
    # The name of a default entity is None, which cannot be compared with text.
    for entity, quotas in sorted(
        image.client_quotas.items(), key=lambda e: [(t, n is not None, n or "") for t, n in e[0]]
    ):
        for key, quota in sorted(quotas.items()):
            yield ClientQuota(entity, key, quota)
    for _, credentials in sorted(image.scram_credentials.items()):
        for _, credential in sorted(credentials.items()):
            yield credential
    for acl_id, acl in sorted(image.acls.items(), key=lambda item: item[0]):
        yield AccessControlEntry.of(acl_id, acl)
    for _, token in sorted(image.delegation_tokens.items()):
        yield token
    if image.next_producer_id:
        yield ProducerIds(-1, -1, image.next_producer_id)


def header_of(
    image: ClusterImage,
    *,
    timestamp_ms: int,
    kraft_version: int = 0,
    voters: tuple[Voter, ...] = (),
) -> SnapshotHeader:
    """The snapshot header of an image.

    timestamp_ms: of the image's last record, so that equal images give equal bytes.
    """
    return SnapshotHeader(
        end_offset=image.end_offset,
        epoch=image.epoch,
        timestamp_ms=timestamp_ms,
        kraft_version=kraft_version,
        voters=voters,
    )


def last_timestamp_ms(data: bytes) -> int:
    """Timestamp of the last record in a run of batches; 0 if there is none."""
    timestamp_ms = 0
    for position, header in iter_headers(data):
        for record in iter_records(data, position, header):
            timestamp_ms = record.timestamp_ms
    return timestamp_ms


def payloads_of(image: ClusterImage) -> Iterator[bytes]:
    """Data frames: msgpack arrays of encoded records, RECORDS_PER_FRAME each."""
    frame: list[bytes] = []
    level = level_of(image.features, METADATA_VERSION)
    for record in records_of(image):
        frame.append(encode_record(record, level))
        if len(frame) == RECORDS_PER_FRAME:
            yield msgpack.packb(frame)
            frame = []
    if frame:
        yield msgpack.packb(frame)


def records_in(payload: bytes) -> Iterator[Record]:
    """Records of one data frame. Raises UnreadableRecord."""
    try:
        values = msgpack.unpackb(payload)
    except (ValueError, msgpack.UnpackException) as error:
        raise UnreadableRecord(f"a snapshot frame is not msgpack: {error}") from error
    if not isinstance(values, list):
        raise UnreadableRecord("a snapshot frame is not an array of metadata records")
    return map(decode_record, values)


async def load_image(disk: AsyncDisk, path: str) -> tuple[SnapshotHeader, ClusterImage]:
    """Load a snapshot file frame by frame; the loop runs between two frames.

    Raises CorruptData, UnreadableRecord, OSError. No image is returned before the footer is
    checked.
    """
    header = await read_header(disk, path)
    delta = Delta(EMPTY_IMAGE)
    with long_lived_objects():
        async for payload in iter_payloads(disk, path):
            for record in records_in(payload):
                delta.replay(record)
        return header, delta.apply(end_offset=header.end_offset, epoch=header.epoch)
