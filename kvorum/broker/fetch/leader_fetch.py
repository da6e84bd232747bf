"""The leader's answers to Fetch: what each watched partition has to send; parking if that is too
little.

Consumers read below the high watermark, or below the last stable offset if they want committed
records only; then the answer lists aborted transactions. Followers read to the log's end. Since v11
a consumer may read from any replica, and is told which one is in its rack (KIP-392).

A follower's fetch also reports its position. The leader uses it only after the follower's history
was found to match: otherwise an offset of a diverged log would count as replicated.
"""

from __future__ import annotations

from collections.abc import Callable

from kvorum.broker.fetch.fetch_services import FetchServices
from kvorum.broker.fetch.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchState,
    MayRead,
    Watched,
)
from kvorum.broker.fetch.fetch_validation import objection_to, out_of_range
from kvorum.broker.partition.replica import Replica
from kvorum.broker.quotas.replication_quota import UNLIMITED
from kvorum.runtime.errors import CorruptData, ErrorCode
from kvorum.storage.log.log import OffsetOutOfRange
from kvorum.wire.fetch_codec import NO_REPLICA, FetchedPartition, FetchRequest

Answers = list[tuple[Watched, FetchedPartition]]
Respond = Callable[[int, int, Answers], None]
"""Called once with (error code, session id, the partitions' answers)."""

Objections = dict[Watched, FetchedPartition | None]
"""Results of `objection_to` in this turn of the event loop: checking a follower may read the
disk."""


class PendingFetch:
    """A fetch that waits for data until its deadline."""

    __slots__ = (
        "_services",
        "bytes_max",
        "deadline_bucket",
        "is_awake",
        "is_done",
        "is_full",
        "min_bytes",
        "respond",
        "state",
    )

    def __init__(
        self,
        services: FetchServices,
        state: FetchState,
        respond: Respond,
        *,
        min_bytes: int,
        bytes_max: int,
        is_full: bool,
    ) -> None:
        self._services = services
        self.state = state
        self.respond = respond
        self.min_bytes = min(min_bytes, bytes_max)
        self.bytes_max = bytes_max
        self.is_full = is_full
        self.deadline_bucket = -1
        self.is_awake = False
        self.is_done = False

    def wake(self) -> None:
        """A watched partition has changed: answer if there is enough to send."""
        if not self.is_done:
            answers, size, is_urgent = collect(self._services, self)
            if is_urgent or size >= self.min_bytes or (size and _is_all(self, answers)):
                self.finish(answers)

    def expire(self) -> None:
        if not self.is_done:
            self.finish(collect(self._services, self)[0])

    def cancel(self) -> None:
        """Drop the fetch: its connection is closed, or its session has a newer request."""
        if not self.is_done:
            self.finish([], is_cancelled=True)

    def finish(self, answers: Answers, *, is_cancelled: bool = False) -> None:
        self.is_done = True
        state = self.state
        if state.parked is self:
            state.parked = None
        self._services.deadlines.remove(self)
        if not is_cancelled:
            note_sent(self._services, state, answers)
        self.respond(0, state.session_id, answers)
        # Not before: the answer's bytes are counted with the replicas that the fetch watches.
        if state.session_id == 0:
            state.close()


