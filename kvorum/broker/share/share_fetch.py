"""One ShareFetch or ShareAcknowledge on its way: acknowledgements first, then records, then the
answer.

The answer is sent once the share coordinators have the acknowledgements and there are records, an
error, or no more time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvorum.broker.share.core.sessions import SharePartitionId
from kvorum.broker.share.core.share_partition import Acquire
from kvorum.broker.share.core.states import AcknowledgementBatch, AcquiredRecords
from kvorum.broker.share.led_share_partition import READ_FAILURES, LedSharePartition
from kvorum.broker.share.led_share_partitions import LedSharePartitions
from kvorum.runtime.errors import ErrorCode, Rejected


@dataclass(slots=True)
class ShareRow:
    """The answer for one partition. None: no acknowledgements, or no error."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    acknowledge_error: ErrorCode | None = None
    acknowledge_message: str | None = None
    acquired: tuple[AcquiredRecords, ...] = ()
    records: bytes = b""

    def refuse(self, refused: ErrorCode | Rejected) -> None:
        self.error, self.message = _parts(refused)

    def refuse_acknowledgements(self, refused: ErrorCode | Rejected) -> None:
        self.acknowledge_error, self.acknowledge_message = _parts(refused)


def _parts(refused: ErrorCode | Rejected) -> tuple[ErrorCode, str | None]:
    if isinstance(refused, Rejected):
        return refused.code, refused.message
    return refused, None


Rows = dict[SharePartitionId, ShareRow]


