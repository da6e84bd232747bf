"""Histories built by hand for the checks and the timeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from kvorum.chaos.history import (
    HISTORY_VERSION,
    Acknowledgement,
    Commit,
    Delivery,
    Event,
    Header,
    Poll,
    Send,
)

TOPIC = "orders"


class HistoryBuilder:
    """Builds a history event by event. It numbers the events, and one millisecond passes with each
    unless a time is given."""

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
        """Add one event of type `type` about one record."""
        ops = (Send(TOPIC, partition, value, offset),)
        self.add(process, type, "send", ops=ops, **fields)

    def consumed(
        self, partition: int, pairs: list[tuple[int, int]], process: str = "consumer-1"
    ) -> None:
        """(value, offset) pairs, polled in one batch."""
        offsets = tuple(offset for _, offset in pairs)
        values = tuple(value for value, _ in pairs)
        self.add(process, "ok", "poll", ops=(Poll(TOPIC, partition, offsets, values),))

    def transacted(
        self,
        type: str = "ok",
        *,
        sends: list[tuple[int, int, int]] | None = None,
        polls: dict[int, list[tuple[int, int]]] | None = None,
        commits: dict[int, int] | None = None,
        process: str = "transactions-1",
        group: str | None = None,
        topic: str = TOPIC,
        output: str | None = None,
    ) -> None:
        """A transaction. sends: (partition, value, offset) to `output`; polls: (value, offset)
        pairs by partition, of `topic`; commits: offsets by partition."""
        written = [Send(output or topic, *send) for send in sends or []]
        read = [
            Poll(topic, number, tuple(at for _, at in pairs), tuple(value for value, _ in pairs))
            for number, pairs in (polls or {}).items()
        ]
        committed = [Commit(topic, number, offset) for number, offset in (commits or {}).items()]
        invoked = tuple(Send(send.topic, send.partition, send.value) for send in written)
        self.add(process, "invoke", "transaction", ops=invoked, transaction=process)
        self.add(
            process,
            type,
            "transaction",
            ops=(*read, *written, *committed),
            transaction=process,
            group=group,
            latency_ms=1.0,
        )

    def assigned(
        self, member: str, *partitions: int, found: dict[int, int] | None = None, **fields: Any
    ) -> None:
        """A member of the group gets partitions. found: the committed offsets there."""
        places = tuple((TOPIC, number) for number in partitions)
        ops = tuple(Commit(TOPIC, number, offset) for number, offset in (found or {}).items())
        self.add(member, "ok", "assign", partitions=places, ops=ops, group="g", **fields)

    def revoked(self, member: str, *partitions: int, type: str = "ok") -> None:
        places = tuple((TOPIC, number) for number in partitions)
        self.add(member, type, "revoke", partitions=places, group="g")

    def committed(self, member: str, partition: int, offset: int, type: str = "ok") -> None:
        """A member commits an offset."""
        ops = (Commit(TOPIC, partition, offset),)
        self.add(member, "invoke", "commit", ops=ops, group="g")
        self.add(member, type, "commit", ops=ops, group="g", latency_ms=1.0)

    def polled(self, member: str, partition: int, pairs: list[tuple[int, int]]) -> None:
        """A member of the group polls (value, offset) pairs."""
        offsets, values = tuple(at for _, at in pairs), tuple(value for value, _ in pairs)
        ops = (Poll(TOPIC, partition, offsets, values),)
        self.add(member, "ok", "poll", ops=ops, group="g")

    def joined(self, member: str, group: str = "shared", **fields: Any) -> None:
        """A member of a share group joins. Its group's locks last 15 s, and a record is delivered
        five times at the most."""
        limits = {"lock_duration_ms": 15_000, "delivery_count_limit": 5}
        self.add(member, "ok", "join", group=group, details=limits, **fields)

    def left(self, member: str, type: str = "ok", **fields: Any) -> None:
        self.add(member, type, "leave", group="shared", **fields)

    def delivered(
        self, member: str, partition: int, offset: int, count: int = 1, **fields: Any
    ) -> None:
        """A member of a share group gets a record. count: its delivery count."""
        ops = (Delivery(TOPIC, partition, (offset,), (count,)),)
        self.add(member, "ok", "deliver", ops=ops, group="shared", **fields)

    def acknowledged(
        self, member: str, partition: int, offset: int, kind: str = "accept", type: str = "ok"
    ) -> None:
        """A member acknowledges a record. type: "invoke" for an acknowledgement without outcome."""
        ops = (Acknowledgement(TOPIC, partition, (offset,), (kind,)),)
        self.add(member, "invoke", "acknowledge", ops=ops, group="shared")
        if type != "invoke":
            self.add(member, type, "acknowledge", ops=ops, group="shared", latency_ms=1.0)

    def drained(self, group: str = "shared") -> None:
        """The share group got all that it can get of the topic."""
        details = {"what": "drained", "group": group}
        self.add("observer", "ok", "observe", topic=TOPIC, details=details)

    def led(self, partition: int, epoch: int = 0, leader: int = 101) -> None:
        """A broker names the leader of a partition."""
        seen = {"leader": leader, "leader_epoch": epoch, "isr": [101], "replicas": [101]}
        self.observed(partition=partition, what="partition", observer="broker-101", **seen)

    def asked(self, function: str, topic: str, type: str = "ok", **fields: Any) -> None:
        """A request of an administrator and its outcome."""
        self.add("topics-1", "invoke", function, topic=topic)
        self.add("topics-1", type, function, topic=topic, latency_ms=1.0, **fields)

    def write(self, path: str) -> None:
        """Write the history to a file, with its events numbered anew."""
        header = Header(
            history=HISTORY_VERSION, run_id="r", system="kvorum 1", wall_start_ms=1_700_000_000_000
        )
        events = [msgspec.structs.replace(e, index=n) for n, e in enumerate(self.events)]
        lines = [msgspec.json.encode(item) + b"\n" for item in (header, *events)]
        Path(path).write_bytes(b"".join(lines))

    def final(
        self,
        partition: int,
        pairs: list[tuple[int, int]],
        end_offset: int | None = None,
        *,
        start_offset: int = 0,
        topic: str = TOPIC,
    ) -> None:
        """Add the final read of a partition. It is incomplete if end_offset lies above the last
        pair."""
        offsets, values = tuple(at for _, at in pairs), tuple(value for value, _ in pairs)
        ops = (Poll(topic, partition, offsets, values),)
        self.add("final-read", "ok", "poll", ops=ops)
        reached = max(offsets, default=start_offset - 1) + 1
        details = {
            "what": "final-read",
            "start_offset": start_offset,
            "next_offset": reached,
            "end_offset": reached if end_offset is None else end_offset,
        }
        self.add("observer", "ok", "observe", topic=topic, partition=partition, details=details)

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
        ended: dict[str, Any] | None = None,
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
            end = {"id": fault_id, "fault": kind, **(ended or {})}
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
    """One record every 10 ms to each partition, acknowledged after latency_ms. Records sent in a
    partition's silence are acknowledged at the end of the silence, in order."""
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


