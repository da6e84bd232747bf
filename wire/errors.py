"""From kinds of error to what a client sees.

Refusals are values and carry their code. Exceptions that end at the wire are mapped here, in
one table; anything that is not in it is a bug and must reach the process's own handler.
"""

from __future__ import annotations

from kvorum.runtime.errors import CorruptData, ErrorCode, KvorumError, Rejected, WireError


def rejection_of(error: Exception) -> Rejected | None:
    """The refusal that stands for `error`, or None if the error is not a client's business."""
    code = getattr(error, "code", None)
    if isinstance(error, KvorumError) and isinstance(code, ErrorCode):
        return Rejected(code, str(error))
    if isinstance(error, WireError):
        return Rejected(ErrorCode.INVALID_REQUEST, str(error))
    if isinstance(error, CorruptData | OSError):
        # A disk that fails is not the client's fault and another replica may do better: 56 makes
        # clients refresh their metadata and retry.
        return Rejected(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    return None
