"""Maps kinds of error to what a client sees.

Refusals are values with an error code. One table in this module maps the exceptions that reach the
wire. Any other exception is a bug and must reach the process's own handler.
"""

from __future__ import annotations

from kvorum.runtime.errors import CorruptData, ErrorCode, KvorumError, Rejected, WireError


def rejection_of(error: Exception) -> Rejected | None:
    """The refusal for `error`, or None if a client must not see this error."""
    code = getattr(error, "code", None)
    if isinstance(error, KvorumError) and isinstance(code, ErrorCode):
        return Rejected(code, str(error))
    if isinstance(error, WireError):
        return Rejected(ErrorCode.INVALID_REQUEST, str(error))
    if isinstance(error, CorruptData | OSError):
        # A disk failure is not the client's fault, and another replica may work. On
        # KAFKA_STORAGE_ERROR clients refresh their metadata and retry.
        return Rejected(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    return None
