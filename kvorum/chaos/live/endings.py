"""The ways in which a run ends early: a signal, a closed output, an error; and their words."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kvorum.chaos.live.host.toxiproxy import ToxiproxyError
from kvorum.chaos.live.host.toxiproxy_server import ToxiproxyEnded
from kvorum.runtime.errors import KvorumError

#: The error of a run whose record has no end: `execute` replaces it when the run ends.
UNENDED = "the runner left no end: it was killed, or it runs still"

#: The errors of a run that a signal ended.
INTERRUPTED = "interrupted"
TERMINATED = "ended by SIGTERM"
BY_SIGNAL = (INTERRUPTED, TERMINATED)


class Terminated(SystemExit):
    """SIGTERM ended the run. The exit code is the shell's, 128 and the signal's number."""


class OutputClosed(KvorumError):
    """The reader of the run's progress closed the output, as `| head` does."""


def while_open(progress: Callable[[str], None]) -> Callable[[str], None]:
    """Wrap `progress`: a call raises OutputClosed once nobody reads the output."""

    def tell(line: str) -> None:
        try:
            progress(line)
        except BrokenPipeError as error:
            raise OutputClosed("the output of the run was closed by its reader") from error

    return tell


def reason_of(error: BaseException) -> str:
    """The words for an exception that ended a run."""
    match error:
        case KeyboardInterrupt():
            return INTERRUPTED
        case Terminated():
            return TERMINATED
        case OutputClosed():
            return str(error)
        case _:
            text = f"{type(error).__name__}: {error}"
            first = error.__context__
            # An error of the clean-up, whose cause is most often the one that ended the run.
            if isinstance(first, KvorumError) and not error.__suppress_context__:
                return f"{reason_of(first)}; then, in the clean-up, {text}"
            return text


def is_of_toxiproxy(error: BaseException) -> bool:
    """True if toxiproxy failed, also if another error followed in the clean-up."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, ToxiproxyError | ToxiproxyEnded):
            return True
        found = found.__cause__ or found.__context__
    return False


@contextmanager
def orderly_termination() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that the run cleans up; only the main thread can do so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(number: int, _: object) -> None:
        raise Terminated(128 + number)

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
