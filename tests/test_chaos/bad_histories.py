"""For each check the shortest history that makes it fire."""

from __future__ import annotations

from collections.abc import Callable

from .histories import HistoryBuilder


def lost_write() -> HistoryBuilder:
    history = HistoryBuilder()
    for value in range(3):
        history.written(0, value, value)
    history.final(0, [(0, 0), (2, 2)])
    return history


def duplicate() -> HistoryBuilder:
    history = HistoryBuilder()
    history.written(0, 0, 0)
    history.final(0, [(0, 0), (0, 1)])
    return history


def reordered() -> HistoryBuilder:
    history = HistoryBuilder()
    history.sent("invoke", 0, 0)
    history.sent("invoke", 0, 1)
    history.sent("ok", 0, 1, 0, latency_ms=1.0)
    history.sent("ok", 0, 0, 1, latency_ms=3.0)
    history.final(0, [(1, 0), (0, 1)])
    return history


def inconsistent_offsets() -> HistoryBuilder:
    history = HistoryBuilder()
    history.sent("invoke", 0, 1)
    history.written(0, 0, 0)
    history.final(0, [(1, 0)])
    return history


def phantom() -> HistoryBuilder:
    history = HistoryBuilder()
    history.final(0, [(77, 0)])
    return history


def aborted_read() -> HistoryBuilder:
    history = HistoryBuilder()
    history.transacted("fail", sends=[(0, 0, 0)])
    history.final(0, [(0, 0)])
    return history


def precommitted_read() -> HistoryBuilder:
    history = HistoryBuilder()
    history.transacted(sends=[(0, 0, 0)], polls={0: [(0, 0)]})
    history.final(0, [(0, 0)])
    return history


def _three_records() -> HistoryBuilder:
    history = HistoryBuilder()
    for value in range(3):
        history.written(0, value, value)
    history.final(0, [(0, 0), (1, 1), (2, 2)])
    return history


def int_poll_skip() -> HistoryBuilder:
    history = _three_records()
    history.consumed(0, [(0, 0), (2, 2)])
    return history


def poll_skip() -> HistoryBuilder:
    history = _three_records()
    history.consumed(0, [(0, 0)])
    history.consumed(0, [(2, 2)])
    return history


def int_nonmonotonic_poll() -> HistoryBuilder:
    history = _three_records()
    history.consumed(0, [(0, 0), (2, 2), (1, 1)])
    return history


def nonmonotonic_poll() -> HistoryBuilder:
    history = _three_records()
    history.consumed(0, [(0, 0), (1, 1)])
    history.consumed(0, [(1, 1), (2, 2)])
    return history


def int_nonmonotonic_send() -> HistoryBuilder:
    history = HistoryBuilder()
    history.transacted(sends=[(0, 0, 1), (0, 1, 0)])
    history.final(0, [(1, 0), (0, 1)])
    return history


def nonmonotonic_send() -> HistoryBuilder:
    history = HistoryBuilder()
    history.written(0, 0, 1)
    history.written(0, 1, 0)
    history.final(0, [(1, 0), (0, 1)])
    return history


def unseen() -> HistoryBuilder:
    history = HistoryBuilder()
    for partition in (0, 1):
        history.written(partition, 0, 0)
        history.final(partition, [(0, 0)])
    # The consumer never polls partition 1.
    history.consumed(0, [(0, 0)])
    return history


def unread() -> HistoryBuilder:
    history = HistoryBuilder()
    history.written(0, 0, 0)
    history.final(0, [(0, 0)], end_offset=2)
    return history


def realtime_lag() -> HistoryBuilder:
    history = HistoryBuilder()
    history.written(0, 0, 0, at_ms=100)
    history.final(0, [(0, 0)])
    history.add("consumer-1", "invoke", "poll", at_ms=1200)
    history.consumed(0, [(0, 0)])
    return history


def partial_transaction() -> HistoryBuilder:
    history = HistoryBuilder()
    # Its outcome is unknown, and one of two records is there.
    history.transacted("info", sends=[(0, 0, 0), (1, 1, 0)])
    history.final(0, [(0, 0)])
    history.final(1, [])
    return history


def _input(records: int) -> HistoryBuilder:
    history = HistoryBuilder()
    for value in range(records):
        history.written(0, value, value)
    history.final(0, [(value, value) for value in range(records)])
    return history


def committed_without_output() -> HistoryBuilder:
    history = _input(2)
    # The first transaction was aborted, but its offset was committed: the next one begins there.
    for type, offset in (("fail", 0), ("ok", 1)):
        history.transacted(
            type,
            sends=[(0, offset, offset)],
            polls={0: [(offset, offset)]},
            commits={0: offset + 1},
            output="copy",
            group="copiers",
        )
    history.final(0, [(1, 1)], topic="copy")
    return history


