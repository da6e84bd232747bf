"""DeleteShareGroupState (86). Served: v0, from group coordinators, when a group or offsets end.

A state that does not exist is no fault.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.share_state_calls import ACCESS as BROKERS_ONLY
from kvorum.broker.api.share_state_calls import answers, no_fields
from kvorum.broker.share_state import apis
from kvorum.broker.share_state.records import ShareKey
from kvorum.broker.share_state.requests import DeleteState

API = apis.DELETE.api
ACCESS = BROKERS_ONLY


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    return await answers(context, request, _body, no_fields)


def _body(key: ShareKey, row: Any) -> DeleteState:
    return DeleteState(key=key)