def start_fetch(
    services: FetchServices,
    request: FetchRequest,
    *,
    is_by_id: bool,
    respond: Respond,
    may_read: MayRead | None = None,
    owner: str = "",
) -> PendingFetch | None:
    """Apply a fetch; answer it now, or park it and return it. may_read, owner: see FetchState."""
    now_ms = services.now_ms()
    is_full = request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)
    is_follower = request.replica_id >= 0
    if is_follower and not services.peer_brokers.is_broker(
        request.replica_id, request.replica_epoch
    ):
        _drop_session(services, request.session_id, owner)
        _refuse_follower(services, request, is_by_id=is_by_id, respond=respond)
        return None
    if is_full:
        _drop_session(services, request.session_id, owner)
        state = FetchState(request, is_by_id=is_by_id, now_ms=now_ms, owner=owner)
    else:
        found = services.sessions.find(request, is_by_id=is_by_id, now_ms=now_ms, owner=owner)
        if isinstance(found, ErrorCode):
            if found is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                _drop_session(services, request.session_id, owner)
            respond(found.value, 0, [])
            return None
        state = found
        if state.parked is not None:
            state.parked.cancel()  # the client gave up on it and has sent another request
        state.forget(request)
    state.may_read = may_read
    if state.is_replica:
        services.peer_brokers.last_fetch_ms[state.replica_id] = now_ms
    objections: Objections = {}
    for watched in state.update(request):
        _take_in(services, watched, now_ms, objections)
    if is_full and request.session_epoch == INITIAL_EPOCH:
        services.sessions.add(state, now_ms)
    # A follower's first fetch of a session is answered at once. Parked, it would check all its
    # partitions again at every append.
    opens_session = is_full and state.session_id != 0
    waits = request.max_wait_ms > 0 and not (opens_session and state.is_replica)
    parked = PendingFetch(
        services,
        state,
        respond,
        min_bytes=request.min_bytes,
        bytes_max=min(request.bytes_max, services.configs.broker.fetch_max_bytes),
        is_full=is_full,
    )
    answers, size, is_urgent = collect(services, parked, objections)
    is_enough = is_urgent or size >= parked.min_bytes or (size and _is_all(parked, answers))
    if not waits or is_enough or not state.partitions:
        parked.finish(answers)
        return None
    state.parked = parked
    deadline_ms = now_ms + request.max_wait_ms
    if state.is_replica:
        # Round the deadline down, so that the fetches of all followers expire together. Otherwise
        # an idle leader and its followers wake up separately for each pair of them.
        deadline_ms -= deadline_ms % request.max_wait_ms
    services.deadlines.add(parked, deadline_ms)
    return parked


def collect(
    services: FetchServices, parked: PendingFetch, objections: Objections | None = None
) -> tuple[Answers, int, bool]:
    """(answers, bytes of records in them, True if they must be sent whatever their size)."""
    state = parked.state
    answers: Answers = []
    size = 0
    may_read = state.may_read
    is_urgent = is_held = False
    candidates = state.partitions.values() if parked.is_full else list(state.dirty)
    for watched in candidates:
        if size >= parked.bytes_max and size and not parked.is_full:
            break  # the others stay dirty, and are first next time
        room = _room(services, watched)
        # A throttled partition sends no records, but all else: errors and diverging epochs.
        bytes_left = min(parked.bytes_max - size, room)
        is_first = size == 0 and room > 0
        if may_read is None or may_read(watched):
            answer = _answer(services, watched, bytes_left, objections or {}, is_first=is_first)
        else:
            refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED.value
            answer = FetchedPartition(watched.asked.partition_id, refused)
        if room == 0:
            is_held = True
            if answer is not None and not parked.is_full and not _must_be_told(watched, answer):
                continue  # it stays dirty
        if answer is None:
            if not parked.is_full:
                state.dirty.pop(watched, None)
                continue
            answer = _nothing_new(watched)
        answers.append((watched, answer))
        if answer.records is not None:
            size += answer.records.length
        elif _must_be_told(watched, answer):
            is_urgent = True
    if is_held:
        services.throttle.hold(parked)
    return answers, size, is_urgent


def _is_all(parked: PendingFetch, answers: Answers) -> bool:
    """True if waiting would not make these answers larger, as Kafka counts. The bytes available in
    a partition count up to the partition's limit, even if the last batch does not fit whole; bytes
    that end a closed segment are sent at once. Otherwise a client whose min_bytes is as large as a
    partition's limit would wait for its timeout at every fetch."""
    size = 0
    for watched, answer in answers:
        replica = watched.replica
        if replica is None or answer.records is None:
            continue
        try:
            available_bytes, has_more = replica.log.segments.available(
                watched.asked.fetch_offset, end_offset=_readable_end(replica, watched.state)
            )
        except (OSError, CorruptData) as failure:
            # The bytes that failed are not in these answers; the next fetch gets the error.
            replica.fail(failure, "read")
            return True
        if has_more:
            return True
        size += min(available_bytes, watched.asked.bytes_max)
    return size >= parked.min_bytes