def copied_twice() -> HistoryBuilder:
    history = _input(1)
    for copier in (1, 2):
        history.transacted(
            sends=[(0, copier, copier)],
            polls={0: [(0, 0)]},
            commits={0: 1},
            output="copy",
            group="copiers",
            process=f"copier-{copier}",
        )
    history.final(0, [(1, 1), (2, 2)], topic="copy")
    return history


def g0() -> HistoryBuilder:
    history = HistoryBuilder()
    history.transacted(sends=[(0, 0, 0), (1, 1, 1)], process="transactions-1")
    history.transacted(sends=[(0, 2, 1), (1, 3, 0)], process="transactions-2")
    history.final(0, [(0, 0), (2, 1)])
    history.final(1, [(3, 0), (1, 1)])
    return history


def g1c() -> HistoryBuilder:
    history = HistoryBuilder()
    history.transacted(sends=[(0, 0, 0)], polls={1: [(1, 0)]}, process="transactions-1")
    history.transacted(sends=[(1, 1, 0)], polls={0: [(0, 0)]}, process="transactions-2")
    history.final(0, [(0, 0)])
    history.final(1, [(1, 0)])
    return history


def owned_twice() -> HistoryBuilder:
    history = HistoryBuilder()
    history.assigned("member-1", 0)
    history.assigned("member-2", 0)
    history.revoked("member-1", 0)
    return history


def commit_lost() -> HistoryBuilder:
    history = HistoryBuilder()
    history.assigned("member-1", 0)
    history.committed("member-1", 0, 5)
    history.revoked("member-1", 0)
    history.assigned("member-2", 0, found={0: 3})
    return history


def commit_moved_back() -> HistoryBuilder:
    history = HistoryBuilder()
    history.committed("member-1", 0, 5)
    history.committed("member-2", 0, 3)
    return history


def two_leaders() -> HistoryBuilder:
    history = HistoryBuilder()
    history.observed(what="quorum", leader_id=1, leader_epoch=2, high_watermark=0)
    history.observed(what="quorum", leader_id=3, leader_epoch=2, high_watermark=0)
    return history


def high_watermark_back() -> HistoryBuilder:
    history = HistoryBuilder()
    history.observed(what="quorum", leader_id=1, leader_epoch=2, high_watermark=9)
    history.observed(what="quorum", leader_id=1, leader_epoch=2, high_watermark=8)
    return history


def topic_anomaly() -> HistoryBuilder:
    history = HistoryBuilder()
    history.asked("create-topic", "t")
    history.asked("delete-topic", "t", "fail", error="UNKNOWN_TOPIC_OR_PART")
    return history


def stale_topic_read() -> HistoryBuilder:
    history = HistoryBuilder()
    history.asked("create-topic", "t")
    history.asked("describe-topic", "t", details={"exists": False})
    return history


BAD_HISTORIES: dict[str, Callable[[], HistoryBuilder]] = {
    "lost-write": lost_write,
    "duplicate": duplicate,
    "reordered": reordered,
    "inconsistent-offsets": inconsistent_offsets,
    "phantom": phantom,
    "aborted-read": aborted_read,
    "precommitted-read": precommitted_read,
    "int-poll-skip": int_poll_skip,
    "poll-skip": poll_skip,
    "int-nonmonotonic-poll": int_nonmonotonic_poll,
    "nonmonotonic-poll": nonmonotonic_poll,
    "int-nonmonotonic-send": int_nonmonotonic_send,
    "nonmonotonic-send": nonmonotonic_send,
    "unseen": unseen,
    "unread": unread,
    "realtime-lag": realtime_lag,
    "partial-transaction": partial_transaction,
    "committed-without-output": committed_without_output,
    "copied-twice": copied_twice,
    "G0": g0,
    "G1c": g1c,
    "owned-twice": owned_twice,
    "commit-lost": commit_lost,
    "commit-moved-back": commit_moved_back,
    "two-leaders": two_leaders,
    "high-watermark-back": high_watermark_back,
    "topic-anomaly": topic_anomaly,
    "stale-topic-read": stale_topic_read,
}

#: Checks that must fire beside the one in question: the history breaks their promise too.
ALSO_BROKEN: dict[str, set[str]] = {
    "int-poll-skip": {"unseen"},
    "poll-skip": {"unseen"},
    "int-nonmonotonic-poll": {"int-poll-skip"},
    "nonmonotonic-send": {"reordered"},
    "int-nonmonotonic-send": {"reordered"},
    "inconsistent-offsets": {"lost-write"},
}
