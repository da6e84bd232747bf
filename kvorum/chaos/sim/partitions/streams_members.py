"""Simulated Streams groups: members that heartbeat their coordinator, and open and close tasks as
they are told.

Members hold no state and process nothing. What is checked is who works on a task: at most one
member that its coordinator still knows, and at the end exactly one.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import Any

from kvorum.broker.coordinator.keys import partition_of
from kvorum.broker.groups.streams.tasks import Task, by_subtopology
from kvorum.broker.metadata_answers.topic_names import OFFSETS_TOPIC
from kvorum.chaos.sim.kernel.checks import check
from kvorum.chaos.sim.partitions.data_world import DataWorld
from kvorum.chaos.sim.partitions.leader_search import RETRY_MS, LeaderSearch
from kvorum.chaos.sim.partitions.lookup import KnownLeader, look_up
from kvorum.chaos.sim.partitions.scenario import (
    STREAMS_HEARTBEAT_INTERVAL_MS,
    STREAMS_SESSION_TIMEOUT_MS,
)
from kvorum.chaos.sim.partitions.wire import pack_request, parse_answer
from kvorum.runtime.errors import ErrorCode

REQUEST_TIMEOUT_MS = 1_000
TRUSTED_MS = STREAMS_SESSION_TIMEOUT_MS // 2
"""A member gives its tasks up when no heartbeat that was sent in this time has been answered: long
before its session ends, by whatever clock."""
REBALANCE_TIMEOUT_MS = 60_000
CLOSE_MS_MAX = 600
LIFE_MS = (1_500, 6_000)
_FIND, _BEAT = (10, "find_coordinator", 6), (88, "streams_group_heartbeat", 1)
_JOIN_EPOCH, _LEAVE_EPOCH = 0, -1

LOOK_AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class SimStreamsGroup:
    """A Streams group whose topology has two subtopologies for each topic of the clients: with few
    tasks, members that come and go move none.

    subtopologies: their topics, by id.
    workers: by task, the member that works on it.
    """

    def __init__(self, world: DataWorld, group_id: str) -> None:
        self.group_id = group_id
        self.subtopologies = {
            f"{topic}.{number}": topic for topic in world.topic_names for number in range(2)
        }
        self.workers: dict[Task, SimStreamsMember] = {}
        self._world = world

    @property
    def coordinator(self) -> KnownLeader | None:
        """The group's coordinator by the newest metadata. None if there is none."""
        topic = self._world.reference.newest.topic(OFFSETS_TOPIC)
        if topic is None:
            return None
        partition = topic.partitions[partition_of(self.group_id, len(topic.partitions))]
        return KnownLeader(partition.leader, partition.leader_epoch, topic.topic_id)

    @property
    def may_have_forgotten(self) -> bool:
        """True if records of the group were lost in an allowed way."""
        return self._world.watch.has_cut(OFFSETS_TOPIC)

    @property
    def has_fewer_tasks(self) -> bool:
        """True if that may be: a topic was created anew. Members may own tasks that are gone."""
        names = Counter(history.name for history in self._world.watch.histories.values())
        return any(names[f"{topic}-0"] > 1 for topic in self._world.topic_names)

    @property
    def is_settled(self) -> bool:
        """True if each task has a member that works on it."""
        image = self._world.reference.newest
        topics = {name: image.topic(topic) for name, topic in self.subtopologies.items()}
        if None in topics.values():
            return True
        return self.workers.keys() == {
            (name, partition_id)
            for name, topic in topics.items()
            if topic is not None
            for partition_id in topic.partitions
        }

    def open(self, task: Task, member: SimStreamsMember) -> None:
        """The member begins to work on a task."""
        other = self.workers.get(task)
        check(
            other is None or not other.is_trusted or self.may_have_forgotten,
            "OneMemberForATask",
            f"{self.group_id}: {member.name} works on task {task}, and so does "
            f"{'nobody' if other is None else other.name}",
        )
        self.workers[task] = member
        self._world.watch.tally["tasks opened"] += 1

    def close(self, task: Task, member: SimStreamsMember) -> None:
        """The member works on the task no longer."""
        if self.workers.get(task) is member:
            del self.workers[task]


