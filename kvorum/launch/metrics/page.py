"""The page of metrics, written in slices: the event loop has its turn after each.

Values of one family may come from different turns of the loop. Sums over partitions are computed
before the first line, so they are older than the lines by the time that the page takes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from kvorum.launch.metrics.row import KAFKA, OWN, Row, kafka_lines, own_lines
from kvorum.launch.metrics.views import NodeView

SLICE_S = 0.001
"""Time of a slice. The pause of the loop is this, and the time until the clock is read again."""
SLICE_STEPS_MAX = 500
STEPS_PER_CLOCK = 20

Send = Callable[[bytes], Awaitable[None]]


def lines(rows: Sequence[Row], view: NodeView, names: Sequence[str]) -> Iterator[str | None]:
    """All lines of the page; None is a step of work without a line."""
    yield from view.prepare()
    if OWN in names:
        for row in rows:
            if row.name:
                yield from own_lines(row, view.scopes[row.scope])
    if KAFKA in names:
        families: dict[str, list[Row]] = {}
        for row in rows:
            # The process metrics have the same names in both sets; they are printed once.
            if row.exported and not (OWN in names and row.exported == row.name):
                families.setdefault(row.exported, []).append(row)
        for family in families.values():
            yield from kafka_lines(family, view.scopes, view.now_s)
        if OWN not in names:
            for row in rows:
                if row.name.startswith("process_") and row.name not in families:
                    yield from own_lines(row, view.scopes[row.scope])


async def send_slices(
    steps: Iterable[str | None], send: Send, *, clock_s: Callable[[], float] = time.perf_counter
) -> None:
    """Send the lines. A slice ends after SLICE_S or SLICE_STEPS_MAX steps; then it is sent, and the
    loop has its turn."""
    part: list[str] = []
    count, began_s = 0, clock_s()
    for step in steps:
        if step is not None:
            part.append(step)
        count += 1
        is_late = count % STEPS_PER_CLOCK == 0 and clock_s() - began_s >= SLICE_S
        if is_late or count >= SLICE_STEPS_MAX:
            if part:
                await send("".join(part).encode())
                part.clear()
            await asyncio.sleep(0)
            count, began_s = 0, clock_s()
    if part:
        await send("".join(part).encode())
