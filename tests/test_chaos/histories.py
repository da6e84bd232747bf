"""Histories built by hand for the checks and the timeline."""

from __future__ import annotations

from typing import Any

from kvorum.chaos.experiment.history import Event


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
            wall_ms=1_700_000_000_000 + int(self._now_ms),
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
        self.add(process, "invoke", "produce", partition=partition, value=value, at_ms=begun)
        self.add(
            process,
            "ok",
            "produce",
            partition=partition,
            value=value,
            offset=offset,
            latency_ms=latency_ms,
            at_ms=at_ms,
        )

    def consumed(
        self, partition: int, pairs: list[tuple[int, int]], process: str = "consumer-1"
    ) -> None:
        """(value, offset) pairs, polled in one batch."""
        self.add(
            process,
            "ok",
            "consume",
            partition=partition,
            value=[value for value, _ in pairs],
            offset=[offset for _, offset in pairs],
        )

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
        self.add("observer", "ok", "observe", partition=partition, value=details)

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
        self.add("nemesis", "info", "fault-begin", value=value, at_ms=begin_ms)
        if end_ms is not None:
            end = {"id": fault_id, "fault": kind}
            self.add("nemesis", "info", "fault-end", value=end, at_ms=end_ms)


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
