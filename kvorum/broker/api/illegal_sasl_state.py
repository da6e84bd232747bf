"""The answer to a request in the middle of a login: that API's own, with ILLEGAL_SASL_STATE.

A client that took the refusal of its token for a success goes on with its next request. Kafka
answers that one, so that the client has an error to show, and closes the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvorum.runtime.errors import ErrorCode
from kvorum.wire.kio_codec import message_class, read_request
from kvorum.wire.schema import Field, fields_of

_CODE = "error_code"
_ROWS: dict[str, tuple[str, Callable[[Any], list[dict[str, Any]]]]] = {
    "metadata": ("topics", lambda request: [{"name": t.name or ""} for t in request.topics or ()]),
    "find_coordinator": (
        "coordinators",
        lambda request: [{"key": key} for key in getattr(request, "coordinator_keys", ())],
    ),
}
"""APIs whose errors are those of rows: the field of the rows, and what each repeats of the
request."""


def illegal_state_answer(name: str, version: int, body: memoryview) -> dict[str, Any] | None:
    """The fields of the answer; None for an API whose answer has no place for the error. Raises
    WireError for a malformed request."""
    entity = message_class(name, version, "response")
    answer = _blank(entity)
    if name in _ROWS:
        field, repeated = _ROWS[name]
        row = next((one for one in fields_of(entity) if one.name == field), None)
        if row is not None:
            request = read_request(name, version, body)
            answer[field] = [{**_blank(row.struct), **given} for given in repeated(request)]
            return answer
    return answer if _CODE in answer else None


def _blank(entity: Any) -> dict[str, Any]:
    return {field.name: _value(field) for field in fields_of(entity) if field.tag is None}


def _value(field: Field) -> Any:
    if field.is_array:
        return ()
    if field.struct is not None:
        return None if field.is_optional else _blank(field.struct)
    if field.name == _CODE:
        return ErrorCode.ILLEGAL_SASL_STATE
    if field.is_optional or field.kafka_type == "uuid":
        return None
    return {"string": "", "bytes": b"", "bool": False}.get(field.kafka_type, 0)
