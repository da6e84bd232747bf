"""Histories built by hand for the checks and the timeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from kvorum.chaos.experiment.history import HISTORY_VERSION, Event, Header, Poll, Send

TOPIC = "orders"


class HistoryBuilder:
    """Numbers events; one millisecond passes with each unless a time is given."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._now_ms = 0.0

    def add(self, process: str, type: str, f: str, **fields: Any) -> Event:
        at_ms = fields.pop("at_ms", None)
        self._now_ms = self._now_ms + 1.0 if at_ms is None else float(at_ms)
        event = Event(
            index=len(self.events),
            time_ms=self._now_ms,
            process=process,
            type=type,
            f=f,
            **fields,
        )
        self.events.append(event)
        return event

    def written(
        self,
        partition: int,
        value: int,
        offset: int,
        *,
        at_ms: float | None = None,
        latency_ms: float = 1.0,
        process: str = "producer-1",
    ) -> None:
        """A record invoked and acknowledged latency_ms later (at at_ms)."""
        begun = None if at_ms is None else at_ms - latency_ms
        self.sent("invoke", partition, value, process=process, at_ms=begun)
        self.sent(
            "ok", partition, value, offset, process=process, latency_ms=latency_ms, at_ms=at_ms
        )

    def sent(
        self,
        type: str,
        partition: int,
        value: int,
        offset: int = -1,
        *,
        process: str = "producer-1",
        **fields: Any,
    ) -> None:
        """One event of one record."""
        ops = (Send(TOPIC, partition, value, offset),)
        self.add(process, type, "send", ops=ops, **fields)

    def consumed(
        self, partition: int, pairs: list[tuple[int, int]], process: str = "consumer-1"
    ) -> None:
        """(value, offset) pairs, polled in one batch."""
        offsets = tuple(offset for _, offset in pairs)
        values = tuple(value for value, _ in pairs)
        self.add(process, "ok", "poll", ops=(Poll(TOPIC, partition, offsets, values),))

    def write(self, path: str) -> None:
        """The history as a file."""
        header = Header(
            history=HISTORY_VERSION, run_id="r", system="kvorum 1", wall_start_ms=1_700_000_000_000
        )
        lines = [msgspec.json.encode(item) + b"\n" for item in (header, *self.events)]
        Path(path).write_bytes(b"".join(lines))

    def final(
        self, partition: int, pairs: list[tuple[int, int]], end_offset: int | None = None
    ) -> None:
        """The final read, complete unless end_offset lies beyond it."""
        self.consumed(partition, pairs, process="final-read")
        reached = max((offset for _, offset in pairs), default=-1) + 1
        self.observed(
            what="final-read",
            partition=partition,
            start_offset=0,
            next_offset=reached,
            end_offset=reached if end_offset is None else end_offset,
        )

    def observed(self, *, partition: int | None = None, **details: Any) -> None:
        topic = None if partition is None else TOPIC
        self.add("observer", "ok", "observe", topic=topic, partition=partition, details=details)

    def fault(
        self,
        fault_id: int,
        begin_ms: float,
        end_ms: float | None,
        *,
        kind: str = "kill",
        led: list[int] | None = None,
        held: list[int] | None = None,
        **details: Any,
    ) -> None:
        value = {
            "id": fault_id,
            "name": f"{kind}-it",
            "fault": kind,
            "description": f"{kind} broker",
            "target": "one:brokers",
            "nodes": ["broker-101"],
            "links": [],
            "led_partitions": led or [],
            "held_partitions": held or [],
            "is_active_controller": False,
            "duration_ms": None,
            "injection_ms": 0.1,
            **details,
        }
        self.add("nemesis", "info", "fault-begin", details=value, at_ms=begin_ms)
        if end_ms is not None:
            end = {"id": fault_id, "fault": kind}
            self.add("nemesis", "info", "fault-end", details=end, at_ms=end_ms)


def good_history() -> HistoryBuilder:
    """Ten records in each of two partitions, read by a consumer and at the end."""
    history = HistoryBuilder()
    for value in range(10):
        for partition in (0, 1):
            history.written(partition, value, value)
    for partition in (0, 1):
        history.consumed(partition, [(value, value) for value in range(10)])
        history.final(partition, [(value, value) for value in range(10)])
    history.observed(what="quorum", leader_id=1, leader_epoch=1, high_watermark=40)
    history.observed(what="quorum", leader_id=2, leader_epoch=2, high_watermark=44)
    return history


def pipelined(
    history: HistoryBuilder,
    begin_ms: int,
    end_ms: int,
    *,
    partitions: tuple[int, ...] = (0, 1),
    silent: dict[int, tuple[int, int]] | None = None,
    latency_ms: int = 5,
) -> None:
    """One record every 10 ms to each partition, acknowledged after latency_ms; what falls into a
    partition's silence is acknowledged at its end, in order."""
    events: list[tuple[int, int, int, str, int]] = []
    for value in range((end_ms - begin_ms) // 10):
        for partition in partitions:
            at_ms = begin_ms + 10 * value
            done_ms = at_ms + latency_ms
            quiet = (silent or {}).get(partition, (0, 0))
            if quiet[0] <= done_ms < quiet[1]:
                done_ms = quiet[1]
            number = begin_ms + value
            events.append((at_ms, number, partition, "invoke", at_ms))
            events.append((done_ms, number, partition, "ok", at_ms))
    for at_ms, value, partition, type, begun_ms in sorted(events):
        if type == "invoke":
            history.sent("invoke", partition, value, at_ms=at_ms)
        else:
            latency = float(at_ms - begun_ms)
            history.sent("ok", partition, value, value, at_ms=at_ms, latency_ms=latency)
