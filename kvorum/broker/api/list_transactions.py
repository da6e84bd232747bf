"""ListTransactions (66, KIP-664, KIP-994, KIP-1152). Served: v0-2, for the ids that this broker
coordinates.

A state that does not exist is returned in UnknownStateFilters and matches nothing. v1:
DurationFilter keeps transactions that have been open for longer. While a partition is being loaded,
the error is COORDINATOR_LOAD_IN_PROGRESS: the list would lack its ids. v2: TransactionalIdPattern,
an expression of RE2 that an id must match whole; one that does not parse is
INVALID_REGULAR_EXPRESSION.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.transactions.core.model import NAMES
from kvorum.broker.transactions.core.requests import ListTransactions
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.linear_expressions import BadExpression, compiled
from kvorum.wire.versions import Api

API = Api(key=66, name="list_transactions", min_version=0, max_version=2, first_flexible=0)
ACCESS = ((AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),)

_BY_NAME = {name: state for state, name in NAMES.items()}


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    unknown = [name for name in request.state_filters if name not in _BY_NAME]
    states = frozenset(_BY_NAME[name] for name in request.state_filters if name in _BY_NAME)
    try:
        matches = _matcher(getattr(request, "transactional_id_pattern", None))
    except BadExpression:
        return _answer(ErrorCode.INVALID_REGULAR_EXPRESSION, unknown, [])
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
            if matches(held.transactional_id)
            and context.shows(ResourceType.TRANSACTIONAL_ID, held.transactional_id)
        ]
    return _answer(ErrorCode.NONE, unknown, rows)


def _matcher(pattern: str | None) -> Callable[[str], bool]:
    """The test of an id: true if it is to be listed. Raises BadExpression."""
    if not pattern:
        return lambda _: True
    fullmatch = compiled(pattern).fullmatch
    return lambda transactional_id: fullmatch(transactional_id) is not None


def _answer(error: ErrorCode, unknown: list[str], rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "error_code": error,
        "unknown_state_filters": unknown,
        "transaction_states": rows,
    }
