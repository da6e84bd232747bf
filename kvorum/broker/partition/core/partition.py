"""The core of one partition on one broker: role, epochs, offsets, ISR, high watermark. Pure.

The core never touches a log, a clock or a socket. The driver (`replica`) reports what happened and
acts on the returned values. The rules are Kafka's (KIP-101, KIP-497, KIP-903, KIP-966):

- Every replica of the maximal ISR has all records below `high_watermark`. The high watermark only
  rises. It waits for members that have not fetched from this leader yet, and it does not move while
  the committed ISR is smaller than min.insync.replicas.
- A caught-up replica outside the ISR holds the high watermark back too. Otherwise a leader that is
  alone in the ISR would outrun a returning follower for ever.
"""

from __future__ import annotations

import enum
from collections.abc import Collection

from kvorum.broker.partition.core import isr
from kvorum.broker.partition.core.follower_state import (
    LONG_AGO_MS,
    UNKNOWN_EPOCH,
    UNKNOWN_OFFSET,
    FollowerState,
)
from kvorum.broker.partition.core.peer_brokers import PeerBrokers
from kvorum.metadata.image.image import PartitionImage, is_under_replicated
from kvorum.metadata.image.records import NO_LEADER, RECOVERING
from kvorum.metadata.requests.controller_requests import AlteredPartition, IsrProposal
from kvorum.runtime.errors import ErrorCode, InvariantViolated

NO_REPLICA = -1


class Role(enum.Enum):
    LEADER = "leader"
    FOLLOWER = "follower"


