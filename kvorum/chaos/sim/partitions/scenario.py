"""The scenario of one run of the partitions' world: one of the controller's, with the brokers'
part."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from typing import ClassVar

from kvorum.chaos.sim.controller.scenario import ControllerScenario
from kvorum.chaos.sim.kernel.schedule import draw_schedule

KINDS_OF_ALL = ("crash-broker", "crash-broker", "stop-broker")
"""Kinds of faults in every seed; each seed leaves out about half of the others."""

KINDS = (
    *("crash", "crash-all", "cut-power", "fail-disk", "fill-disk", "partition", "one-way"),
    *("reset", "pause", "clock", "wipe-broker", "flap-link", "strike-operation", "crash-brokers"),
    *("isolate-broker", "cut-power-of-broker", "fail-broker-disk", "pause-broker"),
)

STREAMS_SESSION_TIMEOUT_MS = 3_000
STREAMS_HEARTBEAT_INTERVAL_MS = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionScenario(ControllerScenario):
    """A controller's scenario with partitions and their clients.

    - topics, partitions: their numbers.
    - is_compacting: the last topic is compacted.
    - min_isr: of topics.
    - producers, consumers: their numbers.
    - produce_interval_ms: of each producer.
    - acks_all: share of producers with acks=all.
    - batch_records: the most records of a batch.
    - in_flight: batches of one producer.
    - segment_bytes, index_interval_bytes: of the partitions' logs.
    - topic_retention_bytes: of the topics that are not compacted, -1: none. The metadata log's is
      retention_bytes.
    - directories: data directories of each broker.
    - share_groups: their number; each has two members and one partition.
    - streams_groups: their number; each has three members and one topic.
    - delete_interval_ms: DeleteRecords is sent after half to twice this time, 0: never.
    - move_interval_ms: a replica is moved to the other data directory of a broker after half to
      twice this time, 0: never.
    - lag_ms, fetch_wait_ms, fetch_bytes, checkpoint_ms, flush_ms, session_slots: as in
      BrokerConfig.
    """

    WORLD: ClassVar[str] = "partitions"

    topics: int = 2
    partitions: int = 1
    is_compacting: bool = False
    min_isr: int = 1
    producers: int = 3
    consumers: int = 2
    produce_interval_ms: int = 150
    acks_all: float = 0.8
    batch_records: int = 3
    in_flight: int = 3
    segment_bytes: int = 2_000
    topic_retention_bytes: int = -1
    index_interval_bytes: int = 256
    lag_ms: int = 1_500
    fetch_wait_ms: int = 400
    fetch_bytes: int = 4_000
    checkpoint_ms: int = 1_000
    flush_ms: int = 2_000
    session_slots: int = 1_000
    directories: int = 1
    delete_interval_ms: int = 0
    move_interval_ms: int = 0
    share_groups: int = 0
    streams_groups: int = 0


def partition_scenario_of(seed: int) -> PartitionScenario:
    """The scenario that a seed determines."""
    rng = random.Random(f"partition-scenario-{seed}")
    observers = rng.choice((2, 3, 3, 3, 4))
    scenario = PartitionScenario(
        seed=seed,
        voters=rng.choice((1, 1, 3)),
        observers=observers,
        delay_ms_max=rng.choice((1, 5, 5, 30)),
        spike=rng.choice((0.0, 0.0, 0.01)),
        loss=rng.choice((0.0, 0.0, 0.02)),
        fsync_ms_max=rng.choice((0, 2, 20, 100)),
        drift=rng.choice((0, 10, 50)),
        propose_interval_ms=rng.choice((400, 800, 1_500)),
        snapshot_every=rng.choice((0, 60, 150)),
        heartbeat_interval_ms=rng.choice((200, 500)),
        rebalance_s=rng.choice((1, 3, 300)),
        is_unclean=rng.random() < 0.12,
        chunk_bytes=rng.choice((600, 1 << 20)),
        turn_ms_max=rng.choice((0, 5, 40)),
        session_ms=rng.choice((1_000, 2_000, 4_000)),
        topics=rng.choice((1, 2, 2, 3)),
        partitions=rng.choice((1, 1, 2)),
        is_compacting=rng.random() < 0.3,
        min_isr=rng.choice((1, 2, 2)),
        producers=rng.choice((2, 3, 4)),
        consumers=rng.choice((1, 2)),
        produce_interval_ms=rng.choice((60, 120, 250)),
        acks_all=rng.choice((1.0, 0.7, 0.5)),
        batch_records=rng.choice((1, 3)),
        in_flight=rng.choice((1, 3, 5)),
        segment_bytes=rng.choice((400, 1_500, 6_000)),
        topic_retention_bytes=rng.choice((-1, -1, 3_000)),
        index_interval_bytes=rng.choice((1, 300, 4_096)),
        lag_ms=rng.choice((600, 1_500, 4_000)),
        fetch_wait_ms=rng.choice((200, 500)),
        fetch_bytes=rng.choice((300, 4_000, 100_000)),
        checkpoint_ms=rng.choice((300, 1_500)),
        flush_ms=rng.choice((700, 3_000, 60_000)),
        session_slots=rng.choice((1, 1_000, 1_000)),
    )
    kinds = [*KINDS_OF_ALL, *(kind for kind in KINDS if rng.random() < 0.45)]
    schedule = draw_schedule(
        rng,
        node_ids=scenario.node_ids,
        kinds=kinds,
        duration_ms=scenario.duration_ms,
        interval_ms=rng.choice((500, 1_000, 2_000)),
    )
    directories = rng.choice((1, 1, 2))
    moves = random.Random(f"directory-moves-{seed}")
    return dataclasses.replace(
        scenario,
        faults=schedule,
        directories=directories,
        delete_interval_ms=rng.choice((0, 400, 1_500)),
        move_interval_ms=moves.choice((0, 150, 600)) if directories > 1 else 0,
        # Drawn apart, so that older seeds are as they were where they have none.
        share_groups=random.Random(f"share-groups-{seed}").choice((0, 0, 1)),
        streams_groups=random.Random(f"streams-groups-{seed}").choice((0, 0, 0, 1)),
    )
