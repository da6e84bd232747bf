"""The steps that undo a fault: each is tried, also after one that failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kvorum.runtime.errors import KvorumError

T = TypeVar("T")
Step = Callable[[], None]


def take(steps: list[Step]) -> KvorumError | OSError | None:
    """Take every step off the list, also after one that failed; returns the first error."""
    first: KvorumError | OSError | None = None
    while steps:
        step = steps.pop(0)
        try:
            step()
        except (KvorumError, OSError) as error:
            first = first or error
        except (KeyboardInterrupt, SystemExit):
            # Half done: the run's clean-up, which comes next, takes this step once more.
            steps.insert(0, step)
            raise
    return first


def take_and_raise(steps: list[Step]) -> None:
    """Take every step, and raise the first error at the end."""
    failure = take(steps)
    if failure is not None:
        raise failure


def bound_to(act: Callable[[T], None], argument: T) -> Step:
    """A step: the call with the argument."""
    return lambda: act(argument)
