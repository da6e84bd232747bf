"""The protocol of store and client: one gRPC stream of msgpack, without a schema.

A message has all values that were ready, an answer all outcomes. Only committed values are answered
with an offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgpack

METHOD = "/kvorum.bench.Store/Append"
STATUS_METHOD = "/kvorum.bench.Store/Status"

NO_OFFSET = -1
"""In place of an offset: refused, or the leadership was lost before the commit."""

VALUES_PER_MESSAGE_MAX = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The values with these ids were committed from base_offset on, in order, or NO_OFFSET."""

    ids: Sequence[int]
    base_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """leader_id: the leader of `epoch` as the member knows it, -1 for none."""

    epoch: int
    leader_id: int
    outcomes: Sequence[Outcome] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """count: values that the member's state machine has applied; end_offset: their end."""

    epoch: int
    leader_id: int
    count: int
    end_offset: int


def encode_values(ids: Sequence[int], values: Sequence[bytes]) -> bytes:
    packed: bytes = msgpack.packb((ids, values))
    return packed


def decode_values(message: bytes) -> tuple[list[int], list[bytes]]:
    ids, values = msgpack.unpackb(message)
    return ids, values


def encode_answer(answer: Answer) -> bytes:
    outcomes = [(outcome.ids, outcome.base_offset) for outcome in answer.outcomes]
    packed: bytes = msgpack.packb((answer.epoch, answer.leader_id, outcomes))
    return packed


def decode_answer(message: bytes) -> Answer:
    epoch, leader_id, outcomes = msgpack.unpackb(message)
    return Answer(
        epoch=epoch,
        leader_id=leader_id,
        outcomes=[Outcome(ids=ids, base_offset=offset) for ids, offset in outcomes],
    )


def encode_status(status: Status) -> bytes:
    packed: bytes = msgpack.packb((status.epoch, status.leader_id, status.count, status.end_offset))
    return packed


def decode_status(message: bytes) -> Status:
    epoch, leader_id, count, end_offset = msgpack.unpackb(message)
    return Status(epoch=epoch, leader_id=leader_id, count=count, end_offset=end_offset)
