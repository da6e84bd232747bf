"""Checks all replicas after every callback of their brokers, and keeps one history for each
partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from kvorum.broker.partition.replica import Replica
from kvorum.chaos.sim.controller.cluster_world import ClusterWorld
from kvorum.chaos.sim.partitions.compaction import CompactedHistory, CompactedRecord, CompactedView
from kvorum.chaos.sim.partitions.history import HeldBatch, PartitionHistory, ReplicaView
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage, PartitionImage, TopicIdPartition
from kvorum.metadata.image.records import RECOVERING
from kvorum.storage.format.batch import iter_headers, iter_records
from kvorum.storage.log.log import Log

if TYPE_CHECKING:
    from kvorum.chaos.sim.quorum.node import SimNode

READ_BYTES = 1 << 20

Seen = tuple[int, int, bool, int, int, int, int]


class ReplicaWatch:
    """histories: by topic id and partition.
    tally: counts for the summary.
    deletions: by `topic-partition`, the highest offset that DeleteRecords asked for, with any
        outcome.
    """

    def __init__(self, world: ClusterWorld) -> None:
        self.histories: dict[TopicIdPartition, PartitionHistory] = {}
        self.tally: Counter[str] = Counter()
        self.deletions: dict[str, int] = {}
        self._world = world
        self._image: ClusterImage = EMPTY_IMAGE
        self._images_seen = 1
        self._seen: dict[tuple[int, TopicIdPartition], Seen] = {}
        self._disks: dict[int, bytes] = {}

    def has_cut(self, topic: str) -> bool:
        """True if records of an internal topic were lost, in an allowed way."""
        return any(h.cuts for h in self.histories.values() if h.name.startswith(topic))

    # --- actions of brokers ------------------------------------------------------------------

    def observe(self, node: SimNode, replicas: Iterable[Replica]) -> None:
        """Check the replicas of a node's process after one of its callbacks. Raises CheckFailed."""
        self.catch_up()
        for replica in replicas:
            if replica.is_offline:
                continue
            core, log = replica.core, replica.log
            if node.disk.has_lost_power and not core.is_leader:
                # The power failed in the middle of a truncation; no reader sees this state (seed
                # 906).
                continue
            key = (core.topic_id, core.partition_id)
            seen = (
                node.incarnation,
                core.leader_epoch,
                core.is_leader,
                log.end_offset,
                core.high_watermark,
                log.start_offset,
                log.durable_end_offset,
            )
            place = (node.node_id, key)
            if self._seen.get(place) != seen:
                self._seen[place] = seen
                history = self.histories.get(key)
                if history is not None:
                    history.observe(view_of(node, replica), self._world.timeline.events)

    def on_memory_lost(self, node: SimNode) -> None:
        """Note that a broker's machine has lost power."""
        self.catch_up()
        for history in self.histories.values():
            history.on_memory_lost(node.node_id)

    # --- actions of the controller -----------------------------------------------------------

    def catch_up(self) -> None:
        """Process the newly committed records, and the disks that were lost."""
        world = self._world
        for node_id in world.broker_ids:
            directory_id = world.nodes[node_id].config.directory_id
            if self._disks.setdefault(node_id, directory_id) != directory_id:
                self._disks[node_id] = directory_id
                for history in self.histories.values():
                    history.on_memory_lost(node_id, is_disk_lost=True)
        reference = world.reference
        reference.advance()
        while self._images_seen < len(reference.images):
            self._on_image(reference.images[self._images_seen])
            self._images_seen += 1

    def _on_image(self, image: ClusterImage) -> None:
        before, self._image = self._image, image
        if before.topics is image.topics:
            return
        for topic_id, topic in image.topics.items():
            old = before.topics.get(topic_id)
            if old is topic:
                continue
            for partition_id, partition in topic.partitions.items():
                was = None if old is None else old.partitions.get(partition_id)
                if was is not partition:
                    name = f"{topic.name}-{partition_id}"
                    self._on_partition((topic_id, partition_id), name, was, partition)

    def _on_partition(
        self, key: TopicIdPartition, name: str, before: PartitionImage | None, now: PartitionImage
    ) -> None:
        history = self.histories.get(key)
        if history is None:
            configs = self._image.topic_configs(name.rpartition("-")[0])
            is_compacted = configs.get("cleanup.policy") == "compact"
            history = (CompactedHistory if is_compacted else PartitionHistory)(name=name)
            if "retention.bytes" not in configs:
                history.deletions = self.deletions
            self.histories[key] = history
        is_unclean = (
            before is not None
            and now.leader >= 0
            and now.leader != before.leader
            and now.leader not in before.isr
            and now.leader not in before.elr
            and not _completes_a_move(before, now)
        )
        self.tally["unclean elections of partitions"] += is_unclean
        history.on_image(
            replicas=now.replicas,
            isr=now.isr,
            eligible=now.elr,
            leader_epoch=now.leader_epoch,
            is_unclean=is_unclean,
        )


def _completes_a_move(before: PartitionImage, now: PartitionImage) -> bool:
    """True if the change completes a reassignment with its replicas in sync.

    The record that completes a reassignment may also elect the last new replica, which was in no
    ISR before (seed 589). A replica that is elected uncleanly may complete its reassignment too; it
    is marked as recovering and does not count (seed 60042).
    """
    return (
        before.is_reassigning
        and not now.is_reassigning
        and set(now.replicas) <= set(now.isr)
        and now.leader_recovery_state != RECOVERING
    )


def view_of(node: SimNode, replica: Replica) -> ReplicaView:
    """The replica as the checks need it."""
    core, log = replica.core, replica.log
    return CompactedView(
        read_records=partial(records_of, log),
        broker_id=node.node_id,
        process=node.incarnation,
        is_leader=core.is_leader,
        leader_epoch=core.leader_epoch,
        start_offset=log.start_offset,
        end_offset=log.end_offset,
        high_watermark=core.high_watermark,
        durable_end_offset=log.durable_end_offset,
        read=partial(batches_of, log),
        epoch_of=log.epochs.epoch_of,
    )


def batches_of(log: Log, begin: int, end: int) -> list[HeldBatch]:
    """The batches of the log that have an offset in [begin, end). With the log bound, a
    `ReadBatches`."""
    found: list[HeldBatch] = []
    offset = max(begin, log.start_offset)
    while offset < end:
        data = log.read(offset, bytes_max=READ_BYTES, end_offset=log.end_offset).read()
        before = offset
        for _, header in iter_headers(data):
            if header.base_offset >= end:
                return found
            producer = None
            if header.producer_id >= 0:
                producer = (header.producer_id, header.producer_epoch, header.base_sequence)
            found.append(
                HeldBatch(
                    header.base_offset,
                    header.last_offset,
                    header.leader_epoch,
                    header.crc,
                    producer,
                )
            )
            offset = header.last_offset + 1
        if offset == before:
            break
    return found


def records_of(log: Log, begin: int, end: int) -> list[CompactedRecord]:
    """The records of the log at offsets in [begin, end). With the log bound, a `ReadRecords`."""
    found: list[CompactedRecord] = []
    offset = max(begin, log.start_offset)
    while offset < end:
        data = log.read(offset, bytes_max=READ_BYTES, end_offset=log.end_offset).read()
        before = offset
        for position, header in iter_headers(data):
            for record in iter_records(data, position, header):
                if begin <= record.offset < end:
                    found.append(
                        CompactedRecord(
                            record.offset, header.leader_epoch, record.key or b"", record.value
                        )
                    )
            offset = header.last_offset + 1
        if offset == before:
            break
    return found