class SimStreamsMember:
    """One member after the other, each with a new member id."""

    def __init__(
        self, world: DataWorld, rng: random.Random, group: SimStreamsGroup, number: int
    ) -> None:
        self.name = ""
        self._world = world
        self._rng = rng
        self._group = group
        self._number = number
        self._lives = 0
        self._epoch = _JOIN_EPOCH
        self._owned: set[Task] = set()
        self._told: frozenset[Task] = frozenset()
        self._asked_ms = self._trusted_from_ms = 0
        self._ends_ms = 0
        self._is_leaving = False
        self._search = LeaderSearch(
            world,
            look=self.run,
            on_open=self._beat,
            on_frame=self._on_frame,
            timeout_ms=REQUEST_TIMEOUT_MS,
        )

    @property
    def is_trusted(self) -> bool:
        """True if the group's present coordinator knows the member, and it has not ended."""
        now_ms = self._world.timeline.now_ms
        coordinator, leader = self._group.coordinator, self._search.leader
        return (
            now_ms - self._trusted_from_ms < TRUSTED_MS
            and coordinator is not None
            and leader is not None
            and leader[:2] == coordinator[:2]
        )

    def run(self) -> None:
        """Find the coordinator and send it heartbeats, until the end of the run."""
        if not self.name:
            self._begin()
        group = self._group
        topic = self._world.reference.newest.topic(OFFSETS_TOPIC)
        if topic is None:
            # Any broker makes the topic when a group coordinator is looked for.
            leader = look_up(self._world, self._rng, self._world.topic_names[0], 0)
        else:
            number = partition_of(group.group_id, len(topic.partitions))
            leader = look_up(self._world, self._rng, OFFSETS_TOPIC, number)
        if leader is None:
            self._search.look_again()
            return
        self._search.connect(leader)

    # --- a life ------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._lives += 1
        self.name = f"{self._group.group_id}-{self._number}.{self._lives}"
        self._epoch = _JOIN_EPOCH
        self._is_leaving = False
        self._told = frozenset()
        self._ends_ms = self._world.timeline.now_ms + self._rng.randint(*LIFE_MS)

    def _give_up(self) -> None:
        for task in sorted(self._owned):
            self._group.close(task, self)
        self._owned.clear()

    def _die(self) -> None:
        self._give_up()
        self.name = ""
        self._search.look_again()

    # --- requests ----------------------------------------------------------------------------

    def _beat(self) -> None:
        leader, coordinator = self._search.leader, self._group.coordinator
        if leader is None:
            return
        if coordinator is None or leader.topic_id != coordinator.topic_id:
            keys = {"key_type": 0, "coordinator_keys": [self._group.group_id]}
            self._search.ask(lambda correlation_id: pack_request(*_FIND, correlation_id, keys))
            return
        now_ms = self._world.timeline.now_ms
        if now_ms - self._trusted_from_ms >= TRUSTED_MS:
            self._give_up()
        is_over = now_ms >= self._ends_ms and self._world.network.is_rough
        if is_over and (self._epoch == _JOIN_EPOCH or self._rng.random() < 0.5):
            self._die()
            return
        self._is_leaving = is_over
        if is_over:
            self._give_up()
        self._asked_ms = now_ms
        values = self._values()
        self._search.ask(lambda correlation_id: pack_request(*_BEAT, correlation_id, values))

    def _values(self) -> dict[str, Any]:
        """A heartbeat in full, as after a time-out."""
        is_joining = self._epoch == _JOIN_EPOCH
        subtopologies = [
            {
                "subtopology_id": name,
                "source_topics": [topic],
                "source_topic_regex": [],
                "state_changelog_topics": [],
                "repartition_sink_topics": [],
                "repartition_source_topics": [],
                "copartition_groups": [],
            }
            for name, topic in self._group.subtopologies.items()
        ]
        return {
            "group_id": self._group.group_id,
            "member_id": self.name,
            "member_epoch": _LEAVE_EPOCH if self._is_leaving else self._epoch,
            "endpoint_information_epoch": 0,
            "rebalance_timeout": REBALANCE_TIMEOUT_MS,
            "topology": {"epoch": 0, "subtopologies": subtopologies} if is_joining else None,
            "active_tasks": [
                {"subtopology_id": name, "partitions": partitions}
                for name, partitions in by_subtopology(self._owned)
            ],
            "standby_tasks": [],
            "warmup_tasks": [],
            "process_id": self.name,
        }

    # --- answers -----------------------------------------------------------------------------

    def _on_frame(self, frame: bytes, sent_at: int) -> None:
        if not self._search.is_awaited(int.from_bytes(frame[:4], "big")):
            return
        leader, coordinator = self._search.leader, self._group.coordinator
        if coordinator is None or leader is None or leader.topic_id != coordinator.topic_id:
            self._search.look_again()
            return
        _, answer = parse_answer(*_BEAT, frame)
        error = ErrorCode(answer.error_code)
        if error != ErrorCode.NONE:
            self._on_error(error, answer.error_message)
        elif self._is_leaving:
            self._die()
        else:
            self._on_told(answer)
            self._search.after(STREAMS_HEARTBEAT_INTERVAL_MS, self._beat)

    def _on_error(self, error: ErrorCode, message: str) -> None:
        if error in FENCED:
            self._give_up()
            self._told = frozenset()
            self._epoch = _JOIN_EPOCH
            self._search.after(RETRY_MS, self._beat)
            return
        if error == ErrorCode.INVALID_REQUEST and self._group.has_fewer_tasks:
            self._die()  # it owns tasks of partitions that are gone
            return
        if error == ErrorCode.GROUP_ID_NOT_FOUND and self._group.may_have_forgotten:
            self._die()
            return
        check(
            error in LOOK_AGAIN,
            "StreamsHeartbeatRefusedForAReason",
            f"{self.name} was told {error.name}: {message}",
        )
        self._search.look_again()

    def _on_told(self, answer: Any) -> None:
        check(
            answer.member_epoch >= self._epoch,
            "MemberEpochMonotonic",
            f"{self.name} went from epoch {self._epoch} to {answer.member_epoch}",
        )
        self._epoch = answer.member_epoch
        self._trusted_from_ms = self._asked_ms
        if answer.active_tasks is None:
            return
        told = frozenset(
            (row.subtopology_id, p) for row in answer.active_tasks for p in row.partitions
        )
        self._told = told
        for task in sorted(told - self._owned):
            self._owned.add(task)
            self._group.open(task, self)
        if self._owned - told:
            # A task is not closed at once.
            close = partial(self._close_revoked, self.name)
            self._world.timeline.after(self._rng.choice((0, 20, CLOSE_MS_MAX)), close)

    def _close_revoked(self, name: str) -> None:
        if name != self.name:
            return
        for task in sorted(self._owned - self._told):
            self._owned.discard(task)
            self._group.close(task, self)
