"""A simulated administrator who sends DeleteRecords, often to an offset within a batch."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

from kvorum.chaos.sim.kernel.checks import check
from kvorum.chaos.sim.partitions.brokers import replica_of
from kvorum.chaos.sim.partitions.data_world import DataWorld
from kvorum.chaos.sim.partitions.lookup import KnownLeader, LeaderConnection, look_up
from kvorum.chaos.sim.partitions.wire import CLIENT_ID
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.kio_codec import encode_request, read_response

if TYPE_CHECKING:
    from kvorum.chaos.sim.partitions.history import PartitionHistory

TIMEOUT_MS = 900
_API_KEY, _VERSION = 21, 2
_HEAD = struct.Struct(">ihhih")
_ANSWER_BODY_AT = 5
"""The body starts after the correlation id and an empty section of tagged fields."""

REFUSALS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class Deleter:
    """Sends a request at random intervals, for any partition that is not compacted, and never
    repeats one."""

    def __init__(self, world: DataWorld, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._asked: tuple[str, int, int] | None = None
        self._caller = LeaderConnection(
            world, on_open=self._send, on_frame=self._on_frame, on_lost=self._forget
        )

    def run(self) -> None:
        """Send a request now, and again after a while as long as clients are busy."""
        world, rng = self._world, self._rng
        if not world.clients.is_busy:
            self._caller.close()
            return
        interval_ms = world.scenario.delete_interval_ms
        world.timeline.after(rng.randint(interval_ms // 2, 2 * interval_ms), self.run)
        topics = [name for name in world.topic_names if not world.is_compacted(name)]
        if not topics:
            return
        topic, partition_id = rng.choice(topics), rng.randrange(world.scenario.partitions)
        leader = look_up(world, rng, topic, partition_id)
        history = None
        if leader is not None:
            history = world.watch.histories.get((leader.topic_id, partition_id))
        if leader is None or history is None or not history.end_offset:
            return
        # Often choose an offset near the end: a replica that was offline then lacks all remaining
        # records.
        oldest = rng.choice((0, max(history.end_offset - 8, 0)))
        self._asked = (topic, partition_id, rng.randint(oldest, history.end_offset))
        self._caller.connect(leader)

    def _forget(self) -> None:
        self._asked = None

    def _send(self) -> None:
        if self._asked is None:
            return
        topic, partition_id, offset = self._asked
        deletions = self._world.watch.deletions
        name = f"{topic}-{partition_id}"
        deletions[name] = max(deletions.get(name, 0), offset)
        partition = {"partition_index": partition_id, "offset": offset}
        values = {"topics": [{"name": topic, "partitions": [partition]}], "timeout": TIMEOUT_MS}
        body = bytes(encode_request("delete_records", _VERSION, values))
        head_bytes = _HEAD.size - 4 + len(CLIENT_ID) + 1
        head = _HEAD.pack(
            head_bytes + len(body), _API_KEY, _VERSION, self._caller.next_id(), len(CLIENT_ID)
        )
        self._caller.send(head + CLIENT_ID + b"\x00" + body)

    def _on_frame(self, frame: bytes, sent_at: int) -> None:
        asked, self._asked = self._asked, None
        leader = self._caller.leader
        if asked is None or leader is None:
            return
        topic, partition_id, offset = asked
        low_watermark, error = _parse(frame)
        self._caller.close()
        self._world.watch.tally[f"delete records {ErrorCode(error).name.lower()}"] += 1
        if error:
            check(
                ErrorCode(error) in REFUSALS,
                "DeletionRefusedForAReason",
                f"who has {topic}-{partition_id} deleted up to {offset} was told "
                f"{ErrorCode(error).name}",
            )
            return
        check(
            low_watermark >= offset,
            "DeletedUpToWhatWasAsked",
            f"{topic}-{partition_id}: deleted up to {low_watermark}, asked for was {offset}",
        )
        history = self._world.watch.histories.get((leader.topic_id, partition_id))
        if history is not None:
            self._note(history, leader, partition_id, offset)

    def _note(
        self, history: PartitionHistory, leader: KnownLeader, partition_id: int, offset: int
    ) -> None:
        """Note the deletion for the leader, and for every replica that has reported its log start
        to the leader: none of them may serve an offset below it again.

        The request names the topic without its id. If the topic was deleted and created again, the
        answering leader has a replica of the new topic only, and nothing is noted.
        """
        replica = replica_of(self._world.brokers[leader.broker_id], leader.topic_id, partition_id)
        if replica is None or not replica.core.is_leader or replica.log.start_offset < offset:
            return
        if replica.core.leader_epoch < history.trusted_epoch:
            # All records were lost, which the deleter does not know yet; the later ones are other
            # records (seeds 341058, 341205). The broker that answered may have got a new disk.
            return
        told = [b for b, remote in replica.core.followers.items() if remote.start_offset >= offset]
        for bound in (leader.broker_id, *told):
            history.on_deleted(bound, offset, replica.core.leader_epoch)


def _parse(frame: bytes) -> tuple[int, int]:
    """(low watermark, error) of the only partition."""
    answer = read_response("delete_records", _VERSION, memoryview(frame)[_ANSWER_BODY_AT:])
    row = answer.topics[0].partitions[0]
    return int(row.low_watermark), int(row.error_code.value)
