"""For each check a shortest history that makes it fire. The docstrings stand in docs/checks.md."""

from __future__ import annotations

from collections.abc import Callable

from .histories import HistoryBuilder


def lost_write() -> HistoryBuilder:
    """Values 0, 1 and 2 are acknowledged; the final read has 0 and 2."""
    history = HistoryBuilder()
    for value in range(3):
        history.written(0, value, value)
    history.final(0, [(0, 0), (2, 2)])
    return history


def duplicate() -> HistoryBuilder:
    """Value 0 is acknowledged once; the final read has it at offsets 0 and 1."""
    history = HistoryBuilder()
    history.written(0, 0, 0)
    history.final(0, [(0, 0), (0, 1)])
    return history


def reordered() -> HistoryBuilder:
    """A producer sends value 0, then 1; value 1 is at offset 0 and value 0 at offset 1."""
    history = HistoryBuilder()
    history.sent("invoke", 0, 0)
    history.sent("invoke", 0, 1)
    history.sent("ok", 0, 1, 0, latency_ms=1.0)
    history.sent("ok", 0, 0, 1, latency_ms=3.0)
    history.final(0, [(1, 0), (0, 1)])
    return history


def inconsistent_offsets() -> HistoryBuilder:
    """Value 0 is acknowledged at offset 0; the final read has value 1 there."""
    history = HistoryBuilder()
    history.sent("invoke", 0, 1)
    history.written(0, 0, 0)
    history.final(0, [(1, 0)])
    return history


def phantom() -> HistoryBuilder:
    """The final read has value 77, which nobody sent."""
    history = HistoryBuilder()
    history.final(0, [(77, 0)])
    return history


def aborted_read() -> HistoryBuilder:
    """A transaction that sent value 0 is aborted; the final read has value 0."""
    history = HistoryBuilder()
    history.transacted("fail", sends=[(0, 0, 0)])
    history.final(0, [(0, 0)])
    return history


def precommitted_read() -> HistoryBuilder:
    """A transaction sends value 0 and polls it before its commit."""
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
    """The log has offsets 0, 1 and 2; one poll returns 0 and 2."""
    history = _three_records()
    history.consumed(0, [(0, 0), (2, 2)])
    return history


def poll_skip() -> HistoryBuilder:
    """The log has offsets 0, 1 and 2; a poll returns 0, and the next one 2."""
    history = _three_records()
    history.consumed(0, [(0, 0)])
    history.consumed(0, [(2, 2)])
    return history


def int_nonmonotonic_poll() -> HistoryBuilder:
    """One poll returns offsets 0, 2 and 1."""
    history = _three_records()
    history.consumed(0, [(0, 0), (2, 2), (1, 1)])
    return history


def nonmonotonic_poll() -> HistoryBuilder:
    """A poll returns offsets 0 and 1, and the next one 1 and 2."""
    history = _three_records()
    history.consumed(0, [(0, 0), (1, 1)])
    history.consumed(0, [(1, 1), (2, 2)])
    return history


def int_nonmonotonic_send() -> HistoryBuilder:
    """A transaction sends value 0, then 1; they are at offsets 1 and 0."""
    history = HistoryBuilder()
    history.transacted(sends=[(0, 0, 1), (0, 1, 0)])
    history.final(0, [(1, 0), (0, 1)])
    return history


def nonmonotonic_send() -> HistoryBuilder:
    """Value 0 is acknowledged at offset 1; value 1 is sent later, and is at offset 0."""
    history = HistoryBuilder()
    history.written(0, 0, 1)
    history.written(0, 1, 0)
    history.final(0, [(1, 0), (0, 1)])
    return history


def unseen() -> HistoryBuilder:
    """Both partitions have a record; the consumer of the topic polls partition 0 alone."""
    history = HistoryBuilder()
    for partition in (0, 1):
        history.written(partition, 0, 0)
        history.final(partition, [(0, 0)])
    # The consumer never polls partition 1.
    history.consumed(0, [(0, 0)])
    return history


def unread() -> HistoryBuilder:
    """The final read ends at offset 1 of 2."""
    history = HistoryBuilder()
    history.written(0, 0, 0)
    history.final(0, [(0, 0)], end_offset=2)
    return history


def realtime_lag() -> HistoryBuilder:
    """A record acknowledged after 0.1 s is polled after 1.2 s; the limit is 1 s."""
    history = HistoryBuilder()
    history.written(0, 0, 0, at_ms=100)
    history.final(0, [(0, 0)])
    history.add("consumer-1", "invoke", "poll", at_ms=1200)
    history.consumed(0, [(0, 0)])
    return history


