"""The follower's half of a fetch session: the next request, and the effect of an answer on
replicas.

There are no sockets here. A partition is *changed* when the leader's session does not know its
current offset or epoch; only changed partitions are listed in the next request. A partition that
fails leaves the session for a pause that doubles from FAILURE_FIRST_MS to replica.fetch.backoff.ms.
Otherwise the leader would answer its error at once, for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.fetch.log_start_ack import LogStartAcks
from kvorum.broker.partition.replica import Replica
from kvorum.broker.quotas.replication_quota import ReplicationQuota
from kvorum.metadata.image.image import TopicIdPartition
from kvorum.runtime.clock import Clock
from kvorum.runtime.errors import CorruptData, ErrorCode, WireError
from kvorum.storage.format.batch import BatchError, read_header
from kvorum.storage.log.log import OutOfOrderAppend
from kvorum.wire.fetch_codec import FetchPartition
from kvorum.wire.replica_fetch_codec import ReplicaAnswer, ReplicaFetchAnswer

_log = logging.getLogger(__name__)

FAILURE_FIRST_MS = 10
REFUSED_MAX_MS = 1_000
"""Longest pause of a partition whose records this follower refused. Each try transfers up to
replica.fetch.max.bytes, and the leader checks its own records only after another try."""
DENIAL_MS = 60_000
"""Pause between two warnings that a leader refuses this broker as a follower."""
EPOCH_MAX = (1 << 31) - 1
THROTTLE_WAIT_MAX_MS = 1_000
"""Partitions held back by the quota are checked again after this time: the rate may have been
raised."""

Listed = list[tuple[bytes, list[FetchPartition]]]


class Followed:
    """A partition that follows the leader.

    asked_epoch: leader epoch in the request that last listed it.
    asked_in: number of the first request that listed it in this epoch.
    refused: what is wrong with the records that the leader sent last; "" once records could be
        appended.
    """

    __slots__ = (
        "asked_epoch", "asked_in", "failures", "is_in_session", "refused", "replica", "resume",
    )  # fmt: skip

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.asked_epoch = -1
        self.asked_in = 0
        self.failures = 0
        self.is_in_session = False
        self.refused = ""
        self.resume: asyncio.TimerHandle | None = None


class FollowerFetchSession:
    """All partitions that follow one leader, and their fetch session.

    is_opening: a request that opens a session is in flight. leader_name: broker and address, for
    the log.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        leader_name: Callable[[], str],
        on_resume: Callable[[], None],
        quota: ReplicationQuota,
        clock: Clock,
        starts: LogStartAcks,
    ) -> None:
        self._config = config
        self._leader_name = leader_name
        self._clock = clock
        self._quota = quota
        self._on_resume = on_resume
        self._starts = starts
        self._unsaved: dict[TopicIdPartition, Followed] = {}
        """Partitions whose log start has moved; the leader is told once the new start is on
        disk."""
        self._partitions: dict[TopicIdPartition, Followed] = {}
        self._changed: dict[TopicIdPartition, Followed] = {}
        self._forgotten: dict[TopicIdPartition, None] = {}
        self.session_id = 0
        self._opening = 0
        """Number of the latest request that opens a session."""
        self._epoch = 0
        self._sent = self._answered = 0
        self._paused = 0
        self._denial_due_ms = 0

    @property
    def is_empty(self) -> bool:
        return not self._partitions

    @property
    def is_opening(self) -> bool:
        """See the class. Request numbers are compared, because an error answer to a request of the
        previous session may still arrive, and does not answer the request that opens the new one.
        """
        return self._opening > self._answered

    @property
    def is_paused(self) -> bool:
        """True if every partition is in a pause. An empty fetch would be answered at once, again
        and again."""
        return len(self._partitions) == self._paused

    @property
    def has_changes(self) -> bool:
        """True if the next request would list or forget a partition."""
        return bool(self._changed or self._forgotten)

    # --- partitions --------------------------------------------------------------------------

    def add(self, key: TopicIdPartition, replica: Replica) -> None:
        """Follow the leader, or follow it in a new leader epoch."""
        followed = self._partitions.get(key)
        if followed is None:
            followed = self._partitions[key] = Followed(replica)
        followed.failures = 0
        followed.refused = ""
        self._end_pause(followed)
        self._changed[key] = followed
        self._forgotten.pop(key, None)

    def report_log_start(self, key: TopicIdPartition) -> None:
        """List the partition in the next request: retention has moved its log start."""
        followed = self._partitions.get(key)
        if followed is not None and followed.resume is None:
            self._changed[key] = followed

    def remove(self, key: TopicIdPartition) -> None:
        followed = self._partitions.pop(key, None)
        self._changed.pop(key, None)
        if followed is not None:
            self._end_pause(followed)
            if followed.is_in_session:
                self._forgotten[key] = None

    def begin(self) -> None:
        """A new connection is open: requests sent on the earlier one are never answered."""
        self._answered = self._sent
        self.reset()

    def reset(self) -> None:
        """Open a new session with the next request: the connection is new, or the leader lost the
        session."""
        self.session_id = 0
        self._epoch = 0
        self._forgotten.clear()
        self._changed = {}
        for key, followed in self._partitions.items():
            followed.is_in_session = False
            if followed.resume is None:
                self._changed[key] = followed

    def close(self) -> None:
        for followed in self._partitions.values():
            self._end_pause(followed)
        self._partitions.clear()
        self._changed.clear()
        self._unsaved.clear()

    # --- asking ------------------------------------------------------------------------------

    def next_request(self) -> tuple[Listed, list[tuple[bytes, list[int]]]]:
        """(partitions to list by topic id, partitions to forget by topic id)."""
        by_topic: dict[bytes, list[FetchPartition]] = {}
        for (topic_id, partition_id), followed in self._changed.items():
            core, log = followed.replica.core, followed.replica.log
            if not followed.asked_in or followed.asked_epoch != core.leader_epoch:
                followed.asked_epoch = core.leader_epoch
                followed.asked_in = self._sent + 1
            followed.is_in_session = True
            start_offset = self._starts.reportable_start(followed.replica, self._on_starts_saved)
            if start_offset != log.start_offset:
                self._unsaved[topic_id, partition_id] = followed
            by_topic.setdefault(topic_id, []).append(
                FetchPartition(
                    partition_id,
                    core.leader_epoch,
                    log.end_offset,
                    log.last_epoch,
                    start_offset,
                    self._config.replica_fetch_max_bytes,
                )
            )
        self._changed = {}
        dropped: dict[bytes, list[int]] = {}
        for topic_id, partition_id in self._forgotten:
            dropped.setdefault(topic_id, []).append(partition_id)
        self._forgotten = {}
        return list(by_topic.items()), list(dropped.items())

    def _on_starts_saved(self) -> None:
        unsaved, self._unsaved = self._unsaved, {}
        for key, followed in unsaved.items():
            if self._partitions.get(key) is followed and followed.resume is None:
                self._changed[key] = followed
        self._on_resume()

    def take_epoch(self) -> int:
        """The session epoch of the request about to be sent."""
        epoch = self._epoch
        self._sent += 1
        if not self.session_id:
            self._opening = self._sent
        else:
            self._epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return epoch

    # --- answers -----------------------------------------------------------------------------

    def take_answer(self, answer: ReplicaFetchAnswer, view: memoryview) -> None:
        """Apply one answer; its batches lie in `view`. Raises WireError if the answer refuses the
        whole fetch."""
        self._answered += 1
        if answer.error:
            self.reset()
            if answer.error not in (
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
            ):
                raise WireError(f"fetch refused with error {answer.error}")
            return
        if self.session_id == 0 and answer.session_id:
            self.session_id = answer.session_id
            self._epoch = 1
        for part in answer.partitions:
            key = (part.topic_id, part.partition_id)
            followed = self._partitions.get(key)
            if followed is None or followed.asked_epoch != followed.replica.core.leader_epoch:
                continue
            if followed.asked_in > self._answered:
                # The answer is to an earlier request: of an older leader epoch, or for an earlier
                # replica of a partition that was moved away and back. Its records would leave a
                # hole. The leader sends the other fields again: `FetchState.update`.
                continue
            if followed.replica.is_offline:
                # A flush failed meanwhile. Fetching further would report offsets that may be on no
                # disk.
                self.remove(key)
                continue
            try:
                self._apply(key, followed, part, view)
            except (OutOfOrderAppend, BatchError) as refused:
                self._refuse(key, followed, str(refused))
            except (OSError, CorruptData) as failure:
                _log.error("%s: %s", followed.replica.core.summary(), failure)
                followed.replica.fail(failure, "append")
                self.remove(key)
        if self._quota.is_limited:
            self._hold_back()
        if self.session_id == 0:
            # The leader granted no session: every request is a full one.
            self.reset()

    def _apply(
        self, key: TopicIdPartition, followed: Followed, part: ReplicaAnswer, view: memoryview
    ) -> None:
        replica = followed.replica
        if part.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            # This log has no record in common with the leader's: 1. it ends below the leader's log
            # start, or 2. it ends there, and the leader does not know its last epoch, or 3. it is
            # empty and begins above the leader's log start.
            self._restart(key, followed, part)
            return
        if part.error:
            if part.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self._warn_of_denial()
            self._pause(key, followed)
            return
        if not followed.refused:
            followed.failures = 0
        if part.diverging is not None:
            end_offset = replica.truncate_for(*part.diverging, self._clock.wall_ms())
            _log.info(
                "%s truncated to %d, leader diverges at %s",
                replica.core.summary(),
                end_offset,
                part.diverging,
            )
            if end_offset > part.diverging[1]:
                # This log starts above the point where the histories diverge: it shares no record
                # with the leader's.
                self._restart(key, followed, part)
            self._changed[key] = followed
            return
        if part.length:
            self._changed[key] = followed
            # Skip records that are here already, because overlapping requests asked for them twice.
            # Their high watermark and log start still count: they may be newer, and the leader does
            # not send them again. A batch that begins below this log's end and ends above it is not
            # skipped: the append refuses it, which pauses the partition.
            if read_header(view, part.position).end_offset > replica.log.end_offset:
                batches = view[part.position : part.position + part.length]
                self._append(followed, part, batches)
        has_moved = replica.on_leader_offsets(
            high_watermark=part.high_watermark, log_start_offset=part.log_start_offset
        )
        if has_moved:
            self._changed[key] = followed

    def _warn_of_denial(self) -> None:
        """The leader takes this broker for a client: say so, once a minute for all partitions."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._denial_due_ms:
            self._denial_due_ms = now_ms + DENIAL_MS
            _log.warning(
                "%s refuses the fetches of this broker: its user there needs CLUSTER_ACTION on the "
                "cluster and, by kvorum.broker.principals, the name of its own id",
                self._leader_name(),
            )

    def _restart(self, key: TopicIdPartition, followed: Followed, part: ReplicaAnswer) -> None:
        """Drop the log's records and start where the leader's log starts: this log shares nothing
        with it."""
        replica, offset = followed.replica, max(part.log_start_offset, 0)
        _log.info("%s restarts at %d", replica.core.summary(), offset)
        replica.restart_at(offset, self._clock.wall_ms())
        self._changed[key] = followed

    def _append(self, followed: Followed, part: ReplicaAnswer, batches: memoryview) -> None:
        replica = followed.replica
        replica.append_as_follower(
            batches,
            leader_high_watermark=part.high_watermark,
            wall_ms=self._clock.wall_ms(),
        )
        self._accept(followed)
        if self._quota.is_limited and _is_throttled(replica):
            self._quota.record(part.length, self._clock.monotonic_ms())

    # --- pauses ------------------------------------------------------------------------------

    def _hold_back(self) -> None:
        """If the quota is used up, take throttled partitions out of the session until it has
        room."""
        now_ms = self._clock.monotonic_ms()
        if self._quota.room(now_ms) > 0:
            return
        delay_ms = self._quota.wait_ms(now_ms, THROTTLE_WAIT_MAX_MS)
        for key, followed in self._partitions.items():
            if followed.resume is None and _is_throttled(followed.replica):
                self._leave(key, followed, delay_ms)

    def _refuse(self, key: TopicIdPartition, followed: Followed, reason: str) -> None:
        """The leader sent records that do not fit this log or are damaged. Ask again: they may
        have been damaged on the way. If not, the second request makes the leader check its own
        records."""
        core, end_offset = followed.replica.core, followed.replica.log.end_offset
        told = (
            f"{core.topic}-{core.partition_id} refuses the records that {self._leader_name()} "
            f"sends from offset {end_offset} on: {reason}"
        )
        if told != followed.refused:
            followed.refused = told
            _log.warning("%s; it is asked again, at least every %d ms", told, REFUSED_MAX_MS)
        self._pause(key, followed, REFUSED_MAX_MS)

    def _accept(self, followed: Followed) -> None:
        """Forget the partition's refusals and failures: valid records were appended."""
        if followed.refused:
            core = followed.replica.core
            _log.info(
                "%s-%d continues: %s sent valid records",
                core.topic,
                core.partition_id,
                self._leader_name(),
            )
            followed.refused = ""
        followed.failures = 0

    def _pause(self, key: TopicIdPartition, followed: Followed, max_ms: int | None = None) -> None:
        """Pause a partition that failed."""
        delay_ms = min(
            FAILURE_FIRST_MS << min(followed.failures, 16),
            self._config.replica_fetch_backoff_ms if max_ms is None else max_ms,
        )
        followed.failures += 1
        self._leave(key, followed, delay_ms)

    def _leave(self, key: TopicIdPartition, followed: Followed, delay_ms: int) -> None:
        """Take the partition out of the session for `delay_ms`."""
        self._changed.pop(key, None)
        if followed.is_in_session:
            self._forgotten[key] = None
            followed.is_in_session = False
        self._end_pause(followed)
        self._paused += 1
        followed.resume = asyncio.get_running_loop().call_later(
            delay_ms / 1000, self._resume, key, followed
        )

    def _resume(self, key: TopicIdPartition, followed: Followed) -> None:
        self._end_pause(followed)
        if self._partitions.get(key) is followed:
            self._forgotten.pop(key, None)
            self._changed[key] = followed
            self._on_resume()

    def _end_pause(self, followed: Followed) -> None:
        if followed.resume is not None:
            followed.resume.cancel()
            followed.resume = None
            self._paused -= 1


def _is_throttled(replica: Replica) -> bool:
    """True if follower.replication.throttled.replicas applies to this replica. A member of the ISR
    is never throttled."""
    core, throttled = replica.core, replica.config.follower_throttled
    if not throttled or core.broker_id in core.isr_state.isr:
        return False
    return (core.partition_id, core.broker_id) in throttled
