"""What the garbage collector need not look at."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def long_lived_objects() -> Iterator[None]:
    """What is made inside lives as long as the process: the collector leaves it alone.

    A collection that walks some hundred thousand young objects stands the loop still for tens of
    milliseconds, again and again while they are being made. They are freed by their reference
    counts as ever; only cycles among them would stay.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
