"""Simulated share groups: members that acquire records of one partition, and acknowledge them at
random.

Nobody coordinates these groups: `SimShareGroup` has the state of its share-partition made, as a
group coordinator would, and all its members fetch the one partition.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from typing import Any

from kvorum.broker.coordinator.keys import partition_of
from kvorum.broker.metadata_answers.topic_names import SHARE_STATE_TOPIC
from kvorum.broker.share_state.client import coordinator_key
from kvorum.broker.share_state.records import ShareKey
from kvorum.chaos.history import ACCEPT, REJECT, RELEASE, Acknowledgement, Delivery
from kvorum.chaos.sim.kernel.checks import check
from kvorum.chaos.sim.partitions.brokers import running
from kvorum.chaos.sim.partitions.data_world import DataWorld
from kvorum.chaos.sim.partitions.leader_search import RETRY_MS, LeaderSearch
from kvorum.chaos.sim.partitions.lookup import LeaderConnection, look_up
from kvorum.chaos.sim.partitions.recorder import Place, Recorder
from kvorum.chaos.sim.partitions.wire import pack_request, parse_answer
from kvorum.runtime.errors import ErrorCode

REQUEST_TIMEOUT_MS = 2_500
FETCH_WAIT_MS = 300
SESSION_MS_MAX = 3_000
RECORDS_MAX = 6
STATE_EPOCH = 1
_TYPES = {ACCEPT: 1, RELEASE: 2, REJECT: 3}
_FIND, _INITIALIZE, _FETCH = (
    (10, "find_coordinator", 6),
    (83, "initialize_share_group_state", 0),
    (78, "share_fetch", 2),
)

ALLOWED = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors of a fetch while nodes fail; the member begins anew."""
LOST = ALLOWED | {ErrorCode.INVALID_RECORD_STATE}
"""Errors of an acknowledgement: also that of a record that the member holds no longer."""


class SimShareGroup:
    """A share group with one partition. group_id: its name. topics: the ids of the topics in which
    its share-partition has a state: the administrators create topics anew."""

    def __init__(
        self,
        world: DataWorld,
        recorder: Recorder,
        rng: random.Random,
        *,
        group_id: str,
        topic: str,
        partition_id: int,
    ) -> None:
        self.group_id = group_id
        self.topic = topic
        self.partition_id = partition_id
        self.topics: set[bytes] = set()
        self._world = world
        self._recorder = recorder
        self._rng = rng
        self._asked = b""
        self._serial = 0
        self._caller = LeaderConnection(
            world, on_open=self._ask, on_frame=self._on_frame, on_lost=self._look_again
        )

    def run(self) -> None:
        """Have the state made, once for each topic of the name, until the end of the run."""
        self._look_again()
        leader = look_up(self._world, self._rng, self.topic, self.partition_id)
        if leader is None or leader.topic_id in self.topics:
            return
        self._asked = leader.topic_id
        state_topic = self._world.reference.newest.topic(SHARE_STATE_TOPIC)
        if state_topic is None:
            # Any broker makes the topic when a share coordinator is looked for.
            self._caller.connect(leader)
            return
        number = partition_of(self._key, len(state_topic.partitions))
        coordinator = look_up(self._world, self._rng, SHARE_STATE_TOPIC, number)
        if coordinator is not None:
            self._caller.connect(coordinator)

    @property
    def is_settled(self) -> bool:
        """True if no record of the partition waits for a member, or none can get one: the state was
        lost as any acknowledged record may be."""
        if self._recorder.has_lost_states:
            return True
        image = self._world.reference.newest
        topic = image.topic(self.topic)
        partition = None if topic is None else topic.partitions.get(self.partition_id)
        if topic is None or partition is None:
            return True
        process = None
        if partition.leader in self._world.brokers:
            process = running(self._world.brokers[partition.leader])
        if process is None:
            return False
        where = (topic.topic_id, self.partition_id)
        replica = process.manager.registry.find(*where)
        for led in process.server.services.share.partitions.led.of_group(self.group_id):
            if (led.key.topic_id, led.key.partition) == where and led.core is not None:
                end_offset = 0 if replica is None else replica.core.high_watermark
                return led.core.start_offset >= end_offset
        return False

    @property
    def _key(self) -> str:
        return coordinator_key(ShareKey(self.group_id, self._asked, self.partition_id))

    def _look_again(self) -> None:
        """Look once more after a while, whatever becomes of the present question."""
        self._serial += 1
        self._world.timeline.after(5 * RETRY_MS, partial(self._run_if, self._serial))

    def _run_if(self, serial: int) -> None:
        if serial == self._serial:
            self.run()

    def _ask(self) -> None:
        leader = self._caller.leader
        if leader is None or leader.topic_id == self._asked:
            keys = {"key_type": 2, "coordinator_keys": [self._key]}
            self._caller.send(pack_request(*_FIND, self._caller.next_id(), keys))
            return
        state = {"partition": self.partition_id, "state_epoch": STATE_EPOCH, "start_offset": 0}
        topics = [{"topic_id": self._asked, "partitions": [state]}]
        values = {"group_id": self.group_id, "topics": topics}
        self._caller.send(pack_request(*_INITIALIZE, self._caller.next_id(), values))

    def _on_frame(self, frame: bytes, sent_at: int) -> None:
        leader = self._caller.leader
        if leader is not None and leader.topic_id != self._asked:
            _, answer = parse_answer(*_INITIALIZE, frame)
            ((row,),) = (result.partitions for result in answer.results)
            if row.error_code == ErrorCode.NONE:
                self.topics.add(self._asked)
        self._caller.close()


