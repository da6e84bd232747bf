"""The names of a group shard's timers, which `TimerFired` carries. Pure data."""

from __future__ import annotations

from typing import NamedTuple


class SessionTimer(NamedTuple):
    """Fires when a classic member has sent nothing for its session time-out."""

    group_id: str
    member_id: str
    kind: str = "session"


class PendingMemberTimer(NamedTuple):
    """Fires when a new member id was not used in time."""

    group_id: str
    member_id: str
    kind: str = "pending-member"


class JoinTimer(NamedTuple):
    """Fires when the time to join the next generation is over."""

    group_id: str
    kind: str = "join"


class SyncTimer(NamedTuple):
    """Fires when the time to fetch this generation's assignment is over (KAFKA-12890)."""

    group_id: str
    kind: str = "sync"


class ExpiryTimer(NamedTuple):
    """Fires when the shard must look for expired offsets."""

    kind: str = "expiry"


class ConsumerSessionTimer(NamedTuple):
    """Fires when a member of the consumer protocol has sent nothing for its session time-out."""

    group_id: str
    member_id: str
    kind: str = "consumer-session"


class ConsumerRebalanceTimer(NamedTuple):
    """Fires when a member of the consumer protocol did not give up partitions within its rebalance
    time-out."""

    group_id: str
    member_id: str
    kind: str = "consumer-rebalance"


class ClassicRejoinTimer(NamedTuple):
    """Fires when a classic member of a mixed group was told to join again and did not."""

    group_id: str
    member_id: str
    kind: str = "classic-rejoin"


class ClassicSyncTimer(NamedTuple):
    """Fires when a classic member of a mixed group has joined and did not fetch its assignment."""

    group_id: str
    member_id: str
    kind: str = "classic-sync"


class ShareSessionTimer(NamedTuple):
    """Fires when a member of a share group has sent nothing for its session time-out."""

    group_id: str
    member_id: str
    kind: str = "share-session"


class StreamsSessionTimer(NamedTuple):
    """Fires when a member of a Streams group has sent nothing for its session time-out."""

    group_id: str
    member_id: str
    kind: str = "streams-session"


class StreamsRebalanceTimer(NamedTuple):
    """Fires when a member of a Streams group did not give up tasks within its rebalance
    time-out."""

    group_id: str
    member_id: str
    kind: str = "streams-rebalance"


class StreamsInitialDelayTimer(NamedTuple):
    """Fires when the first members of a Streams group have had time to join."""

    group_id: str
    kind: str = "streams-initial-delay"
