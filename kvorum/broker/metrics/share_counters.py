"""The numbers that a broker counts of share groups: as leader of partitions, and as share
coordinator. Pure.

Walk: `share.led_share_partition` -> `ShareMetrics`; `share_state.shard` -> `coordinator_writes`;
`groups.share_coordinator` -> `rebalances`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvorum.runtime.metrics import Histogram, Window

ACKNOWLEDGE_TYPES = 5
"""Number of types of an acknowledgement: Kafka's numbers 0 (a gap) to 4 (renew)."""


class ShareMetrics:
    """All counters of one broker about share groups; all count records unless they say otherwise.

    deliveries: given to members, each time that they are.
    redeliveries: those among them that a member had before.
    acknowledged: by Kafka's number of the type; number 0 is of offsets without a record.
    lock_timeouts: taken back from a member at the end of its lock.
    state_write_s: writes to share coordinators, from the question to the answer.
    failed_state_writes: writes that ended in an error; the state is then read anew.
    coordinator_writes: writes that the share coordinators on this broker took.
    coordinator_write_s: those writes, until their records were replicated; the `_recent` are of the
        last minute, as Kafka has them.
    rebalances: heartbeats that began a new epoch of a share group.
    dead_letters: written to the dead-letter topics of groups.
    failed_dead_letter_writes: attempts to write some, each of which wrote none.
    lost_dead_letters: records that were archived without one.
    """

    __slots__ = (
        "acknowledged", "coordinator_write_recent", "coordinator_write_s", "coordinator_writes",
        "coordinator_writes_recent", "dead_letters", "deliveries", "failed_dead_letter_writes",
        "failed_state_writes", "lock_timeouts", "lost_dead_letters", "rebalances",
        "rebalances_recent", "redeliveries", "state_write_s",
    )  # fmt: skip

    def __init__(self) -> None:
        self.deliveries = 0
        self.redeliveries = 0
        self.acknowledged = [0] * ACKNOWLEDGE_TYPES
        self.lock_timeouts = 0
        self.state_write_s = Histogram()
        self.failed_state_writes = 0
        self.coordinator_writes = 0
        self.coordinator_write_s = Histogram()
        self.coordinator_write_recent, self.coordinator_writes_recent = Window(), Window()
        self.rebalances = 0
        self.rebalances_recent = Window()
        self.dead_letters = self.failed_dead_letter_writes = self.lost_dead_letters = 0

    def note_acquired(self, rows: Iterable[tuple[int, int, int]]) -> None:
        """A member was given these records: (first offset, last offset, deliveries with this
        one)."""
        for first, last, delivery_count in rows:
            count = last - first + 1
            self.deliveries += count
            if delivery_count > 1:
                self.redeliveries += count

    def note_acknowledged(self, batches: Iterable[tuple[int, int, Sequence[int]]]) -> None:
        """A member's acknowledgements were accepted: (first offset, last offset, one type for all
        records or one for each)."""
        acknowledged = self.acknowledged
        for first, last, types in batches:
            if len(types) == 1:
                acknowledged[types[0]] += last - first + 1
            else:
                for kind in range(ACKNOWLEDGE_TYPES):
                    acknowledged[kind] += types.count(kind)

    def note_state_write(self, took_ms: int, *, is_kept: bool) -> None:
        """A write to a share coordinator was answered. is_kept: without an error."""
        self.state_write_s.observe(took_ms / 1000)
        self.failed_state_writes += not is_kept

    def note_coordinator_write(self, took_ms: int, now_ms: int) -> None:
        """A share coordinator has kept a write, on the disks of the replicas too."""
        self.coordinator_write_s.observe(took_ms / 1000)
        self.coordinator_write_recent.note(took_ms, now_ms / 1000)
        self.coordinator_writes_recent.note(1, now_ms / 1000)

    def note_rebalance(self, now_ms: int) -> None:
        """A heartbeat began a new epoch of its share group."""
        self.rebalances += 1
        self.rebalances_recent.note(1, now_ms / 1000)