def partial_transaction() -> HistoryBuilder:
    """A transaction of unknown outcome sent two records; the final read has one of them."""
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
    """A transaction that polled offset 0 is aborted; the next one polls offset 1 and commits 2."""
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
    """Two transactions of one group poll offset 0, write it and commit 1."""
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
    """Two transactions write to two partitions, each of them first in one."""
    history = HistoryBuilder()
    history.transacted(sends=[(0, 0, 0), (1, 1, 1)], process="transactions-1")
    history.transacted(sends=[(0, 2, 1), (1, 3, 0)], process="transactions-2")
    history.final(0, [(0, 0), (2, 1)])
    history.final(1, [(3, 0), (1, 1)])
    return history


def g1c() -> HistoryBuilder:
    """Two transactions each poll the record that the other one sent."""
    history = HistoryBuilder()
    history.transacted(sends=[(0, 0, 0)], polls={1: [(1, 0)]}, process="transactions-1")
    history.transacted(sends=[(1, 1, 0)], polls={0: [(0, 0)]}, process="transactions-2")
    history.final(0, [(0, 0)])
    history.final(1, [(1, 0)])
    return history


def owned_twice() -> HistoryBuilder:
    """`member-2` is assigned a partition, and `member-1` revokes it afterwards."""
    history = HistoryBuilder()
    history.assigned("member-1", 0)
    history.assigned("member-2", 0)
    history.revoked("member-1", 0)
    return history


def commit_lost() -> HistoryBuilder:
    """A group commits offset 5; the next owner of the partition finds 3."""
    history = HistoryBuilder()
    history.assigned("member-1", 0)
    history.committed("member-1", 0, 5)
    history.revoked("member-1", 0)
    history.assigned("member-2", 0, found={0: 3})
    return history


def commit_moved_back() -> HistoryBuilder:
    """A group commits offset 5, then another member commits 3."""
    history = HistoryBuilder()
    history.committed("member-1", 0, 5)
    history.committed("member-2", 0, 3)
    return history


def _shared() -> HistoryBuilder:
    """Two members of a share group, and a partition whose leader stays."""
    history = HistoryBuilder()
    history.final(0, [])
    history.led(0)
    history.joined("shared-1")
    history.joined("shared-2")
    return history


def accepted_again() -> HistoryBuilder:
    """`shared-1` accepts offset 0; `shared-2` gets it afterwards, and its release is confirmed."""
    history = _shared()
    history.delivered("shared-1", 0, 0)
    history.acknowledged("shared-1", 0, 0)
    history.delivered("shared-2", 0, 0, 2)
    history.acknowledged("shared-2", 0, 0, "release")
    return history


def rejected_delivered() -> HistoryBuilder:
    """`shared-1` rejects offset 0; `shared-3` joins afterwards and gets it."""
    history = _shared()
    history.delivered("shared-1", 0, 0)
    history.acknowledged("shared-1", 0, 0, "reject")
    history.joined("shared-3")
    history.delivered("shared-3", 0, 0, 2)
    return history


def never_delivered() -> HistoryBuilder:
    """Offsets 0 and 1 are acknowledged; a drained share group got offset 0 alone."""
    history = _shared()
    for value in range(2):
        history.written(0, value, value)
    history.final(0, [(0, 0), (1, 1)])
    history.delivered("shared-1", 0, 0)
    history.drained()
    return history


def too_many_deliveries() -> HistoryBuilder:
    """Offset 0 is delivered with the delivery count 6; the share group's limit is 5."""
    history = _shared()
    history.delivered("shared-1", 0, 0, 6)
    return history


def held_by_two() -> HistoryBuilder:
    """`shared-1` gets offset 0; `shared-2` gets it too before `shared-1` has answered."""
    history = _shared()
    history.delivered("shared-1", 0, 0)
    history.delivered("shared-2", 0, 0, 2)
    return history


def two_leaders() -> HistoryBuilder:
    """Controllers name node 1 and node 3 as leader of epoch 2."""
    history = HistoryBuilder()
    history.observed(what="quorum", leader_id=1, leader_epoch=2, high_watermark=0)
    history.observed(what="quorum", leader_id=3, leader_epoch=2, high_watermark=0)
    return history


def high_watermark_back() -> HistoryBuilder:
    """The quorum's high watermark is 9, then 8 in the same epoch."""
    history = HistoryBuilder()
    history.observed(what="quorum", leader_id=1, leader_epoch=2, high_watermark=9)
    history.observed(what="quorum", leader_id=1, leader_epoch=2, high_watermark=8)
    return history


def topic_anomaly() -> HistoryBuilder:
    """A topic is created; its deletion is refused, for there is no such topic."""
    history = HistoryBuilder()
    history.asked("create-topic", "t")
    history.asked("delete-topic", "t", "fail", error="UNKNOWN_TOPIC_OR_PART")
    return history


def stale_topic_read() -> HistoryBuilder:
    """A topic is created; a describe that begins afterwards does not find it."""
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
    "accepted-again": accepted_again,
    "rejected-delivered": rejected_delivered,
    "never-delivered": never_delivered,
    "too-many-deliveries": too_many_deliveries,
    "held-by-two": held_by_two,
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
