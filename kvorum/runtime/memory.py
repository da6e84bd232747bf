"""Exempts objects from garbage collection."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


def keep_heap() -> None:
    """Exempt the present heap: it is code that lives as long as the process.

    The collector need not walk it. In forked children, walking it would also copy its pages.
    """
    gc.collect()
    gc.freeze()


def limit_collections() -> None:
    """`keep_heap`, and rare collections from here on, for a process that holds images.

    Records, images and messages contain no cycles, so reference counts free them. The collector
    would walk a large image again and again, and block the event loop meanwhile.
    """
    keep_heap()
    gc.set_threshold(50_000, 20, 1_000)


@contextlib.contextmanager
def long_lived_objects() -> Iterator[None]:
    """Exempt the objects created in this context, which live as long as the process.

    While some hundred thousand objects are created, each collection blocks the loop for tens of
    milliseconds. Reference counts still free the objects; only cycles among them would stay.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
