"""A follower's state, as the leader of a partition keeps it for `partition` to decide by."""

from __future__ import annotations

from kvorum.metadata.image.image import BrokerImage

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1
LONG_AGO_MS = -(1 << 62)


class FollowerState:
    """The state of one follower as its leader sees it; all unknown at the start of a leader epoch.

    sent_offset: the offset of its last fetch that was answered with records.
    checked: the offset that was last verified because the follower asked for it twice, and when
        (monotonic); see `broker.fetch.reread_verification`.
    dropped_ms, dropped_as: the time when the metadata took it out of the ISR, and its registration
        at that time.
    """

    __slots__ = (
        "broker_epoch",
        "checked",
        "dropped_as",
        "dropped_ms",
        "end_offset",
        "last_caught_up_ms",
        "last_fetch_ms",
        "leader_end_offset_at_fetch",
        "sent_offset",
        "start_offset",
    )

    def __init__(self, last_caught_up_ms: int) -> None:
        self.end_offset = UNKNOWN_OFFSET
        self.start_offset = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_EPOCH
        self.last_caught_up_ms = last_caught_up_ms
        self.last_fetch_ms = LONG_AGO_MS
        self.leader_end_offset_at_fetch = UNKNOWN_OFFSET
        self.sent_offset = UNKNOWN_OFFSET
        self.checked = (UNKNOWN_OFFSET, LONG_AGO_MS)
        self.dropped_ms = LONG_AGO_MS
        self.dropped_as: BrokerImage | None = None