class PendingShareRequest:
    """A request whose answer is not sent yet. In a purgatory: `wake`, `expire`, `cancel`."""

    __slots__ = (
        "_bytes_max", "_bytes_min", "_group_id", "_is_begun", "_is_done", "_is_fetching", "_led",
        "_led_waited", "_partitions", "_respond", "_wish", "_writes", "deadline_bucket", "is_awake",
        "rows",
    )  # fmt: skip

    def __init__(
        self,
        led: LedSharePartitions,
        group_id: str,
        respond: Callable[[Rows], None],
        rows: Rows,
    ) -> None:
        """rows: what is known to be refused."""
        self._led = led
        self._group_id = group_id
        self._respond = respond
        self._wish = Acquire(member_id="", records_max=0)
        self._bytes_min = self._bytes_max = 0
        self._partitions: list[SharePartitionId] = []
        self._led_waited: list[LedSharePartition] = []
        self._writes = 0
        self._is_begun = self._is_done = self._is_fetching = False
        self.rows = rows
        self.deadline_bucket = -1
        self.is_awake = False

    # --- acknowledgements --------------------------------------------------------------------

    def acknowledge(
        self, where: SharePartitionId, member_id: str, batches: list[AcknowledgementBatch]
    ) -> None:
        """Apply one partition's acknowledgements, unless its row is refused already."""
        row = self.rows.setdefault(where, ShareRow())
        if row.error != ErrorCode.NONE:
            row.acknowledge_error, row.acknowledge_message = row.error, row.message
            return
        led = self._led.find(self._group_id, where)
        if not isinstance(led, LedSharePartition):
            row.refuse_acknowledgements(led)
            return
        row.acknowledge_error = ErrorCode.NONE
        self._writes += 1

        def settled(error: ErrorCode) -> None:
            self._writes -= 1
            if error != ErrorCode.NONE:
                row.refuse_acknowledgements(error)
            if self._is_ready:
                self._finish()

        refused = led.acknowledge(member_id, batches, settled)
        if refused is not None:
            self._writes -= 1
            row.refuse_acknowledgements(refused)

    @property
    def _is_ready(self) -> bool:
        # Not before `begin`: a renewal is settled at once, and the other partitions come after it.
        is_open = self._is_begun and not self._is_done
        return is_open and not self._writes and not self._is_fetching

    # --- records -----------------------------------------------------------------------------

    def fetch(
        self,
        partitions: list[SharePartitionId],
        wish: Acquire,
        *,
        bytes_min: int,
        bytes_max: int,
        max_wait_ms: int,
    ) -> None:
        """Collect records now, or once there are `bytes_min`, or when `max_wait_ms` are over."""
        self._partitions, self._wish, self._bytes_max = partitions, wish, bytes_max
        self._bytes_min = min(bytes_min, bytes_max) if max_wait_ms > 0 else 0
        self._is_fetching = True
        if self._collect() or max_wait_ms <= 0 or not partitions:
            self._is_fetching = False
            return
        parts = self._led.parts
        parts.deadlines.add(self, parts.clock.monotonic_ms() + max_wait_ms)

    def begin(self) -> PendingShareRequest | None:
        """Answer if nothing is missing; otherwise the request, which waits."""
        self._is_begun = True
        if not self._is_ready:
            return self
        self._finish()
        return None

    def wake(self) -> None:
        """A share-partition may have records, or has ended."""
        if self._is_fetching and not self._is_done and self._collect():
            self.stop_fetching()

    def expire(self) -> None:
        if not self._is_done:
            self._bytes_min = 0
            self._collect()
            self.stop_fetching()

    def cancel(self) -> None:
        """The connection is closed: nobody gets the answer. The session's end releases records."""
        self._is_done = True
        self._forget()

    def stop_fetching(self) -> None:
        """Answer with what there is, once the acknowledgements are kept."""
        if self._is_done or not self._is_fetching:
            return
        self._is_fetching = False
        self._forget()
        if self._is_ready:
            self._finish()

    def _forget(self) -> None:
        self._led.parts.deadlines.remove(self)
        for led in self._led_waited:
            led.waiting.pop(self, None)
        self._led_waited.clear()

    def _collect(self) -> bool:
        """Acquire what there is. True if the answer need not wait: it has records or an error."""
        for waited in self._led_waited:
            waited.waiting.pop(self, None)
            if waited.failure is not None and waited.core is None and waited.is_led:
                # Its state could not be read: the member is told, and not only at the time-out.
                self.rows[waited.key.topic_id, waited.key.partition].refuse(waited.failure)
        self._led_waited.clear()
        if self._bytes_min > 1 and not self._has_bytes_min():
            return False
        left, bytes_left, is_urgent = self._wish.records_max, self._bytes_max, False
        for where in self._partitions:
            row = self.rows.setdefault(where, ShareRow())
            if row.error != ErrorCode.NONE:
                is_urgent = True
                continue
            if left <= 0 or bytes_left <= 0:
                break
            led = self._led.lead(self._group_id, where)
            if not isinstance(led, LedSharePartition):
                row.refuse(led)
                is_urgent = True
                continue
            taken = self._take(led, row, left, bytes_left)
            left -= taken
            bytes_left -= len(row.records)
            is_urgent = is_urgent or taken > 0 or row.error != ErrorCode.NONE
            if not taken:
                self._wait_for(led)
        return is_urgent

    def _has_bytes_min(self) -> bool:
        """True if the log has as many bytes for the member as it waits for, or a partition has an
        error to tell; otherwise all partitions are waited for."""
        missing = self._bytes_min
        partitions = []
        for where in self._partitions:
            row = self.rows.get(where)
            if row is not None and row.error != ErrorCode.NONE:
                return True
            led = self._led.lead(self._group_id, where)
            if not isinstance(led, LedSharePartition):
                return True
            missing -= led.available_bytes()
            if missing <= 0:
                return True
            partitions.append(led)
        for led in partitions:
            self._wait_for(led)
        return False

    def _wait_for(self, led: LedSharePartition) -> None:
        led.waiting[self] = None
        self._led_waited.append(led)

    def _take(self, led: LedSharePartition, row: ShareRow, left: int, bytes_left: int) -> int:
        """The number of records that the member gets of this share-partition."""
        wish = Acquire(
            member_id=self._wish.member_id,
            records_max=left,
            batch_size=self._wish.batch_size,
            mode=self._wish.mode,
        )
        try:
            acquired, records = led.acquire(wish, bytes_left)
        except READ_FAILURES as failure:
            led.on_read_failed(failure)
            row.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
            return 0
        row.acquired, row.records = tuple(acquired), records
        return sum(entry.last_offset - entry.first_offset + 1 for entry in acquired)

    def _finish(self) -> None:
        self._is_done = True
        self._forget()
        self._respond(self.rows)