class Partition:
    """State of one partition; the driver keeps `end_offset` equal to the end of its log."""

    def __init__(
        self,
        *,
        broker_id: int,
        topic: str,
        topic_id: bytes,
        partition_id: int,
        peer_brokers: PeerBrokers,
        lag_time_max_ms: int,
        min_insync_replicas: int,
        end_offset: int = 0,
        high_watermark: int = 0,
    ) -> None:
        self.broker_id = broker_id
        self.topic = topic
        self.topic_id = topic_id
        self.partition_id = partition_id
        self.peer_brokers = peer_brokers
        self.lag_time_max_ms = lag_time_max_ms
        self.min_insync_replicas = min_insync_replicas
        self.end_offset = end_offset
        self.high_watermark = min(high_watermark, end_offset)
        self.role = Role.FOLLOWER
        self.leader = NO_LEADER
        self.leader_epoch = UNKNOWN_EPOCH
        self.partition_epoch = -1
        self.epoch_start_offset = UNKNOWN_OFFSET
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: tuple[int, ...] = ()
        self.directories: tuple[bytes, ...] = ()
        self.followers: dict[int, FollowerState] = {}
        self.deleted_records_offset = 0
        """Highest offset up to which DeleteRecords has been answered, as far as this leader
        knows."""
        self.isr_state: isr.IsrState = isr.Committed(frozenset())
        self._proposal: IsrProposal | None = None
        self.is_recovering = False
        self.eligible: tuple[int, ...] = ()
        """The eligible leader replicas (KIP-966), as the last metadata image names them."""
        self.is_abandoned = False
        """True if this leader hears from no controller and no in-sync follower: another broker may
        lead by now."""

    # --- roles -------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    def become_leader(self, image: PartitionImage, now_ms: int) -> bool:
        """Lead as `image` says, or take over its ISR if already leading in that epoch.

        Returns True when the leader epoch is new: the driver must then record the epoch's start
        in the log. Images older than the state are ignored.
        """
        if self._is_stale(image):
            return False
        is_new_epoch = image.leader_epoch > self.leader_epoch or self.role is not Role.LEADER
        dropped = self.isr_state.isr.difference(image.isr)
        self._adopt_image(image)
        self.role = Role.LEADER
        self.isr_state = isr.Committed(frozenset(image.isr))
        followers = [r for r in image.replicas if r != self.broker_id]
        if is_new_epoch:
            self.epoch_start_offset = self.end_offset
            self.followers = {
                r: FollowerState(now_ms if r in image.isr else LONG_AGO_MS) for r in followers
            }
        else:
            self.followers = {
                r: self.followers.get(r) or FollowerState(LONG_AGO_MS) for r in followers
            }
            for replica_id in dropped:
                if replica_id in self.followers:
                    self.followers[replica_id].dropped_ms = now_ms
                    self.followers[replica_id].dropped_as = self.peer_brokers.brokers.get(
                        replica_id
                    )
        return is_new_epoch

    def become_follower(self, image: PartitionImage) -> bool:
        """Follow the leader that `image` names, if any. True if the leader epoch is new."""
        if self._is_stale(image):
            return False
        is_new_epoch = image.leader_epoch > self.leader_epoch or self.role is Role.LEADER
        self._adopt_image(image)
        self.role = Role.FOLLOWER
        self.isr_state = isr.Committed(frozenset(image.isr))
        self.followers = {}
        return is_new_epoch

    def _is_stale(self, image: PartitionImage) -> bool:
        return (
            image.leader_epoch < self.leader_epoch or image.partition_epoch <= self.partition_epoch
        )

    def _adopt_image(self, image: PartitionImage) -> None:
        self.leader = image.leader
        self.leader_epoch = image.leader_epoch
        self.partition_epoch = image.partition_epoch
        self.replicas = image.replicas
        self.adding_replicas = image.adding_replicas
        self.directories = image.directories
        self.is_recovering = image.leader_recovery_state == RECOVERING
        self.eligible = image.elr
        self.is_abandoned = False

    # --- checks ------------------------------------------------------------------------------

    def may_lead_cleanly(self, replica_id: int, end_offset: int) -> bool:
        """True if the controller may elect replica `replica_id`, whose log ends at `end_offset`,
        without losing committed records: it is in the ISR, or eligible (KIP-966) with all committed
        records."""
        if replica_id in self.isr_state.isr:
            return True
        return replica_id in self.eligible and end_offset >= self.high_watermark

    @property
    def min_isr_effective(self) -> int:
        """min.insync.replicas, but at most the number of replicas."""
        return min(self.min_insync_replicas, max(len(self.replicas), 1))

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr_state.isr) < self.min_isr_effective

    @property
    def is_at_min_isr(self) -> bool:
        return len(self.isr_state.isr) == self.min_isr_effective

    @property
    def is_under_replicated(self) -> bool:
        return is_under_replicated(self.replicas, self.isr_state.isr, self.adding_replicas)

    @property
    def in_sync_count(self) -> int:
        return len(self.isr_state.isr)

    @property
    def replica_count(self) -> int:
        return len(self.replicas)

    def check_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Fence a request by the leader epoch that it names; -1 names none."""
        if current_leader_epoch == self.leader_epoch or current_leader_epoch == UNKNOWN_EPOCH:
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def check_leader(self, current_leader_epoch: int) -> ErrorCode:
        """As check_epoch, for requests that only the leader answers."""
        error = self.check_epoch(current_leader_epoch)
        if error == ErrorCode.NONE and self.role is not Role.LEADER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return error

    def check_consumer(self, current_leader_epoch: int, *, from_any_replica: bool) -> ErrorCode:
        """As check_leader, for a consumer's read. An abandoned leader refuses: another broker may
        lead and have newer records.

        from_any_replica: a follower answers too (KIP-392).
        """
        if self.is_abandoned:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if from_any_replica:
            return self.check_epoch(current_leader_epoch)
        return self.check_leader(current_leader_epoch)

    def check_produce(self, acks: int) -> ErrorCode:
        """NONE if a client may append now. acks=-1 needs the COMMITTED ISR to be large enough."""
        if self.role is not Role.LEADER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if acks == -1 and self.is_abandoned:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if acks == -1 and self.is_under_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    def has_followers_left(self, listed_by: Collection[int], since_ms: int) -> bool:
        """True if an in-sync follower still fetches from this leader, or the leader has no other
                member in its ISR.

        listed_by: the followers whose fetch session lists the partition; a follower of another
            leader takes the partition off its session.
        since_ms: a follower whose last fetch, of any partition, is older has stopped. A leader that
            is alone in its ISR has no successor.
        """
        in_sync = [r for r in self.followers if r in self.isr_state.maximal]
        last_fetch_ms = self.peer_brokers.last_fetch_ms
        return not in_sync or any(
            r in listed_by and last_fetch_ms.get(r, LONG_AGO_MS) >= since_ms for r in in_sync
        )

    def check_acknowledged(self) -> ErrorCode:
        """The result of an acks=-1 append that the high watermark has just passed.

        The ISR may have shrunk meanwhile. Then the records are in the log, on fewer replicas than
        asked.
        """
        if len(self.isr_state.maximal) < self.min_isr_effective:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    @property
    def is_latest_known(self) -> bool:
        """True if this leader may answer with the latest offset: records up to the start of its
        epoch are committed.

        A new leader's high watermark may be lower than the old leader's, and a consumer would see
        the end go back.
        """
        return self.high_watermark >= self.epoch_start_offset

    # --- offsets -----------------------------------------------------------------------------

    def on_append(self, end_offset: int, now_ms: int) -> bool:
        """The leader's log grew to `end_offset`. True when the high watermark rose."""
        before = self.end_offset
        if end_offset < before:  # no call of `invariant`: its message would cost each append
            raise InvariantViolated(f"append moved {self.summary()} back to {end_offset}")
        self.end_offset = end_offset
        last_fetch_ms = self.peer_brokers.last_fetch_ms
        for replica_id, remote in self.followers.items():
            if remote.end_offset == before:
                # The follower had everything until its last fetch. An incremental fetch does not
                # name idle partitions: without this line, an append after an idle hour would look
                # like an hour of lag.
                fetched_ms = last_fetch_ms.get(replica_id, LONG_AGO_MS)
                remote.last_caught_up_ms = max(remote.last_caught_up_ms, fetched_ms)
        return self.raise_high_watermark(now_ms)

    def on_follower_fetch(
        self, replica_id: int, fetch_offset: int, start_offset: int, broker_epoch: int, now_ms: int
    ) -> bool:
        """A follower fetches from `fetch_offset`, so it has all records below. True if the high
        watermark rose.

        The caller has checked leadership and epochs. A fetch changes nothing if its broker epoch is
        not the registered one (KIP-903).
        """
        remote = self.followers.get(replica_id)
        if remote is None or not self.peer_brokers.is_broker(replica_id, broker_epoch):
            return False
        if fetch_offset >= self.end_offset:
            remote.last_caught_up_ms = max(remote.last_caught_up_ms, now_ms)
        elif fetch_offset >= remote.leader_end_offset_at_fetch != UNKNOWN_OFFSET:
            remote.last_caught_up_ms = max(remote.last_caught_up_ms, remote.last_fetch_ms)
        remote.end_offset = fetch_offset
        remote.start_offset = start_offset
        remote.broker_epoch = broker_epoch
        remote.last_fetch_ms = now_ms
        remote.leader_end_offset_at_fetch = self.end_offset
        if fetch_offset <= self.high_watermark:
            return False
        return self.raise_high_watermark(now_ms)

    def raise_high_watermark(self, now_ms: int) -> bool:
        """Raise the leader's high watermark as far as the rules allow. True if it rose."""
        if self.role is not Role.LEADER or self.is_under_min_isr:
            return False
        least = self.end_offset
        if least <= self.high_watermark:
            return False
        maximal = self.isr_state.maximal
        for replica_id, remote in self.followers.items():
            if remote.end_offset < least and (
                replica_id in maximal or self._is_joining_soon(replica_id, remote, now_ms)
            ):
                least = remote.end_offset
        if least <= self.high_watermark:
            return False
        self.high_watermark = least
        return True

    def on_follower_append(self, end_offset: int, leader_high_watermark: int) -> bool:
        """This follower's log now ends at `end_offset`, and the leader sent its high watermark.

        True if this follower's high watermark rose.
        """
        self.end_offset = end_offset
        bounded = min(leader_high_watermark, end_offset)
        if bounded <= self.high_watermark:
            return False
        self.high_watermark = bounded
        return True

    def on_truncated(self, end_offset: int) -> None:
        """The log was truncated to `end_offset`."""
        self.end_offset = end_offset
        self.high_watermark = min(self.high_watermark, end_offset)

    def on_start_moved(self, start_offset: int) -> None:
        """The log now starts at `start_offset`; the high watermark is never below it."""
        self.high_watermark = min(max(self.high_watermark, start_offset), self.end_offset)

    def low_watermark(self, start_offset: int) -> int:
        """The low watermark: least log start offset of this leader (`start_offset`), the live
        followers and all members of the maximal ISR. A member counts even if its broker is not
        live, since it may be admitted while it is away.

        -1 while one of them has not fetched from this leader.
        """
        starts = [
            remote.start_offset
            for replica_id, remote in self.followers.items()
            if self._is_live(replica_id) or replica_id in self.isr_state.maximal
        ]
        return min(start_offset, *starts) if starts else start_offset

    def nearest_replica(self, rack_id: str, fetch_offset: int) -> int:
        """The in-sync follower in rack `rack_id` that a consumer at `fetch_offset` should read
        from.

        -1 if it should read from this leader. Of several followers, the one with the most records
        is chosen; of equal ones, the one with the lowest id (KIP-392, RackAwareReplicaSelector).
        """
        if self.peer_brokers.rack_of(self.broker_id) == rack_id:
            return NO_REPLICA
        near = [
            (-remote.end_offset, replica_id)
            for replica_id, remote in self.followers.items()
            if replica_id in self.isr_state.isr
            and self._is_live(replica_id)
            and self.peer_brokers.rack_of(replica_id) == rack_id
            and remote.start_offset <= fetch_offset <= remote.end_offset
        ]
        return min(near)[1] if near else NO_REPLICA

    # --- ISR ---------------------------------------------------------------------------------

    def propose_shrink(self, now_ms: int) -> IsrProposal | None:
        """Propose to remove lagging members from the ISR, if any; they count until the metadata
        says that they are removed."""
        if self.role is not Role.LEADER:
            return None
        lagging = [
            replica_id
            for replica_id, remote in self.followers.items()
            if replica_id in self.isr_state.isr and not self._is_in_sync(remote, now_ms)
        ]
        return self._propose(isr.shrink(self.isr_state, lagging))

    def propose_expand(self, now_ms: int | None = None) -> IsrProposal | None:
        """Propose to add caught-up followers to the ISR, if any; they count from now on.

        now_ms: given if no fetch has just shown that the followers are alive. Then only followers
        in sync at that time are proposed. Otherwise one that stopped at the high watermark would be
        removed for lagging and added again, in turn.
        """
        if self.role is not Role.LEADER or not isinstance(self.isr_state, isr.Committed):
            return None
        ready = [
            replica_id
            for replica_id, remote in self.followers.items()
            if replica_id not in self.isr_state.isr
            and self._may_join(replica_id, remote)
            and (now_ms is None or self._is_in_sync(remote, now_ms))
        ]
        return self._propose(isr.expand(self.isr_state, ready))

    def propose_recovered(self) -> IsrProposal | None:
        """Report that this leader, elected uncleanly, has recovered. Any AlterPartition does so
        (KIP-704); a leader that is alone has no other proposal to make."""
        if self.role is not Role.LEADER or not self.is_recovering:
            return None
        return self._propose(isr.confirm(self.isr_state))

    def proposal_in_flight(self) -> IsrProposal | None:
        """The pending proposal, to be sent again unchanged (KIP-903). A retry that named current
        broker epochs would let in a replica that restarted with an empty disk meanwhile."""
        return None if isinstance(self.isr_state, isr.Committed) else self._proposal

    def on_isr_answer(self, proposal: IsrProposal, answer: AlteredPartition) -> isr.Reaction:
        """Apply the controller's answer to `proposal`. Call raise_high_watermark afterwards."""
        state = self.isr_state
        is_current = (
            proposal.leader_epoch == self.leader_epoch
            and proposal.partition_epoch == self.partition_epoch
            and self.role is Role.LEADER
            and not isinstance(state, isr.Committed)
        )
        if not is_current:
            return isr.Reaction.WAIT_FOR_METADATA
        reaction = isr.react(
            answer, leader_epoch=self.leader_epoch, partition_epoch=self.partition_epoch
        )
        if reaction is isr.Reaction.APPLIED and not state.isr.issubset(answer.isr):
            # The ISR has shrunk, so wait for the metadata log. Bad sequence otherwise: 1. The
            # controller raises min.insync.replicas; leader A has not replayed it. 2. The controller
            # removes B from the ISR, and B becomes an eligible leader replica under the raised
            # minimum. 3. A, with the old minimum, acknowledges alone and dies. 4. B is elected
            # without A's records. The metadata log delivers the raised minimum before the smaller
            # ISR.
            return isr.Reaction.WAIT_FOR_METADATA
        if reaction is isr.Reaction.APPLIED:
            self.isr_state = isr.Committed(frozenset(answer.isr))
            self.partition_epoch = answer.partition_epoch
            # The answer does not name the eligible leader replicas. The image that does has the
            # same partition epoch, so it is ignored as stale.
            self.eligible = ()
            self.is_recovering = False
        elif reaction is isr.Reaction.ROLLED_BACK:
            self.isr_state = isr.Committed(state.isr)
        return reaction

    def _propose(self, state: isr.PendingExpand | isr.PendingShrink | None) -> IsrProposal | None:
        if state is None:
            return None
        self.isr_state = state
        epochs = []
        for replica_id in sorted(state.proposed):
            remote = self.followers.get(replica_id)
            epoch = (
                self.peer_brokers.epoch_of(replica_id) if remote is None else remote.broker_epoch
            )
            epochs.append((replica_id, epoch))
        self._proposal = IsrProposal(
            topic_id=self.topic_id,
            partition_id=self.partition_id,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            new_isr=tuple(epochs),
        )
        return self._proposal

    def _is_in_sync(self, remote: FollowerState, now_ms: int) -> bool:
        return (
            remote.end_offset == self.end_offset
            or now_ms - remote.last_caught_up_ms <= self.lag_time_max_ms
        )

    def _is_live(self, replica_id: int) -> bool:
        """True if the replica's broker is active and the replica's directory there is online. A
        replica on a failed disk no longer fetches: waiting for it would hold back the high
        watermark."""
        if not self.peer_brokers.is_active(replica_id):
            return False
        if not self.directories or replica_id not in self.replicas:
            return True
        directory = self.directories[self.replicas.index(replica_id)]
        return self.peer_brokers.brokers[replica_id].has_online(directory)

    def _is_eligible(self, replica_id: int, remote: FollowerState) -> bool:
        return (
            self._is_live(replica_id)
            and remote.broker_epoch in (UNKNOWN_EPOCH, self.peer_brokers.epoch_of(replica_id))
            and not self._is_leaving(replica_id, remote)
        )

    def _is_leaving(self, replica_id: int, remote: FollowerState) -> bool:
        """True if the metadata removed the replica from the ISR, and its broker has not fetched
        since under the same registration.

        The controller learns first that a broker is dead. The controller then removes the broker
        from thousands of partitions one after another, and fences the broker last. Until then, this
        leader would wait for the replica and propose it again and again in vain.
        """
        return (
            remote.dropped_as is not None
            and remote.dropped_as is self.peer_brokers.brokers.get(replica_id)
            and self.peer_brokers.last_fetch_ms.get(replica_id, LONG_AGO_MS) < remote.dropped_ms
        )

    def _may_join(self, replica_id: int, remote: FollowerState) -> bool:
        # The follower has reported, from its disk, a log start at or above
        # `deleted_records_offset`. Bad sequence otherwise: 1. Records are deleted while follower A
        # is away. 2. A returns and joins the ISR with the records still on its disk. 3. Power
        # fails. 4. A is elected, and the deleted records are back.
        return (
            remote.start_offset >= self.deleted_records_offset
            and remote.end_offset >= self.high_watermark
            and remote.end_offset >= self.epoch_start_offset
            and remote.end_offset != UNKNOWN_OFFSET
            and self._is_eligible(replica_id, remote)
        )

    def _is_joining_soon(self, replica_id: int, remote: FollowerState, now_ms: int) -> bool:
        return self._is_eligible(replica_id, remote) and self._is_in_sync(remote, now_ms)

    # --- inspection --------------------------------------------------------------------------

    def summary(self) -> str:
        """One line for logs, tests and tools."""
        state = self.isr_state
        pending = "" if isinstance(state, isr.Committed) else f" proposed={sorted(state.proposed)}"
        return (
            f"{self.topic}-{self.partition_id} role={self.role.value} leader={self.leader} "
            f"epoch={self.leader_epoch}/{self.partition_epoch} end={self.end_offset} "
            f"hw={self.high_watermark} isr={sorted(state.isr)}{pending}"
        )
