"""The checks of one partition in a fetch: the client, the leader epoch, the offset, the history.

Consumers, and followers that are in sync or eligible (KIP-966), are compared by leader epochs alone
(KIP-320, KIP-595). Any other follower may have records that leader epochs cannot tell from this
log's; it must drop them.
"""

from __future__ import annotations

from kvorum.broker.fetch.fetch_sessions import FetchState, Watched
from kvorum.broker.partition.core.partition import Partition
from kvorum.broker.partition.replica import Replica
from kvorum.runtime.errors import CorruptData, ErrorCode
from kvorum.wire.fetch_codec import FetchedPartition


def objection_to(replica: Replica, watched: Watched) -> FetchedPartition | None:
    """The error or the diverging epoch with which a partition is answered; None if it can be
    read."""
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
        # librdkafka looks no further if the answer names "no leader" as the current leader
        # (KIP-951).
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
    # A follower that may be elected cleanly is not checked. Bad sequence otherwise: 1. Follower A
    # leaves the ISR and stays eligible; its log ends with a tombstone. 2. This leader compacts the
    # tombstone away. 3. A returns, and truncates the tombstone as lying in a gap. 4. A is elected:
    # the deleted record is back, and the high watermark goes back.
    if is_replica and not core.may_lead_cleanly(state.replica_id, asked.fetch_offset):
        try:
            return _unknown_history(replica, watched)
        except (OSError, CorruptData) as failure:
            replica.fail(failure, "read")
            return FetchedPartition(asked.partition_id, ErrorCode.KAFKA_STORAGE_ERROR.value)
    return None


def _unknown_history(replica: Replica, watched: Watched) -> FetchedPartition | None:
    """The answer to an out-of-sync follower that may have a history which leader epochs do not
    show: its log is empty, or ends where this log begins or has a gap. None if its history is this
    log's.

    Raises CorruptData, OSError.
    """
    log, asked = replica.log, watched.asked
    last_epoch, epoch_before_start = asked.last_fetched_epoch, log.epochs.epoch_before_start
    if asked.fetch_offset > log.start_offset:
        return _unknown_within(replica, watched)
    if last_epoch < 0 or asked.fetch_offset == 0:
        return None
    if log.epochs.matches_at(last_epoch, log.start_offset):
        return None
    # Bad sequence: 1. An unclean election: follower A has records that the new leader lacks. 2. The
    # leader writes others at their offsets, which are committed and then deleted up to the end of
    # A's log. 3. A takes over the leader's log start, and appends there, behind its own records.
    # 4. A loses power before that log start is on disk: its old records count again, at the offsets
    # of the committed ones.
    if 0 <= epoch_before_start < last_epoch:
        # The follower may have led in that epoch and written nothing: name the epoch below it.
        return _diverging(replica, watched, (epoch_before_start, log.start_offset))
    return out_of_range(replica, watched)


def _unknown_within(replica: Replica, watched: Watched) -> FetchedPartition | None:
    log, asked = replica.log, watched.asked
    last_epoch = asked.last_fetched_epoch
    if last_epoch < 0:
        # Bad sequence: 1. Follower A leads, and all its records are deleted: its log is empty. 2.
        # An unclean election: another leader appends records at offsets below A's log start, and
        # acknowledges them. 3. A joins the ISR. 4. A is elected, cleanly. Every log then starts
        # where A's does, and the acknowledged records are gone.
        return out_of_range(replica, watched)
    if last_epoch == log.epochs.latest_epoch:
        return None
    # Bad sequence (seed 341097): 1. Follower A led, and has records that were never committed. 2.
    # Records of another epoch take their offsets, and are compacted. 3. Replica B copies what is
    # left, which has no record of that epoch, and leads. 4. A appends behind its own records: they
    # lie among committed ones now. If A's records are the committed ones, truncating them loses
    # nothing: B has later values of their keys above.
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
    """True if the follower is a replica of the partition and its broker epoch is the registered
    one."""
    return state.replica_id in core.followers and core.peer_brokers.is_broker(
        state.replica_id, state.replica_epoch
    )


def out_of_range(replica: Replica, watched: Watched) -> FetchedPartition:
    """OFFSET_OUT_OF_RANGE. A follower is told the log start and needs no second request; consumers
    ask for it (-1, as in Kafka)."""
    return FetchedPartition(
        watched.asked.partition_id,
        ErrorCode.OFFSET_OUT_OF_RANGE.value,
        log_start_offset=replica.log.start_offset if watched.state.is_replica else -1,
    )
