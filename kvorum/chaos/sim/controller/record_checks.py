"""The invariants of the committed metadata records, checked one record after the other. Pure.

Each check sees a record and the images before and after it, and remembers what it needs. Names are
those in docs/protocol/simulation.md; each check has a test with a bad history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvorum.chaos.sim.kernel.checks import check
from kvorum.metadata.controller.decide.eligible_brokers import min_isr_of
from kvorum.metadata.image.features import ACL_LEVEL, METADATA_VERSION, REASSIGNMENT_LEVEL, level_of
from kvorum.metadata.image.image import ClusterImage, PartitionImage, TopicIdPartition
from kvorum.metadata.image.records import (
    NO_LEADER,
    RECOVERING,
    BrokerRegistrationChange,
    FeatureLevel,
    Partition,
    PartitionChange,
    ProducerIds,
    Record,
    RegisterBroker,
    RemoveTopic,
    Topic,
)
from kvorum.metadata.requests.config_requests import AlterConfigs
from kvorum.metadata.requests.controller_requests import (
    AlterPartition,
    AlterReassignments,
    ElectionType,
    ElectLeaders,
)

if TYPE_CHECKING:
    from kvorum.chaos.sim.controller.history import Attempt


UNCLEAN = "unclean.leader.election.enable"


class RecordChecks:
    """Checks the records in their order. is_unclean_default: the controllers'
    unclean.leader.election.enable. The public counts are for the run's summary."""

    def __init__(self, *, is_unclean_default: bool = False) -> None:
        self.is_unclean_default = is_unclean_default
        self.leader_changes = 0
        self.unclean_elections = 0
        self.fencings = 0
        self._topic_ids: set[bytes] = set()
        self._broker_epochs: dict[int, int] = {}
        self._next_producer_id = 0
        self._epochs: dict[TopicIdPartition, tuple[int, int]] = {}

    def on_record(
        self,
        offset: int,
        record: Record,
        before: ClusterImage,
        after: ClusterImage,
        cause: Attempt | None,
    ) -> None:
        """Check one more committed record. Raises CheckFailed."""
        match record:
            case Topic():
                check(
                    record.topic_id not in self._topic_ids,
                    "TopicIdNeverReused",
                    f"{record} at {offset}",
                )
                self._topic_ids.add(record.topic_id)
                known_id = before.topic_ids.get(record.name)
                check(known_id is None, "NameStandsForOneTopic", f"{record} at {offset}")
            case RemoveTopic():
                name = before.topics[record.topic_id].name
                check(
                    not after.topic_configs(name),
                    "ConfigsGoWithTheirTopic",
                    f"{record} at {offset} leaves the configs of {name}",
                )
            case FeatureLevel(name=level_name, level=level):
                check(
                    not after.acls or level_of(after.features, METADATA_VERSION) >= ACL_LEVEL,
                    "DowngradeLosesNothing",
                    f"{record} at {offset}, with ACLs",
                )
                if level_name == METADATA_VERSION and level < REASSIGNMENT_LEVEL:
                    self._loses_nothing(offset, record, after)
            case RegisterBroker():
                known = self._broker_epochs.get(record.broker_id, -1)
                check(
                    known < record.broker_epoch == offset,
                    "BrokerEpochGrows",
                    f"{record} at {offset}, after epoch {known}",
                )
                self._broker_epochs[record.broker_id] = record.broker_epoch
                process = before.brokers.get(record.broker_id)
                check(
                    process is None or process.incarnation_id != record.incarnation_id,
                    "ProcessRegistersOnce",
                    f"{record} at {offset}, which has its place already",
                )
            case ProducerIds():
                check(
                    record.next_producer_id > self._next_producer_id,
                    "ProducerIdBlockOnce",
                    f"{record} at {offset}, after {self._next_producer_id}",
                )
                self._next_producer_id = record.next_producer_id
            case BrokerRegistrationChange(is_fenced=True):
                self.fencings += 1
            case Partition() | PartitionChange():
                self._on_partition(offset, record, before, after, cause)
            case _:
                pass

    def on_decision(self, end_offset: int, image: ClusterImage) -> None:
        """Check the invariants that hold between decisions, after all records of a decision are
        committed.

        FencedNeverLeads; IsrIsActive, except for an ISR's last member; LeaderWherePossible: a
        partition has no leader only if no member of its ISR and ELR can lead. A broker counts as
        fenced for a partition whose directory there is offline.
        """
        all_active = set(image.active_broker_ids())
        for topic in image.topics.values():
            for partition_id, partition in topic.partitions.items():
                active = all_active
                if partition.directories:
                    active = {
                        broker_id
                        for broker_id in all_active
                        if image.brokers[broker_id].has_online(partition.directory_of(broker_id))
                    }
                if len(partition.isr) > 1 and not active.issuperset(partition.isr):
                    check(
                        False,
                        "IsrIsActive",
                        f"{topic.name}-{partition_id} at {end_offset}: {partition}, active are "
                        f"{sorted(active)}",
                    )
                if partition.leader != NO_LEADER:
                    if partition.leader not in active:
                        check(
                            False,
                            "FencedNeverLeads",
                            f"{topic.name}-{partition_id} at {end_offset}: {partition}, active "
                            f"are {sorted(active)}",
                        )
                elif any(r in active for r in (*partition.isr, *partition.elr)):
                    check(
                        False,
                        "LeaderWherePossible",
                        f"{topic.name}-{partition_id} at {end_offset}: {partition}, active are "
                        f"{sorted(active)}",
                    )

    def _on_partition(
        self,
        offset: int,
        record: Partition | PartitionChange,
        before: ClusterImage,
        after: ClusterImage,
        cause: Attempt | None,
    ) -> None:
        key = (record.topic_id, record.partition_id)
        old, new = before.partition(*key), after.partition(*key)
        if new is None:
            return  # a deletion of the topic in the same decision would be a record of its own
        what = f"{record} at {offset}: {new}, before {old}"
        check(new.isr, "IsrNeverEmpty", what)
        check(
            len(set(new.isr)) == len(new.isr) and set(new.isr) <= set(new.replicas),
            "IsrWithinReplicas",
            what,
        )
        check(new.leader == NO_LEADER or new.leader in new.isr, "LeaderInIsr", what)
        leader_epoch, partition_epoch = self._epochs.get(key, (-1, -1))
        is_other_leader = old is not None and new.leader != old.leader
        check(
            new.leader_epoch >= leader_epoch + is_other_leader,
            "LeaderEpochMonotonic",
            f"{what}, epoch before {leader_epoch}",
        )
        check(
            new.partition_epoch > partition_epoch,
            "PartitionEpochMonotonic",
            f"{what}, epoch before {partition_epoch}",
        )
        self._epochs[key] = new.leader_epoch, new.partition_epoch
        request = None if cause is None else cause.request
        if old is not None and old.is_reassigning and not isinstance(request, AlterReassignments):
            check(
                new.is_reassigning or set(new.replicas) <= set(new.isr),
                "MoveEndsInSync",
                what,
            )
        if new.elr and len(new.isr) >= min(
            min_isr_of(after, after.topics[record.topic_id].name), len(new.replicas)
        ):
            check(False, "ElrOnlyBelowMinimum", what)
        if old is not None and new.leader not in (NO_LEADER, old.leader):
            self._elected(record, old, new, before, after, cause, what)

    def _elected(
        self,
        record: Partition | PartitionChange,
        old: PartitionImage,
        new: PartitionImage,
        before: ClusterImage,
        after: ClusterImage,
        cause: Attempt | None,
        what: str,
    ) -> None:
        """Check LeaderInIsr, second half: a new leader was in the ISR or the ELR before, or the
        previous leader has just proposed it for the ISR, unless an unclean election was allowed."""
        self.leader_changes += 1
        if new.leader in old.isr or new.leader in old.elr:
            return
        request = None if cause is None else cause.request
        if isinstance(request, AlterPartition):
            said = {
                member
                for proposal in request.proposals
                if (proposal.topic_id, proposal.partition_id)
                == (record.topic_id, record.partition_id)
                for member, _ in proposal.new_isr
            }
            if new.leader in said and cause is not None and request.broker_id == old.leader:
                return
        ordered = isinstance(request, ElectLeaders) and request.election is ElectionType.UNCLEAN
        name = before.topics[record.topic_id].name
        allowed = self._is_allowed(before, name) or (
            isinstance(request, AlterConfigs) and self._is_allowed(after, name)
        )
        check(ordered or allowed, "LeaderInIsr", f"{what}: an unclean election nobody allowed")
        self.unclean_elections += 1
        level = level_of(after.features, METADATA_VERSION)
        check(
            level < REASSIGNMENT_LEVEL or new.leader_recovery_state == RECOVERING,
            "UncleanIsTold",
            what,
        )

    def _loses_nothing(self, offset: int, record: Record, image: ClusterImage) -> None:
        partitions = [p for topic in image.topics.values() for p in topic.partitions.values()]
        check(
            not image.client_quotas
            and not any(
                p.is_reassigning or p.elr or p.last_known_elr or p.leader_recovery_state
                for p in partitions
            ),
            "DowngradeLosesNothing",
            f"{record} at {offset}",
        )

    def _is_allowed(self, image: ClusterImage, topic: str) -> bool:
        text = image.topic_configs(topic).get(UNCLEAN)
        if text is None:
            text = image.default_config(UNCLEAN)
        return self.is_unclean_default if text is None else text == "true"