def _readable_end(replica: Replica, state: FetchState) -> int:
    core = replica.core
    if state.replica_id >= 0:
        return core.end_offset
    if state.is_read_committed:
        return replica.log.last_stable_offset(core.high_watermark)
    return core.high_watermark


def _refuse_follower(
    services: FetchServices, request: FetchRequest, *, is_by_id: bool, respond: Respond
) -> None:
    """Answer a fetch whose broker epoch is not the registered one. A client sends such a fetch, or
    an earlier process of the broker (KIP-903), or a broker whose new registration has not reached
    this broker yet. That last one fetches again."""
    if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
        respond(ErrorCode.FETCH_SESSION_ID_NOT_FOUND.value, 0, [])
        return
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER.value
    state = FetchState(request, is_by_id=is_by_id, now_ms=services.now_ms())
    respond(
        0, 0, [(w, FetchedPartition(w.asked.partition_id, error)) for w in state.update(request)]
    )


def _drop_session(services: FetchServices, session_id: int, owner: str) -> None:
    if not session_id or not services.sessions.is_owned(session_id, owner):
        return
    old = services.sessions.remove(session_id)
    if old is not None and old.parked is not None:
        old.parked.cancel()


def _take_in(
    services: FetchServices, watched: Watched, now_ms: int, objections: Objections
) -> None:
    """Connect a listed partition to its replica; record a follower's fetch offset as its position.

    objections: gets the result of the checks of a follower's fetch, for the answer.
    """
    replica = watched.replica or services.watch(watched)
    state = watched.state
    if replica is None or not state.is_replica:
        return
    objection = objections[watched] = objection_to(replica, watched)
    if objection is not None:
        return
    asked = watched.asked
    core = replica.core
    remote = core.followers.get(state.replica_id)
    if remote is not None and remote.sent_offset == asked.fetch_offset:
        services.reread_verification.suspect(replica, remote, asked)
    has_risen = core.on_follower_fetch(
        state.replica_id, asked.fetch_offset, asked.log_start_offset, state.replica_epoch, now_ms
    )
    if has_risen:
        replica.on_high_watermark()
    if replica.pending_deletions:
        replica.on_low_watermark()
    if state.replica_id not in core.isr_state.maximal:
        services.propose_expand(replica)


def _room(services: FetchServices, watched: Watched) -> int:
    """Bytes of this partition that the replication throttle allows now."""
    state, replica = watched.state, watched.replica
    if state.replica_id < 0 or replica is None:
        return UNLIMITED
    return services.throttle.room(replica, state.replica_id)


