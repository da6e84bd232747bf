"""The failure of a simulator's check, and the name of a failure.

The name decides if a smaller scenario still shows the same failure (`chaos.sim.shrink`), so it must
not depend on offsets, times or ids.
"""

from __future__ import annotations

import traceback

from kvorum.runtime.errors import InvariantViolated


class CheckFailed(InvariantViolated):
    """A check found a violation.

    name: of the check.
    message: the facts that it found.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


class SeedFailed(InvariantViolated):
    """A run failed. name: of the check, or of the place of an unexpected error.

    The message has the finding, the commands that run it again and shrink it, and the trace.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name

    def __reduce__(self) -> tuple[type[SeedFailed], tuple[str, str]]:
        # Exceptions are pickled by their args alone, which do not include the name.
        return SeedFailed, (self.name, str(self))


def check(condition: object, name: str, message: str) -> None:
    """Raise CheckFailed(name, message) unless condition holds."""
    if not condition:
        raise CheckFailed(name, message)


def failure_name(error: BaseException) -> str:
    """The name of a failure: the check, or the error's type and the function that raised it."""
    if isinstance(error, CheckFailed | SeedFailed):
        return error.name
    frames = traceback.extract_tb(error.__traceback__)
    while frames and frames[-1].name in ("invariant", "required"):
        frames.pop()
    if not frames:
        return type(error).__name__
    folders = frames[-1].filename.replace("\\", "/").split("/")
    return f"{type(error).__name__} in {'/'.join(folders[-2:])} {frames[-1].name}"
