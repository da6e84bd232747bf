"""WriteShareGroupState (85). Served: v0-1, from leaders of partitions: what members acknowledged.

v1 has the count of settled records (KIP-1226). Errors: FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH,
INVALID_REQUEST.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.share_state_calls import ACCESS as BROKERS_ONLY
from kvorum.broker.api.share_state_calls import answers, no_fields
from kvorum.broker.share_state import apis
from kvorum.broker.share_state.batches import StateBatch
from kvorum.broker.share_state.records import UNKNOWN_COUNT, ShareKey
from kvorum.broker.share_state.requests import WriteState

API = apis.WRITE.api
ACCESS = BROKERS_ONLY


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    return await answers(context, request, _body, no_fields)


def _body(key: ShareKey, row: Any) -> WriteState:
    return WriteState(
        key=key,
        state_epoch=row.state_epoch,
        leader_epoch=row.leader_epoch,
        start_offset=row.start_offset,
        delivery_complete_count=getattr(row, "delivery_complete_count", UNKNOWN_COUNT),
        batches=tuple(
            StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
            for b in row.state_batches
        ),
    )
