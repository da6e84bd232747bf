"""Objects that the garbage collector need not look at."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


def keep_heap() -> None:
    """The heap at start is code that lives as long as the process: the collector need not walk it,
    and in forked children it would copy its pages."""
    gc.collect()
    gc.freeze()


def spare_collections() -> None:
    """For a process that holds images: `keep_heap`, and rare collections from here on.

    Records, images and messages hold no cycles: reference counts free them. The collector would
    walk all of a large image again and again, and the loop stands still meanwhile.
    """
    keep_heap()
    gc.set_threshold(50_000, 20, 1_000)


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
