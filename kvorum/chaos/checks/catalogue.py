"""The names of all checks of a history and what each promises, in the order of a report."""

from __future__ import annotations

from kvorum.chaos.checks.results import Promise

LOST_WRITE = "lost-write"
DUPLICATE = "duplicate"
REORDERED = "reordered"
INCONSISTENT_OFFSETS = "inconsistent-offsets"
PHANTOM = "phantom"
ABORTED_READ = "aborted-read"
PRECOMMITTED_READ = "precommitted-read"
INT_POLL_SKIP = "int-poll-skip"
POLL_SKIP = "poll-skip"
INT_NONMONOTONIC_POLL = "int-nonmonotonic-poll"
NONMONOTONIC_POLL = "nonmonotonic-poll"
INT_NONMONOTONIC_SEND = "int-nonmonotonic-send"
NONMONOTONIC_SEND = "nonmonotonic-send"
UNSEEN = "unseen"
UNREAD = "unread"
REALTIME_LAG = "realtime-lag"
PARTIAL_TRANSACTION = "partial-transaction"
COMMITTED_WITHOUT_OUTPUT = "committed-without-output"
COPIED_TWICE = "copied-twice"
G0 = "G0"
G1C = "G1c"
OWNED_TWICE = "owned-twice"
COMMIT_LOST = "commit-lost"
COMMIT_MOVED_BACK = "commit-moved-back"
ACCEPTED_AGAIN = "accepted-again"
REJECTED_DELIVERED = "rejected-delivered"
NEVER_DELIVERED = "never-delivered"
TOO_MANY_DELIVERIES = "too-many-deliveries"
HELD_BY_TWO = "held-by-two"
TWO_LEADERS = "two-leaders"
HIGH_WATERMARK_BACK = "high-watermark-back"
TOPIC_ANOMALY = "topic-anomaly"
STALE_TOPIC_READ = "stale-topic-read"

CHECKS: tuple[Promise, ...] = (
    Promise(
        check=LOST_WRITE,
        promise="every acknowledged record is in the log after healing",
        jepsen="lost-write",
    ),
    Promise(check=DUPLICATE, promise="no record is in the log at two offsets", jepsen="duplicate"),
    Promise(check=REORDERED, promise="records of one producer keep their order"),
    Promise(
        check=INCONSISTENT_OFFSETS,
        promise="an offset holds one record, for ever and for all",
        jepsen="inconsistent-offsets",
    ),
    Promise(check=PHANTOM, promise="only records that a producer wrote are read"),
    Promise(check=ABORTED_READ, promise="no failed or aborted write is ever read", jepsen="G1a"),
    Promise(
        check=PRECOMMITTED_READ,
        promise="no transaction reads its own uncommitted records",
        jepsen="precommitted-read",
    ),
    Promise(
        check=INT_POLL_SKIP,
        promise="one poll or transaction leaves no record out",
        jepsen="int-poll-skip",
    ),
    Promise(
        check=POLL_SKIP,
        promise="a consumer's next poll goes on where its last one ended",
        jepsen="poll-skip",
    ),
    Promise(
        check=INT_NONMONOTONIC_POLL,
        promise="offsets rise within one poll or transaction",
        jepsen="int-nonmonotonic-poll",
    ),
    Promise(
        check=NONMONOTONIC_POLL,
        promise="a consumer's next poll never goes back",
        jepsen="nonmonotonic-poll",
    ),
    Promise(
        check=INT_NONMONOTONIC_SEND,
        promise="the records of one transaction are in the log in the order sent",
        jepsen="int-nonmonotonic-send",
    ),
    Promise(
        check=NONMONOTONIC_SEND,
        promise="a record sent after an acknowledgement is in the log after its record",
        jepsen="nonmonotonic-send",
    ),
    Promise(
        check=UNSEEN,
        promise="what is acknowledged reaches a consumer that keeps reading",
        jepsen="unseen",
    ),
    Promise(check=UNREAD, promise="after healing every partition can be read to its end"),
    Promise(
        check=REALTIME_LAG,
        promise="a consumer is never further behind than the limit",
        jepsen="realtime-lag",
    ),
    Promise(
        check=PARTIAL_TRANSACTION,
        promise="a transaction's records are in the log all or none",
    ),
    Promise(
        check=COMMITTED_WITHOUT_OUTPUT,
        promise="an input offset is committed only with the output of its transaction",
    ),
    Promise(check=COPIED_TWICE, promise="no input record is in two committed transactions"),
    Promise(
        check=G0,
        promise="transactions do not write before and after each other",
        jepsen="G0",
        is_allowed=True,
    ),
    Promise(
        check=G1C,
        promise="transactions do not read each other's writes in a circle",
        jepsen="G1c",
    ),
    Promise(check=OWNED_TWICE, promise="a partition has one owner in a group"),
    Promise(check=COMMIT_LOST, promise="a group goes on at its committed offset, never below it"),
    Promise(check=COMMIT_MOVED_BACK, promise="a group's committed offsets only rise"),
    Promise(check=ACCEPTED_AGAIN, promise="a share group gets no record again that it accepted"),
    Promise(
        check=REJECTED_DELIVERED, promise="a share group gets no record again that it rejected"
    ),
    Promise(
        check=NEVER_DELIVERED, promise="every acknowledged record reaches a member of a share group"
    ),
    Promise(
        check=TOO_MANY_DELIVERIES,
        promise="a record is delivered no more often than the share group's limit",
    ),
    Promise(check=HELD_BY_TWO, promise="a record is held by one member of a share group"),
    Promise(check=TWO_LEADERS, promise="an epoch has one leader"),
    Promise(check=HIGH_WATERMARK_BACK, promise="what is committed stays committed"),
    Promise(
        check=TOPIC_ANOMALY,
        promise="creations and deletions of a topic are linearizable, reads see one of its states",
    ),
    Promise(
        check=STALE_TOPIC_READ,
        promise="reads of a topic's existence are linearizable too",
        is_allowed=True,
    ),
)
