"""Names of a group shard's timers: what a `TimerFired` is about. Pure data."""

from __future__ import annotations

from typing import NamedTuple


class SessionTimer(NamedTuple):
    """The member has not been heard of for its session time-out."""

    group_id: str
    member_id: str
    kind: str = "session"


class PendingMemberTimer(NamedTuple):
    """The member id that was handed out has not been used."""

    group_id: str
    member_id: str
    kind: str = "pending-member"


class JoinTimer(NamedTuple):
    """The time to join the next generation is over."""

    group_id: str
    kind: str = "join"


class SyncTimer(NamedTuple):
    """The time to fetch this generation's assignment is over (KIP-800)."""

    group_id: str
    kind: str = "sync"


class ExpiryTimer(NamedTuple):
    """Time to look for offsets that nobody needs any more."""

    kind: str = "expiry"


class ConsumerSessionTimer(NamedTuple):
    """A member of a group of the consumer protocol has not been heard of for its session."""

    group_id: str
    member_id: str
    kind: str = "consumer-session"


class ConsumerRebalanceTimer(NamedTuple):
    """The time to give up partitions is over for a member of such a group."""

    group_id: str
    member_id: str
    kind: str = "consumer-rebalance"


class ClassicRejoinTimer(NamedTuple):
    """A classic member of such a group was told to join again, and has not."""

    group_id: str
    member_id: str
    kind: str = "classic-rejoin"


class ClassicSyncTimer(NamedTuple):
    """A classic member of such a group has joined, and has not fetched its assignment."""

    group_id: str
    member_id: str
    kind: str = "classic-sync"
