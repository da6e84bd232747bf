"""A simulated administrator who moves replicas between the two data directories of a broker."""

from __future__ import annotations

import random

from kvorum.broker.metadata_answers.topic_names import INTERNAL_TOPICS
from kvorum.chaos.sim.kernel.checks import check
from kvorum.chaos.sim.partitions.brokers import paths_of
from kvorum.chaos.sim.partitions.data_world import DataWorld
from kvorum.chaos.sim.partitions.lookup import KnownLeader, LeaderConnection
from kvorum.chaos.sim.partitions.wire import pack_request, parse_answer
from kvorum.runtime.errors import ErrorCode

_ALTER = (34, "alter_replica_log_dirs", 2)

REFUSALS = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class DirectoryMover:
    """Sends a request at random intervals to any broker, for any partition, and never repeats
    one."""

    def __init__(self, world: DataWorld, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._caller = LeaderConnection(
            world, on_open=self._send, on_frame=self._on_frame, on_lost=lambda: None
        )

    def run(self) -> None:
        """Send a request now, and again after a while as long as clients are busy."""
        world, rng = self._world, self._rng
        if not world.clients.is_busy:
            self._caller.close()
            return
        interval_ms = world.scenario.move_interval_ms
        world.timeline.after(rng.randint(interval_ms // 2, 2 * interval_ms), self.run)
        self._caller.connect(KnownLeader(rng.choice(world.broker_ids), -1, b""))

    def _send(self) -> None:
        world, rng = self._world, self._rng
        topic = rng.choice((*world.topic_names, *sorted(INTERNAL_TOPICS)))
        partition_id = rng.randrange(world.scenario.partitions)
        row = {"name": topic, "partitions": [partition_id]}
        directories = [{"path": rng.choice(paths_of(world)), "topics": [row]}]
        self._caller.send(pack_request(*_ALTER, self._caller.next_id(), {"dirs": directories}))

    def _on_frame(self, frame: bytes, sent_at: int) -> None:
        self._caller.close()
        _, answer = parse_answer(*_ALTER, frame)
        ((row,),) = (topic.partitions for topic in answer.results)
        error = ErrorCode(row.error_code)
        self._world.watch.tally[f"directory moves {error.name.lower()}"] += 1
        check(
            error == ErrorCode.NONE or error in REFUSALS,
            "MoveRefusedForAReason",
            f"who moves a replica between directories was told {error.name}",
        )
