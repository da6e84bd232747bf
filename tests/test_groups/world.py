"""A group shard with a log, timers and a clock of its own, and clients that call it by name.

What is appended counts as replicated at once, unless `is_replicating` is False: then answers wait
for `replicate`, as the host makes them wait for the high watermark.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from kvorum.broker.coordinator.model import (
    Append,
    Ask,
    CancelTimer,
    Client,
    Effect,
    Event,
    Instant,
    ReplayedRecord,
    SetTimer,
    ShardAnswer,
    ShardRequest,
    TimerFired,
    TransactionEnd,
    TransactionEnded,
)
from kvorum.broker.groups.shard import GroupShard
from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.broker.groups.steps.requests import (
    Assignment,
    CommitOffsets,
    CommitTransactionOffsets,
    FetchOffsets,
    GroupHeartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetToCommit,
    ProtocolMetadata,
    SyncGroup,
    TopicPartitions,
)

WALL_MS = 1_700_000_000_000
GROUP = "group"
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str) -> bytes:
    """A consumer's metadata, version 0."""
    names = b"".join(struct.pack(">h", len(t)) + t.encode() for t in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def protocols(*names: str, topics: tuple[str, ...] = ("orders",)) -> tuple[ProtocolMetadata, ...]:
    return tuple(ProtocolMetadata(name, subscription(*topics)) for name in names)


@dataclass
class World:
    config: GroupConfig = field(default_factory=GroupConfig)
    seed: int = 1

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.now_ms = 0
        self.log: list[ReplayedRecord | TransactionEnd] = []
        self.replicated = 0
        self.is_replicating = True
        self.answers: dict[int, Any] = {}
        self.waiting: set[int] = set()
        self.parked: list[tuple[int, ShardAnswer]] = []
        self.timers: dict[Hashable, int] = {}
        self.appends: list[Append] = []
        self.questions: list[Any] = []
        self.may_describe: Callable[[str], bool] | None = None
        self._token = 0
        self.shard = GroupShard(self.config, self.rng)
        self._carry_out(self.shard.on_loaded(self.now()))

    # --- the host ----------------------------------------------------------------------------

    def now(self) -> Instant:
        return Instant(self.now_ms, WALL_MS + self.now_ms)

    def give(self, event: Event) -> None:
        self._carry_out(self.shard.step(event, self.now()))

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append():
                    self._append(effect)
                case ShardAnswer():
                    assert effect.token in self.waiting, f"{effect.token} is answered twice"
                    self.waiting.remove(effect.token)
                    if effect.is_durable:
                        self.parked.append((len(self.log), effect))
                    else:
                        self.answers[effect.token] = effect.response
                case SetTimer():
                    self.timers[effect.name] = effect.deadline_ms
                case CancelTimer():
                    self.timers.pop(effect.name, None)
                case Ask():
                    self.questions.append(effect.question)
                case _:
                    raise AssertionError(f"unexpected {effect}")
        if self.is_replicating:
            self.replicate()

    def _append(self, effect: Append) -> None:
        self.appends.append(effect)
        producer_id, producer_epoch = effect.producer or (-1, -1)
        for record in effect.records:
            self.log.append(
                ReplayedRecord(
                    len(self.log),
                    WALL_MS + self.now_ms,
                    record.key,
                    record.value,
                    producer_id,
                    producer_epoch,
                    effect.producer is not None,
                )
            )

    def replicate(self) -> None:
        self.replicated = len(self.log)
        for required, answer in self.parked:
            assert required <= self.replicated
            self.answers[answer.token] = answer.response
        self.parked.clear()

    def marker(self, producer_id: int, *, is_commit: bool, epoch: int = 0) -> None:
        end = TransactionEnd(producer_id, epoch, is_commit)
        self.log.append(end)
        self.give(TransactionEnded(end=end))

    def advance(self, by_ms: int) -> None:
        """Advance the clock; every timer fires when it is due."""
        until_ms = self.now_ms + by_ms
        while True:
            due = [(at, str(name), name) for name, at in self.timers.items() if at <= until_ms]
            if not due:
                break
            at_ms, _, name = min(due, key=lambda row: row[:2])
            self.now_ms = max(self.now_ms, at_ms)
            del self.timers[name]
            self.give(TimerFired(name=name))
        self.now_ms = until_ms

    def until(self, token: int) -> Any:
        """Advance the clock until that request is answered; its answer."""
        while token not in self.answers:
            self.advance(min(self.timers.values()) - self.now_ms)
        return self.answers[token]

    def loaded(self, log: list[ReplayedRecord | TransactionEnd] | None = None) -> GroupShard:
        """A new shard that has read the log."""
        shard = GroupShard(self.config, random.Random(self.rng.random()))
        for item in self.log if log is None else log:
            if isinstance(item, ReplayedRecord):
                shard.replay(item)
            else:
                shard.replay_end(item)
        return shard

    def fail_over(self) -> None:
        """Another broker becomes leader: records that were not replicated are lost, waiting
        requests were answered with an error."""
        del self.log[self.replicated :]
        self.waiting.clear()
        self.parked.clear()
        self.timers.clear()
        self.shard = self.loaded()
        self._carry_out(self.shard.on_loaded(self.now()))

    # --- clients -----------------------------------------------------------------------------

    def ask(self, body: Any, client_id: str = "client") -> int:
        """Send a request; returns the token under which `answers` has its answer later."""
        self._token += 1
        self.waiting.add(self._token)
        self.give(
            ShardRequest(
                token=self._token,
                body=body,
                client=Client(id=client_id, host="/127.0.0.1", may_describe=self.may_describe),
            )
        )
        return self._token

    def call(self, body: Any, client_id: str = "client") -> Any:
        """Send a request; returns its answer, which must come at once."""
        return self.answers[self.ask(body, client_id)]

    def join(self, member_id: str = "", **more: Any) -> int:
        return self.ask(join_body(member_id, **more))

    def enter(self, **more: Any) -> tuple[str, int]:
        """A new dynamic member asks for an id and joins with it: (member id, token)."""
        member_id = self.call(join_body(**more)).member_id
        return member_id, self.join(member_id, **more)

    def sync(
        self, member_id: str, generation_id: int, given: dict[str, bytes] | None = None, **more: Any
    ) -> int:
        rows = tuple(Assignment(m, a) for m, a in (given or {}).items())
        return self.ask(
            SyncGroup(
                group_id=more.pop("group_id", GROUP),
                generation_id=generation_id,
                member_id=member_id,
                group_instance_id=more.pop("instance", None),
                protocol_type=more.pop("protocol_type", None),
                protocol_name=more.pop("protocol_name", None),
                assignments=rows,
            )
        )

    def heartbeat(self, member_id: str, generation_id: int, instance: str | None = None) -> Any:
        return self.call(
            GroupHeartbeat(
                group_id=GROUP,
                generation_id=generation_id,
                member_id=member_id,
                group_instance_id=instance,
            )
        )

    def leave(self, *members: tuple[str, str | None]) -> Any:
        rows = tuple(LeavingMember(*row) for row in members)
        return self.call(LeaveGroup(group_id=GROUP, members=rows)).members

    def stable(self, count: int, **more: Any) -> tuple[list[str], int]:
        """A stable group of so many members; the assignment of each is its number. (member ids,
        generation)"""
        entered = [self.enter(**more) for _ in range(count)]
        generation_id = self.until(entered[0][1]).generation_id
        members = [member_id for member_id, _ in entered]
        given = {member_id: b"%d" % i for i, member_id in enumerate(members)}
        tokens = [self.sync(member_id, generation_id) for member_id in members[1:]]
        tokens.append(self.sync(members[0], generation_id, given))
        assert all(token in self.answers for token in tokens)
        return members, generation_id

    @property
    def state(self) -> str:
        return self.shard.groups[GROUP].state.value


def join_body(
    member_id: str = "",
    *,
    group_id: str = GROUP,
    instance: str | None = None,
    names: tuple[str, ...] = ("range",),
    topics: tuple[str, ...] = ("orders",),
    version: int = 9,
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
    protocol_type: str = "consumer",
    offers: tuple[ProtocolMetadata, ...] | None = None,
) -> JoinGroup:
    return JoinGroup(
        group_id=group_id,
        member_id=member_id,
        group_instance_id=instance,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        protocol_type=protocol_type,
        protocols=protocols(*names, topics=topics) if offers is None else offers,
        requires_known_member_id=version >= 4,
        can_skip_assignment=version >= 9,
    )


def commit_body(
    *offsets: tuple[str, int, int],
    member_id: str = "",
    generation_id: int = -1,
    group_id: str = GROUP,
    instance: str | None = None,
    metadata: str = "",
    retention_time_ms: int = -1,
    version: int = 9,
) -> CommitOffsets:
    """offsets: (topic, partition, offset)."""
    return CommitOffsets(
        group_id=group_id,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=instance,
        retention_time_ms=retention_time_ms,
        offsets=tuple(OffsetToCommit(t, p, o, -1, metadata) for t, p, o in offsets),
        knows_missing_group=version >= 9,
    )


def transaction_commit_body(
    *offsets: tuple[str, int, int],
    producer_id: int,
    producer_epoch: int = 0,
    member_id: str = "",
    generation_id: int = -1,
    group_id: str = GROUP,
) -> CommitTransactionOffsets:
    return CommitTransactionOffsets(
        group_id=group_id,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=None,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        offsets=tuple(OffsetToCommit(t, p, o, -1, "") for t, p, o in offsets),
    )


def fetch_body(
    *keys: tuple[str, int], group_id: str = GROUP, require_stable: bool = False
) -> FetchOffsets:
    """keys: (topic, partition); none for all."""
    topics = tuple(TopicPartitions(topic, (partition,)) for topic, partition in keys)
    return FetchOffsets(
        group_id=group_id, topics=topics if keys else None, require_stable=require_stable
    )


def committed(world: World, group_id: str = GROUP) -> dict[tuple[str, int], int]:
    """The committed offsets of the group, as OffsetFetch returns them."""
    answer = world.call(fetch_body(group_id=group_id))
    return {(t.topic, p.partition): p.offset for t in answer.topics for p in t.partitions}


def compacted(log: list[ReplayedRecord | TransactionEnd]):
    """The log as the cleaner leaves it: the last record of each key. Records of aborted
    transactions do not count, and the cleaner never goes beyond the start of an open one."""
    starts: dict[int, int] = {}
    is_committed: dict[int, bool] = {}
    for place, item in enumerate(log):
        if isinstance(item, TransactionEnd):
            start = starts.pop(item.producer_id, place)
            mine = [r for r in range(start, place) if is_of(log[r], item.producer_id)]
            is_committed.update(dict.fromkeys(mine, item.is_commit))
        elif item.is_transactional:
            starts.setdefault(item.producer_id, place)
    end = min(starts.values(), default=len(log))
    seen: set[bytes] = set()
    kept = []
    for place in reversed(range(end)):
        item = log[place]
        if isinstance(item, TransactionEnd):
            kept.append(item)
        elif is_committed.get(place, True) and item.key not in seen:
            seen.add(item.key)
            kept.append(item)
    return kept[::-1] + log[end:]


def is_of(item, producer_id: int) -> bool:
    is_record = isinstance(item, ReplayedRecord) and item.is_transactional
    return is_record and item.producer_id == producer_id
