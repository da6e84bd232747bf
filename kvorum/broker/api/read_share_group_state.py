"""ReadShareGroupState (84). Served: v0, from leaders of partitions, when they begin to lead.

From then on leaders of lower epochs get FENCED_LEADER_EPOCH. INVALID_REQUEST: there is no state.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.share_state_calls import ACCESS as BROKERS_ONLY
from kvorum.broker.api.share_state_calls import answers
from kvorum.broker.share_state import apis
from kvorum.broker.share_state.records import ShareKey, ShareState
from kvorum.broker.share_state.requests import ReadState
from kvorum.runtime.errors import ErrorCode

API = apis.READ.api
ACCESS = BROKERS_ONLY


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    return await answers(context, request, _body, _fields)


def _body(key: ShareKey, row: Any) -> ReadState:
    return ReadState(key=key, leader_epoch=row.leader_epoch)


def _fields(state: ShareState) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "state_epoch": state.state_epoch,
        "start_offset": state.start_offset,
        "state_batches": [batch._asdict() for batch in state.batches],
    }
