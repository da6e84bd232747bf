"""Why a partition cannot be read as asked: who asks, from where, behind which history.

A consumer and a follower in sync, or eligible (KIP-966), are compared by leader epochs alone
(KIP-320, KIP-595). Any other follower may have records that no leader epoch tells apart from ours:
it drops them.
"""

from __future__ import annotations

from kvorum.broker.fetch.fetch_sessions import FetchState, Watched
from kvorum.broker.partition.partition import Partition
from kvorum.broker.partition.replica import Replica
from kvorum.runtime.errors import CorruptData, ErrorCode
from kvorum.wire.fetch_codec import FetchedPartition


def objection_to(replica: Replica, watched: Watched) -> FetchedPartition | None:
    """Why this partition cannot be read as asked: an error, or a history that differs."""
    core, asked = replica.core, watched.asked
    if replica.is_offline:
        return FetchedPartition(asked.partition_id, ErrorCode.KAFKA_STORAGE_ERROR.value)
    state = watched.state
    is_replica = state.replica_id >= 0
    if is_replica:
        error = core.check_leader(asked.current_leader_epoch)
    else:
        error = core.check_consumer(
            asked.current_leader_epoch, from_any_replica=state.rack_id is not None
        )
    if is_replica and error == ErrorCode.NONE and not _is_current(core, state):
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if error != ErrorCode.NONE:
        # Told that nobody leads (KIP-951), librdkafka does not look any further.
        is_known = core.leader >= 0 and not core.is_abandoned
        leader = (core.leader, core.leader_epoch) if is_known else None
        return FetchedPartition(asked.partition_id, error.value, current_leader=leader)
    log = replica.log
    last_epoch = asked.last_fetched_epoch
    if last_epoch >= 0 and (
        last_epoch != log.epochs.latest_epoch or asked.fetch_offset > core.end_offset
    ):
        epoch, end_offset = log.epochs.end_offset_for(last_epoch, core.end_offset)
        if epoch == -1:
            return out_of_range(replica, watched)
        if epoch < last_epoch or end_offset < asked.fetch_offset:
            return _diverging(replica, watched, (epoch, end_offset))
    if not log.start_offset <= asked.fetch_offset <= core.end_offset:
        return out_of_range(replica, watched)
    # Bad sequence: 1. a follower leaves the ISR and stays eligible, 2. the deletion that it ends
    # with is compacted here, 3. it is back, drops it as below a gap, 4. and is elected: it serves
    # what was deleted, and its watermark goes back.
    if is_replica and not core.may_lead_cleanly(state.replica_id, asked.fetch_offset):
        try:
            return _unknown_history(replica, watched)
        except (OSError, CorruptData) as failure:
            replica.fail(failure, "read")
            return FetchedPartition(asked.partition_id, ErrorCode.KAFKA_STORAGE_ERROR.value)
    return None


def _unknown_history(replica: Replica, watched: Watched) -> FetchedPartition | None:
    """The objection to a follower out of sync that may have had another history, of which no leader
    epoch tells: its log is empty, or ends where this one begins, or where this one has nothing.

    Raises CorruptData, OSError.
    """
    log, asked = replica.log, watched.asked
    last_epoch, epoch_below = asked.last_fetched_epoch, log.epochs.epoch_below
    if asked.fetch_offset > log.start_offset:
        return _unknown_within(replica, watched)
    if last_epoch < 0 or asked.fetch_offset == 0:
        return None
    if log.epochs.reaches(last_epoch, log.start_offset):
        return None
    # Bad sequence: 1. by an unclean election records are lost, which it has, 2. others come in
    # their place and are deleted, up to its end, 3. it goes on behind its own, 4. and loses its
    # power, with it its new log start: they are in its log again, in the place of what was
    # committed.
    if 0 <= epoch_below < last_epoch:
        # It may have led for that epoch, and written nothing.
        return _diverging(replica, watched, (epoch_below, log.start_offset))
    return out_of_range(replica, watched)


def _unknown_within(replica: Replica, watched: Watched) -> FetchedPartition | None:
    log, asked = replica.log, watched.asked
    last_epoch = asked.last_fetched_epoch
    if last_epoch < 0:
        # Bad sequence: 1. it leads, and all it has is deleted, 2. by an unclean election others
        # come at the same offsets, and are acknowledged, 3. it joins the ISR, 4. and leads, by a
        # clean one: all begin where its log does.
        return out_of_range(replica, watched)
    if last_epoch == log.epochs.latest_epoch:
        return None
    # Bad sequence (seed 341097): 1. it led, and has records that never came to be committed,
    # 2. others come in their place, of another epoch, and are compacted, 3. a replica copies what
    # is left, of which nothing is of that epoch, and leads, 4. it goes on behind its own: they are
    # among the committed ones. If they were not, it misses nothing: they have later values above.
    _, end_offset = log.epochs.end_offset_for(last_epoch, log.end_offset)
    left_to = log.batch_end_below(end_offset)
    if left_to < asked.fetch_offset:
        return _diverging(replica, watched, (last_epoch, left_to))
    return None


def _diverging(
    replica: Replica, watched: Watched, epoch_and_end: tuple[int, int]
) -> FetchedPartition:
    high_watermark = replica.core.high_watermark
    return FetchedPartition(
        watched.asked.partition_id,
        0,
        high_watermark,
        replica.log.last_stable_offset(high_watermark),
        replica.log.start_offset,
        epoch_and_end,
    )


def _is_current(core: Partition, state: FetchState) -> bool:
    """True if the follower is a replica of the partition, under the broker epoch of the
    metadata."""
    return state.replica_id in core.followers and core.peer_brokers.is_broker(
        state.replica_id, state.replica_epoch
    )


def out_of_range(replica: Replica, watched: Watched) -> FetchedPartition:
    """The start offset is told with the error: a follower below it needs no second request."""
    return FetchedPartition(
        watched.asked.partition_id,
        ErrorCode.OFFSET_OUT_OF_RANGE.value,
        log_start_offset=replica.log.start_offset,
    )
