"""ReadShareGroupStateSummary (87). Served: v0-1, from group coordinators, for tools.

v1 has the count of settled records (KIP-1226). Start offset -1: there is no state.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.share_state_calls import ACCESS as BROKERS_ONLY
from kvorum.broker.api.share_state_calls import answers
from kvorum.broker.share_state import apis
from kvorum.broker.share_state.records import UNKNOWN_COUNT, ShareKey, ShareState
from kvorum.broker.share_state.requests import NO_OFFSET, ReadSummary
from kvorum.runtime.errors import ErrorCode

API = apis.SUMMARY.api
ACCESS = BROKERS_ONLY


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    return await answers(context, request, _body, _fields)


def _body(key: ShareKey, row: Any) -> ReadSummary:
    return ReadSummary(key=key, leader_epoch=row.leader_epoch)


def _fields(state: ShareState | None) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "state_epoch": 0 if state is None else state.state_epoch,
        "leader_epoch": 0 if state is None else state.leader_epoch,
        "start_offset": NO_OFFSET if state is None else state.start_offset,
        "delivery_complete_count": (
            UNKNOWN_COUNT if state is None else state.delivery_complete_count
        ),
    }
