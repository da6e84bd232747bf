"""The effects of one step, collected in the order in which they must happen. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from kvorum.broker.coordinator.model import (
    Append,
    CancelTimer,
    CoordinatorRecord,
    Effect,
    Instant,
    SetTimer,
    ShardAnswer,
)
from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.metadata.configs.group_keys import (
    ASSIGNMENT_INTERVAL,
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    SHARE_ASSIGNMENT_INTERVAL,
    SHARE_HEARTBEAT_INTERVAL,
    SHARE_SESSION_TIMEOUT,
    number_of,
)
from kvorum.metadata.image.image import RESOURCE_GROUP

BATCH_BYTES_MAX = 512 * 1024
"""Limit of keys and values in one batch, for records that need not stay together. It is well below
the usual max.message.bytes, however large a request is."""

NO_CONFIGS: Mapping[tuple[int, str], Mapping[str, str]] = {}

_RECORD_OVERHEAD_BYTES = 32
_BATCH_OVERHEAD_BYTES = 61
"""Upper bound of the log format's bytes around each record, and around a batch."""


class StepEffects:
    """Collects the effects of one event.

    config, rng: the shard's.
    now: the time of the event.
    group_configs: dynamic configs of groups, by (resource type, group id).
    """

    __slots__ = ("_group_configs", "_has_appended", "config", "effects", "now", "rng")

    def __init__(
        self,
        config: GroupConfig,
        rng: Random,
        now: Instant,
        group_configs: Mapping[tuple[int, str], Mapping[str, str]] = NO_CONFIGS,
    ) -> None:
        self._group_configs = group_configs
        self.config = config
        self.rng = rng
        self.now = now
        self.effects: list[Effect] = []
        self._has_appended = False

    def session_timeout_ms(self, group_id: str) -> int:
        """Session time-out of members of the consumer protocol in this group."""
        found = self._group_number(group_id, SESSION_TIMEOUT)
        return self.config.group_consumer_session_timeout_ms if found is None else found

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Heartbeat interval of members of the consumer protocol in this group."""
        found = self._group_number(group_id, HEARTBEAT_INTERVAL)
        return self.config.group_consumer_heartbeat_interval_ms if found is None else found

    def assignment_interval_ms(self, group_id: str) -> int:
        """Least time between two targets of this group of the consumer protocol."""
        found = self._group_number(group_id, ASSIGNMENT_INTERVAL)
        return self.config.group_consumer_assignment_interval_ms if found is None else found

    def share_session_timeout_ms(self, group_id: str) -> int:
        """Session time-out of members of this share group."""
        found = self._group_number(group_id, SHARE_SESSION_TIMEOUT)
        return self.config.group_share_session_timeout_ms if found is None else found

    def share_heartbeat_interval_ms(self, group_id: str) -> int:
        """Heartbeat interval of members of this share group."""
        found = self._group_number(group_id, SHARE_HEARTBEAT_INTERVAL)
        return self.config.group_share_heartbeat_interval_ms if found is None else found

    def share_assignment_interval_ms(self, group_id: str) -> int:
        """Least time between two targets of this share group."""
        found = self._group_number(group_id, SHARE_ASSIGNMENT_INTERVAL)
        return self.config.group_share_assignment_interval_ms if found is None else found

    def group_number(self, group_id: str, name: str, default: int) -> int:
        """The number to which the group's own configs set `name`, else the default."""
        found = self._group_number(group_id, name)
        return default if found is None else found

    def group_text(self, group_id: str, name: str, default: str) -> str:
        """As `group_number`, for a text."""
        configs = self._group_configs.get((RESOURCE_GROUP, group_id))
        return default if configs is None else configs.get(name, default)

    def _group_number(self, group_id: str, name: str) -> int | None:
        configs = self._group_configs.get((RESOURCE_GROUP, group_id))
        found = None if configs is None else number_of(configs, name)
        return None if found is None else self.config.within(name, found)

    def append(self, record: CoordinatorRecord) -> None:
        """Write one record."""
        self._has_appended = True
        self.effects.append(Append(records=(record,)))

    def fits(self, record: CoordinatorRecord) -> bool:
        """True if the record fits into the log."""
        return len(record.key) + len(record.value or b"") <= self.config.message_max_bytes

    def fit_together(self, records: Sequence[CoordinatorRecord]) -> bool:
        """True if the records fit into the log as one batch."""
        size = _BATCH_OVERHEAD_BYTES + _RECORD_OVERHEAD_BYTES * len(records)
        size += sum(len(record.key) + len(record.value or b"") for record in records)
        return size <= self.config.message_max_bytes

    def append_together(self, records: Sequence[CoordinatorRecord]) -> None:
        """Write records in one batch, so that a reader finds all of them or none. They must
        `fit_together`."""
        self._append_batch(list(records), None)

    def append_all(
        self, records: Iterable[CoordinatorRecord], producer: tuple[int, int] | None = None
    ) -> None:
        """Write records in as few batches as possible; they need not stay together."""
        batch: list[CoordinatorRecord] = []
        batch_bytes = 0
        for record in records:
            record_bytes = len(record.key) + len(record.value or b"")
            if batch and batch_bytes + record_bytes > BATCH_BYTES_MAX:
                self._append_batch(batch, producer)
                batch, batch_bytes = [], 0
            batch.append(record)
            batch_bytes += record_bytes
        if batch:
            self._append_batch(batch, producer)

    def _append_batch(
        self, batch: list[CoordinatorRecord], producer: tuple[int, int] | None
    ) -> None:
        self._has_appended = True
        self.effects.append(Append(records=tuple(batch), producer=producer))

    def answer(self, token: int, response: Any) -> None:
        """Answer once the records that this step has appended so far are replicated; at once if
        there are none."""
        self.effects.append(
            ShardAnswer(token=token, response=response, is_durable=self._has_appended)
        )

    def answer_durably(self, token: int, response: Any) -> None:
        """Answer once everything that this and earlier steps have appended is replicated."""
        self.effects.append(ShardAnswer(token=token, response=response, is_durable=True))

    def set_timer(self, name: Hashable, after_ms: int) -> None:
        deadline_ms = self.now.monotonic_ms + after_ms
        self.effects.append(SetTimer(name=name, deadline_ms=deadline_ms))

    def cancel_timer(self, name: Hashable) -> None:
        self.effects.append(CancelTimer(name=name))
