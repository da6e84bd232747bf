"""The partitions and logs in the report of a failed test."""

from __future__ import annotations

from kvorum.chaos.targets import PartitionView
from kvorum.chaos.testing.failure_text import LOG_LINES_MAX, ROWS_MAX, ill_lines, log_end

BOTH = ("broker-101", "broker-102")
WELL = PartitionView(leader="broker-101", replicas=BOTH, isr=BOTH)
SHRUNK = PartitionView(leader="broker-101", replicas=BOTH, isr=("broker-101",))
HEAD = "partitions without a leader or with a shrunk ISR: "


def rows(**counts: int) -> dict[tuple[str, int], PartitionView]:
    """Ill partitions of topics, and one that is well."""
    ill = {(name, n): SHRUNK for name, count in counts.items() for n in range(count)}
    return {**ill, ("orders", 9): WELL}


def test_nothing_that_is_ill_is_none() -> None:
    assert ill_lines({("orders", 0): WELL}) == [f"{HEAD}none"]


def test_every_ill_partition_is_counted_and_internal_topics_have_one_line() -> None:
    lines = ill_lines(rows(orders=1, __consumer_offsets=50, __transaction_state=2))
    assert lines == [
        f"{HEAD}53",
        "  orders/0: leader broker-101, ISR broker-101 of broker-101, broker-102",
        "  __consumer_offsets: 50 partitions",
        "  __transaction_state: 2 partitions",
    ]


def test_topics_of_the_test_come_first_and_what_is_cut_is_counted() -> None:
    partitions = rows(**{"a.orders": 40, "z.orders": 2})
    lines = ill_lines(partitions, own_prefix="z.")
    assert lines[0] == f"{HEAD}42"
    assert [line.partition(":")[0].strip() for line in lines[1:4]] == [
        "z.orders/0", "z.orders/1", "a.orders/0",
    ]  # fmt: skip
    assert len(lines) == 1 + ROWS_MAX + 1
    assert lines[-1] == "  and 12 more"


def test_a_partition_without_a_leader_is_ill() -> None:
    lost = PartitionView(leader=None, replicas=BOTH, isr=())
    assert ill_lines({("t", 3): lost})[1] == (
        "  t/3: leader None, ISR empty of broker-101, broker-102"
    )


def test_a_log_end_has_what_happened_since_the_fault_and_counts_coordinators() -> None:
    loaded = "INFO kvorum.broker coordinator of __consumer_offsets-{} loaded: 0 records"
    log = [
        "2026-01-31T10:20:29.999 INFO kvorum.raft node=1 epoch=1 leader=2",
        "2026-01-31T10:20:30.000 WARNING kvorum.controller broker=103 is fenced",
        "Traceback: a line without a time",
        *(f"2026-01-31T10:20:31.000 {loaded.format(n)}" for n in range(50)),
    ]
    assert log_end(log, since="2026-01-31T10:20:30") == [
        log[1], log[2], "(50 lines about partitions of __consumer_offsets)",
    ]  # fmt: skip
    assert log_end(log, since="2026-01-31T10:21:00") == ["(no line since the first fault)"]
    assert log_end(log)[:3] == log[:3]
    assert log_end([]) == ["(no line)"]


def test_times_of_apache_kafka_are_read_too() -> None:
    log = ["[2026-01-31 10:20:29,999] INFO old", "[2026-01-31 10:20:30,001] WARN new"]
    assert log_end(log, since="2026-01-31T10:20:30") == log[1:]


def test_a_long_log_keeps_its_last_lines() -> None:
    log = [f"2026-01-31T10:20:30.000 INFO line {n}" for n in range(LOG_LINES_MAX + 5)]
    assert log_end(log) == ["(5 earlier lines)", *log[5:]]
