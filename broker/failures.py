"""Where errors of background tasks go: to the loop's exception handler, which the process sets."""

from __future__ import annotations

import asyncio


def report_failure(error: BaseException) -> None:
    """Hand an error that no caller is left to see to the loop's exception handler.

    Such an error is a bug of ours; the process that set the handler ends and recovers from disk.
    """
    asyncio.get_running_loop().call_exception_handler(
        {"message": f"a background task failed: {error!r}", "exception": error}
    )
