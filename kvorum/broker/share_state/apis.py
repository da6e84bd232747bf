"""The five APIs between brokers and share coordinators: their versions, and the form of a question
about one share-partition. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kvorum.broker.share_state.batches import StateBatch
from kvorum.broker.share_state.records import UNKNOWN_COUNT, ShareKey, ShareState
from kvorum.broker.share_state.requests import (
    DeleteState,
    InitializeState,
    ReadState,
    ReadSummary,
    WriteState,
)
from kvorum.runtime.errors import ErrorCode, Rejected, error_code_of
from kvorum.wire.versions import Api

NO_START = -1


class Form(NamedTuple):
    """request: the fields of the request with that body. answer: what the peer said, from the
    answer as kio reads it."""

    api: Api
    request: Callable[[Any], Mapping[str, Any]]
    answer: Callable[[Any], Any]


def _request(key: ShareKey, **partition: Any) -> dict[str, Any]:
    return {
        "group_id": key.group_id,
        "topics": [
            {
                "topic_id": key.topic_id,
                "partitions": [{"partition": key.partition, **partition}],
            }
        ],
    }


def _row_of(said: Any) -> Any | None:
    """The only row of an answer; None if it has another number of them."""
    rows = [row for topic in said.results for row in topic.partitions]
    return rows[0] if len(rows) == 1 else None


def _only_error(said: Any) -> ErrorCode | Rejected:
    row = _row_of(said)
    if row is None:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    error = error_code_of(row.error_code)
    if error == ErrorCode.NONE or not row.error_message:
        return error
    return Rejected(error, row.error_message)


def _state(said: Any) -> ShareState | ErrorCode | Rejected:
    error, row = _only_error(said), _row_of(said)
    if error != ErrorCode.NONE or row is None:
        return error
    return ShareState(
        state_epoch=row.state_epoch,
        leader_epoch=getattr(row, "leader_epoch", -1),
        start_offset=row.start_offset,
        delivery_complete_count=getattr(row, "delivery_complete_count", UNKNOWN_COUNT),
        create_timestamp_ms=0,
        write_timestamp_ms=0,
        batches=tuple(
            StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
            for b in getattr(row, "state_batches", ())
        ),
    )


def _summary(said: Any) -> ShareState | ErrorCode | Rejected | None:
    state = _state(said)
    if isinstance(state, ShareState) and (state.start_offset, state.state_epoch) == (NO_START, 0):
        return None  # Kafka's answer for a share-partition without a state
    return state


def _initialize_request(body: InitializeState) -> dict[str, Any]:
    return _request(body.key, state_epoch=body.state_epoch, start_offset=body.start_offset)


def _read_request(body: ReadState | ReadSummary) -> dict[str, Any]:
    return _request(body.key, leader_epoch=body.leader_epoch)


def _write_request(body: WriteState) -> dict[str, Any]:
    return _request(
        body.key,
        state_epoch=body.state_epoch,
        leader_epoch=body.leader_epoch,
        start_offset=body.start_offset,
        delivery_complete_count=body.delivery_complete_count,
        state_batches=[batch._asdict() for batch in body.batches],
    )


def _delete_request(body: DeleteState) -> dict[str, Any]:
    return _request(body.key)


def _api(key: int, name: str, max_version: int) -> Api:
    return Api(
        key=key,
        name=name,
        min_version=0,
        max_version=max_version,
        first_flexible=0,
        inter_broker_min_version=0,
    )


INITIALIZE = Form(_api(83, "initialize_share_group_state", 0), _initialize_request, _only_error)
READ = Form(_api(84, "read_share_group_state", 0), _read_request, _state)
WRITE = Form(_api(85, "write_share_group_state", 1), _write_request, _only_error)
DELETE = Form(_api(86, "delete_share_group_state", 0), _delete_request, _only_error)
SUMMARY = Form(_api(87, "read_share_group_state_summary", 1), _read_request, _summary)