class SimShareMember:
    """One member, in one session after the other."""

    def __init__(
        self,
        world: DataWorld,
        recorder: Recorder,
        rng: random.Random,
        group: SimShareGroup,
        number: int,
    ) -> None:
        self._world = world
        self._recorder = recorder
        self._rng = rng
        self._group = group
        self._number = number
        self._sessions = 0
        self._name = ""
        self._place = Place(b"", group.partition_id)
        self._epoch = 0
        self._ends_ms = 0
        self._held: list[tuple[int, int]] = []
        self._asked: Acknowledgement | None = None
        self._asked_ms = 0
        self._search = LeaderSearch(
            world,
            look=self.run,
            on_open=self._begin,
            on_frame=self._on_frame,
            on_end=self._leave,
            timeout_ms=REQUEST_TIMEOUT_MS,
        )

    def run(self) -> None:
        """Find the leader and fetch from it, until the end of the run."""
        group = self._group
        leader = look_up(self._world, self._rng, group.topic, group.partition_id)
        if leader is None or leader.topic_id not in group.topics:
            self._search.look_again()
            return
        self._place = Place(leader.topic_id, self._group.partition_id)
        self._search.connect(leader)

    def _leave(self) -> None:
        """The session ends; another one begins after a while."""
        if self._name:
            self._recorder.on_leave(self._name, self._place, self._group.group_id)
            self._name = ""

    # --- requests ----------------------------------------------------------------------------

    def _begin(self) -> None:
        self._sessions += 1
        self._name = f"{self._group.group_id}-{self._number}.{self._sessions}"
        self._recorder.on_join(self._name, self._place, self._group.group_id)
        self._epoch = 0
        self._held = []
        self._ends_ms = self._world.timeline.now_ms + self._rng.randint(200, SESSION_MS_MAX)
        self._ask()

    def _ask(self) -> None:
        if self._world.timeline.now_ms >= self._ends_ms and self._rng.random() < 0.5:
            self._search.look_again()  # it dies with records in hand
            return
        is_last = self._world.timeline.now_ms >= self._ends_ms
        values = {
            "group_id": self._group.group_id,
            "member_id": self._name,
            "share_session_epoch": -1 if is_last else self._epoch,
            "max_wait": FETCH_WAIT_MS,
            "min_bytes": 1,
            "max_bytes": self._world.scenario.fetch_bytes,
            "max_records": self._rng.randint(1, RECORDS_MAX),
            "batch_size": RECORDS_MAX,
            "share_acquire_mode": self._rng.randrange(2),
            "is_renew_ack": False,
            "topics": self._topics(),
            "forgotten_topics_data": (),
        }
        self._epoch += 1
        self._search.ask(lambda correlation_id: pack_request(*_FETCH, correlation_id, values))

    def _topics(self) -> list[Mapping[str, Any]]:
        """The partition, with the acknowledgements of the records that the member holds."""
        self._asked, rows = None, []
        if self._held:
            offsets = tuple(o for first, last in self._held for o in range(first, last + 1))
            types = tuple(self._draw() for _ in offsets)
            self._asked = Acknowledgement(self._place.name, 0, offsets, types)
            self._asked_ms = self._world.timeline.now_ms
            self._recorder.on_acknowledge(
                self._name, self._group.group_id, self._place, self._asked
            )
            rows = [
                {"first_offset": o, "last_offset": o, "acknowledge_types": (_TYPES[kind],)}
                for o, kind in zip(offsets, types, strict=True)
            ]
            self._held = []
        partition = {
            "partition_index": self._group.partition_id,
            "acknowledgement_batches": rows,
        }
        return [{"topic_id": self._place.topic_id, "partitions": [partition]}]

    def _draw(self) -> str:
        if not self._world.clients.is_busy:
            return ACCEPT
        return self._rng.choices((ACCEPT, RELEASE, REJECT), (80, 15, 5))[0]

    # --- answers -----------------------------------------------------------------------------

    def _on_frame(self, frame: bytes, sent_at: int) -> None:
        correlation_id, answer = parse_answer(*_FETCH, frame)
        if not self._search.is_awaited(correlation_id):
            return
        rows = [row for topic in answer.responses for row in topic.partitions]
        error = ErrorCode(answer.error_code)
        if error == ErrorCode.NONE and rows:
            self._note_acknowledged(ErrorCode(rows[0].acknowledge_error_code))
            error = ErrorCode(rows[0].error_code)
        if error != ErrorCode.NONE:
            check(
                error in ALLOWED or self._has_no_state(error),
                "ShareFetchRefusedForAReason",
                f"{self._name} of {self._place.name} was told {error.name}",
            )
            self._search.look_again()
            return
        for row in rows:
            self._held += [(r.first_offset, r.last_offset) for r in row.acquired_records]
            self._note_delivered(row.acquired_records)
        if self._world.timeline.now_ms >= self._ends_ms:
            self._search.look_again()
        else:
            # A record is not processed at once.
            self._search.after(self._rng.choice((0, 5, 50)), self._go_on)

    def _go_on(self) -> None:
        if self._search.leader is not None:
            self._ask()

    def _note_acknowledged(self, error: ErrorCode) -> None:
        asked, self._asked = self._asked, None
        if asked is None:
            return
        if error == ErrorCode.NONE:
            self._recorder.on_acknowledged_share(
                self._name, self._group.group_id, self._place, asked, self._asked_ms
            )
            self._world.watch.tally["records acknowledged by members"] += len(asked.offsets)
            return
        check(
            error in LOST or self._has_no_state(error),
            "AcknowledgementRefusedForAReason",
            f"{self._name} of {self._place.name} was told {error.name}",
        )

    def _has_no_state(self, error: ErrorCode) -> bool:
        """True for the error of a share-partition whose state was lost in an allowed way, went with
        its topic, or is kept elsewhere: the member asked a leader that has been replaced, and that
        one a share coordinator that has been, too."""
        image = self._world.reference.newest
        now = image.partition(self._place.topic_id, self._place.partition_id)
        leader = self._search.leader
        is_current = now is not None and leader is not None and now.leader == leader.broker_id
        return error == ErrorCode.INVALID_REQUEST and (
            self._recorder.has_lost_states or not is_current
        )

    def _note_delivered(self, acquired: Any) -> None:
        if not acquired:
            return
        offsets = [(o, r.delivery_count) for r in acquired
                   for o in range(r.first_offset, r.last_offset + 1)]  # fmt: skip
        delivery = Delivery(
            self._place.name, 0, tuple(o for o, _ in offsets), tuple(c for _, c in offsets)
        )
        self._recorder.on_delivered(self._name, self._group.group_id, self._place, delivery)
        self._world.watch.tally["records delivered to members"] += len(offsets)