def _answer(
    services: FetchServices,
    watched: Watched,
    bytes_left: int,
    objections: Objections,
    *,
    is_first: bool,
) -> FetchedPartition | None:
    """The answer for this partition; None if it has nothing new."""
    replica = watched.replica or services.watch(watched)
    if replica is None:
        name = None if watched.state.is_by_id else watched.name
        error = services.missing_error(name, watched.topic_id, watched.asked.partition_id)
        return FetchedPartition(watched.asked.partition_id, error.value)
    # An earlier partition of this answer may have met a failed disk, and then all replicas in its
    # directory are offline: the earlier result for this partition does not hold.
    is_checked = watched in objections and not replica.is_offline
    objection = objections[watched] if is_checked else objection_to(replica, watched)
    if objection is not None:
        return objection
    core, log, asked = replica.core, replica.log, watched.asked
    high_watermark, start_offset = core.high_watermark, log.start_offset
    stable_offset = log.last_stable_offset(high_watermark)
    end_offset = _readable_end(replica, watched.state)
    is_committed_only = not watched.state.is_replica and watched.state.is_read_committed
    records, aborted = None, None
    if asked.fetch_offset < end_offset and (bytes_left > 0 or is_first):
        try:
            records = log.read(
                asked.fetch_offset,
                bytes_max=min(asked.bytes_max, bytes_left),
                end_offset=end_offset,
                at_least_one_batch=is_first,
            )
            if is_committed_only and records.length:
                aborted = log.segments.aborted_in(records, end_offset=end_offset)
        except OffsetOutOfRange:
            return out_of_range(replica, watched)
        except (OSError, CorruptData) as failure:
            replica.fail(failure, "read")
            return FetchedPartition(asked.partition_id, ErrorCode.KAFKA_STORAGE_ERROR.value)
        if not records.length:
            records = None
    preferred = NO_REPLICA
    if watched.state.rack_id and core.peer_brokers.has_rack_readers and core.is_leader:
        preferred = core.nearest_replica(watched.state.rack_id, asked.fetch_offset)
        if preferred != NO_REPLICA:
            records, aborted = None, None  # the consumer is to read from that replica
    if (
        records is None
        and preferred == NO_REPLICA
        and high_watermark == watched.sent_high_watermark
        and start_offset == watched.sent_log_start_offset
        and asked.fetch_offset >= end_offset
    ):
        return None
    return FetchedPartition(
        asked.partition_id,
        0,
        high_watermark,
        stable_offset,
        start_offset,
        None,
        None,
        records,
        (aborted or ()) if is_committed_only else None,
        preferred,
    )


def _must_be_told(watched: Watched, answer: FetchedPartition) -> bool:
    """True if an answer without records must be sent at once."""
    return bool(answer.error) or answer.diverging is not None or _is_news(watched, answer)


def _is_news(watched: Watched, answer: FetchedPartition) -> bool:
    """True for news sent at once, without records. To a consumer: the replica to read from. To a
    follower: a new log start (DeleteRecords waits for it), and a new high watermark if consumers
    read from followers."""
    if not watched.state.is_replica:
        return answer.preferred_replica != NO_REPLICA
    if watched.sent_log_start_offset < 0 or watched.replica is None:
        return False
    if answer.log_start_offset != watched.sent_log_start_offset:
        return True
    return (
        watched.replica.core.peer_brokers.has_rack_readers
        and answer.high_watermark != watched.sent_high_watermark
    )


def _nothing_new(watched: Watched) -> FetchedPartition:
    return FetchedPartition(
        watched.asked.partition_id,
        0,
        watched.sent_high_watermark,
        watched.sent_last_stable_offset,
        watched.sent_log_start_offset,
    )


def note_sent(services: FetchServices, state: FetchState, answers: Answers) -> None:
    """Remember what was sent. Partitions with errors or unread data stay dirty, at the end of the
    order: the client may ask from the same offset again without listing the partition."""
    for watched, answer in answers:
        state.dirty.pop(watched, None)
        if answer.records is not None and state.replica_id >= 0 and watched.replica is not None:
            services.throttle.record(watched.replica, state.replica_id, answer.records.length)
            remote = watched.replica.core.followers.get(state.replica_id)
            if remote is not None:
                remote.sent_offset = watched.asked.fetch_offset
        if answer.error or answer.diverging is not None or _has_unread(watched):
            state.dirty[watched] = None
        if answer.diverging is not None:
            # The follower takes only the diverging epoch from this answer. The follower may
            # truncate below the offsets that it was sent earlier, so they must be sent again.
            watched.sent_high_watermark = watched.sent_last_stable_offset = -1
        elif not answer.error:
            watched.sent_high_watermark = answer.high_watermark
            watched.sent_last_stable_offset = answer.last_stable_offset
            watched.sent_log_start_offset = answer.log_start_offset


def _has_unread(watched: Watched) -> bool:
    replica = watched.replica
    if replica is None:
        return True
    return watched.asked.fetch_offset < _readable_end(replica, watched.state)