def full_history() -> HistoryBuilder:
    """A good history with all that Jepsen's form has, and more: transactions, a transactional copy,
    a group and topic administration beside the records of `good_history`."""
    history = good_history()
    history.transacted(sends=[(0, 20, 0), (0, 21, 1)], topic="bank", process="transactions-1")
    history.transacted(
        sends=[(1, 30, 0)],
        polls={0: [(20, 0), (21, 1)]},
        topic="bank",
        process="transactions-2",
    )
    history.transacted(sends=[(0, 22, 3)], topic="bank", process="transactions-1")
    history.final(0, [(20, 0), (21, 1), (22, 3)], topic="bank")
    history.final(1, [(30, 0)], topic="bank")
    for offset in range(2):
        history.transacted(
            sends=[(0, offset, offset)],
            polls={0: [(offset, offset)]},
            commits={0: offset + 1},
            output="copy",
            group="copiers",
            process="copier-1",
        )
    history.final(0, [(0, 0), (1, 1)], topic="copy")
    history.assigned("member-1", 0)
    history.polled("member-1", 0, [(value, value) for value in range(2)])
    history.polled("member-1", 0, [(value, value) for value in range(2, 5)])
    history.committed("member-1", 0, 5)
    history.revoked("member-1", 0)
    history.assigned("member-2", 0, found={0: 5})
    history.polled("member-2", 0, [(value, value) for value in range(5, 10)])
    history.committed("member-2", 0, 10)
    history.asked("create-topic", "t")
    history.asked("describe-topic", "t", details={"exists": True})
    history.asked("delete-topic", "t")
    return history


def history_for_every_check() -> HistoryBuilder:
    """`full_history`, and a share group that reads the records of `good_history`."""
    history = full_history()
    history.led(0)
    history.joined("shared-1")
    for partition in (0, 1):
        for offset in range(10):
            history.delivered("shared-1", partition, offset)
            history.acknowledged("shared-1", partition, offset, "reject" if offset else "accept")
    history.left("shared-1")
    history.drained()
    return history
