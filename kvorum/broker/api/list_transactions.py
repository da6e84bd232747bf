"""ListTransactions (66). Served: v0-1 (KIP-664, KIP-994), for the ids that this broker coordinates.

A state that does not exist is returned in UnknownStateFilters and matches nothing. v1:
DurationFilter keeps transactions that have been open for longer. While a partition is being loaded,
the error is COORDINATOR_LOAD_IN_PROGRESS: the list would lack its ids. Missing: filter by pattern
(v2).
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.transactions.core.model import NAMES
from kvorum.broker.transactions.core.requests import ListTransactions
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(key=66, name="list_transactions", min_version=0, max_version=1, first_flexible=0)
ACCESS = ((AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),)

_BY_NAME = {name: state for state, name in NAMES.items()}


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    unknown = [name for name in request.state_filters if name not in _BY_NAME]
    states = frozenset(_BY_NAME[name] for name in request.state_filters if name in _BY_NAME)
    if request.state_filters and not states:
        return _answer(ErrorCode.NONE, unknown, [])
    body = ListTransactions(
        states=states,
        producer_ids=frozenset(request.producer_id_filters),
        running_ms_min=request.duration_filter if context.api_version >= 1 else -1,
    )
    rows = []
    for answer in await context.services.transactions.request_all(body):
        if answer == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return _answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], [])
        if isinstance(answer, ErrorCode):
            # The shard context ended meanwhile: another broker lists its ids.
            continue
        rows += [
            {
                "transactional_id": held.transactional_id,
                "producer_id": held.producer_id,
                "transaction_state": NAMES[held.state],
            }
            for held in answer
            if context.shows(ResourceType.TRANSACTIONAL_ID, held.transactional_id)
        ]
    return _answer(ErrorCode.NONE, unknown, rows)


def _answer(error: ErrorCode, unknown: list[str], rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "error_code": error,
        "unknown_state_filters": unknown,
        "transaction_states": rows,
    }
