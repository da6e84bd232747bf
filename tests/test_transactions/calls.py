"""Requests to a coordinator, made by hand, up to the end of a transaction."""

from __future__ import annotations

from typing import Any

from kvorum.broker.transactions.core.model import State, TopicPartition, Transaction
from kvorum.broker.transactions.core.records import encode_key, encode_value
from kvorum.broker.transactions.core.requests import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    MarkersWritten,
    ProducerIdentity,
)
from kvorum.runtime.errors import ErrorCode
from tests.test_transactions.host import START_MS, CoordinatorRecord, Host

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = 0, 2
"""Client versions: without and with an epoch bump at each end."""


def init(who: ProducerIdentity | None = None, **changes: Any) -> InitProducerId:
    fields: dict[str, Any] = {"transactional_id": "x", "timeout_ms": 60_000}
    if who is not None:
        fields |= {"producer_id": who.producer_id, "producer_epoch": who.producer_epoch}
    return InitProducerId(**fields | changes)


def add(who: ProducerIdentity, *partitions: TopicPartition, version: int = NEW, **more: Any):
    return AddPartitions(
        transactional_id="x", producer_id=who.producer_id, producer_epoch=who.producer_epoch,
        partitions=frozenset(partitions), client_version=version, **more,
    )  # fmt: skip


def end(who: ProducerIdentity, *, is_commit: bool = True, version: int = NEW) -> EndTransaction:
    return EndTransaction(
        transactional_id="x", producer_id=who.producer_id, producer_epoch=who.producer_epoch,
        is_commit=is_commit, client_version=version,
    )  # fmt: skip


def started(host: Host, *, version: int = NEW) -> ProducerIdentity:
    """A producer with a transaction open in A."""
    who = host.call(init())
    assert host.call(add(who, A, version=version)) == {A: ErrorCode.NONE}
    return who


def finish(host: Host) -> None:
    """Report all markers as written, and replicate the log."""
    for question in host.markers:
        host.asks.remove(question)
        host.tell(
            MarkersWritten(ask_id=question.ask_id, transactional_id=question.transactional_id)
        )
    host.replicate()


def with_epoch(epoch: int, state: State = State.EMPTY, **changes: Any) -> Host:
    """A coordinator whose log holds the transactional id `x` at this producer epoch."""
    held = Transaction(
        transactional_id="x", producer_id=7, producer_epoch=epoch, timeout_ms=60_000, state=state,
        updated_ms=START_MS, **changes,
    )  # fmt: skip
    host = Host()
    host.log.append(CoordinatorRecord(encode_key("x"), encode_value(held, 1)))
    host.replicated = 1
    host.fail_over()
    return host
