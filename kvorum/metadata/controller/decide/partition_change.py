"""The next state of one partition: the rules that hold for every change, whatever caused it.

Every decision about a partition passes a target (another ISR, other replicas, an election) to
`change`, which works in this order (as Kafka's PartitionChangeBuilder):

1. Complete a reassignment if all its targets are in sync.
2. Find a leader: the present one if it may stay; else the first active member of the ISR in the
   order of the replicas; else the first of the eligible leader replicas; else, if unclean elections
   are allowed, any active replica.
3. If the ISR is now below min.insync.replicas, record the replicas that left it as eligible leader
   replicas (KIP-966). The high watermark does not move while the ISR is that small, so they have
   all committed records.

Unlike in Kafka the ISR is never empty. Its last member stays, fenced or not, until an eligible
leader replica or an unclean election replaces it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from kvorum.metadata.controller.decide.eligible_brokers import ElectionRules
from kvorum.metadata.image.image import PartitionImage, TopicIdPartition
from kvorum.metadata.image.records import NO_LEADER, RECOVERED, RECOVERING, PartitionChange

Replicas = tuple[int, ...]


class Election(enum.Enum):
    """The replicas that an election may choose from."""

    ONLINE = "keep the leader if it may stay"
    PREFERRED = "the first replica if it is in sync and active, else as ONLINE"
    UNCLEAN = "as ONLINE, and out of sync rather than nobody, by an operator's order"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTarget:
    """The requested changes; None leaves a field as it is.

    lost: replicas that may have lost records, and are no longer eligible.
    is_recovered: the leader's proposal shows that it has recovered.
    """

    replicas: Replicas | None = None
    isr: Replicas | None = None
    adding: Replicas | None = None
    removing: Replicas | None = None
    election: Election = Election.ONLINE
    lost: Set[int] = frozenset()
    is_recovered: bool = False


class _Shape(NamedTuple):
    replicas: Replicas
    isr: Replicas
    adding: Replicas
    removing: Replicas


class _Outcome(NamedTuple):
    leader: int
    isr: Replicas
    is_unclean: bool = False


_NOTHING = (None,) * 8


def change(
    key: TopicIdPartition,
    partition: PartitionImage,
    partition_target: PartitionTarget,
    rules: ElectionRules,
) -> PartitionChange | None:
    """The record that makes the requested changes, None if nothing changes. partition_target.isr
    must not be empty."""
    rules = rules.of(partition)
    shape = _completed(_targeted(partition, partition_target), rules)
    outcome = _elect(partition, shape, partition_target, rules)
    # A replica that is elected out of sync may be the last target of a reassignment, which is then
    # complete.
    shape = _completed(shape._replace(isr=outcome.isr), rules)
    isr, leader = shape.isr, outcome.leader
    elr = () if outcome.is_unclean else _eligible(partition, shape, isr, partition_target, rules)
    new_leader: int | None = None if leader == partition.leader else leader
    new_replicas = None
    if shape.replicas != partition.replicas:
        new_replicas = shape.replicas
        if leader != NO_LEADER and not set(partition.replicas) <= set(new_replicas):
            # The same leader gets a new epoch, so that removed replicas cannot continue to fetch.
            new_leader = leader
    recovery = None
    if rules.has_recovery_state and (outcome.is_unclean or partition_target.is_recovered):
        recovery = RECOVERING if outcome.is_unclean else RECOVERED
    last_known = _last_known(partition, outcome, shape) if rules.has_elr else ()
    # The death of a broker needs tens of thousands of these records at once. Comparing the fields
    # is faster than building an empty record to compare with.
    fields: tuple[Any, ...] = (
        None if isr == partition.isr else isr,
        new_leader,
        new_replicas,
        None if shape.adding == partition.adding_replicas else shape.adding,
        None if shape.removing == partition.removing_replicas else shape.removing,
        None if recovery == partition.leader_recovery_state else recovery,
        None if elr == partition.elr else elr,
        None if last_known == partition.last_known_elr else last_known,
    )
    return None if fields == _NOTHING else PartitionChange(*key, *fields)


def changed(partition: PartitionImage, record: PartitionChange) -> PartitionImage:
    """The partition after `record`, for a reply that is built before the record is replayed."""
    leader = record.leader
    return PartitionImage(
        partition.replicas if record.replicas is None else record.replicas,
        partition.isr if record.isr is None else record.isr,
        partition.leader if leader is None else leader,
        partition.leader_epoch + (leader is not None),
        partition.partition_epoch + 1,
    )


def without(partition: PartitionImage, gone: Set[int], *, is_lost: bool = False) -> PartitionTarget:
    """The target that removes brokers from the ISR.

    is_lost: they may also have lost records, and are no longer eligible. The last member of an ISR
    stays (the leader, if all members go), with one exception: if it is lost, and an eligible leader
    replica exists, that replica replaces it. The eligible replica is known to have all committed
    records, the lost one is not.
    """
    lost = frozenset(gone) if is_lost else frozenset()
    isr = tuple(member for member in partition.isr if member not in gone)
    if not isr:
        isr = partition.isr
        heirs = [r for r in partition.replicas if r in partition.elr and r not in gone]
        if is_lost and isr and heirs:
            isr = (heirs[0],)
        elif len(isr) > 1:
            isr = (partition.leader,) if partition.leader in isr else isr[-1:]
    return PartitionTarget(isr=isr, lost=lost)


def dropped(
    key: TopicIdPartition,
    partition: PartitionImage,
    gone: Set[int],
    rules: ElectionRules,
    *,
    is_lost: bool = False,
) -> PartitionChange | None:
    """The record that removes brokers: the same as `change` with the target of `without`.

    A dead broker needs one record for each partition that it led or followed, all before any of
    them has a new leader. So the simple case has a faster way to the same record.
    """
    isr = tuple([member for member in partition.isr if member not in gone])
    is_plain = not (
        partition.directories
        or partition.adding_replicas
        or partition.removing_replicas
        or partition.elr
        or partition.last_known_elr
    )
    if is_plain and len(partition.isr) > len(isr) >= min(rules.min_isr, len(partition.replicas)):
        if partition.leader in isr and partition.leader in rules.active:
            return PartitionChange(*key, isr)
        for replica in partition.replicas:
            if replica in isr and replica in rules.active:
                return PartitionChange(*key, isr, replica)
    return change(key, partition, without(partition, gone, is_lost=is_lost), rules)


def _targeted(partition: PartitionImage, partition_target: PartitionTarget) -> _Shape:
    return _Shape(
        partition.replicas if partition_target.replicas is None else partition_target.replicas,
        partition.isr if partition_target.isr is None else partition_target.isr,
        partition.adding_replicas if partition_target.adding is None else partition_target.adding,
        partition.removing_replicas
        if partition_target.removing is None
        else partition_target.removing,
    )


def _completed(shape: _Shape, rules: ElectionRules) -> _Shape:
    if not shape.adding and not shape.removing:
        return shape
    target = tuple(r for r in shape.replicas if r not in shape.removing)
    isr = tuple(r for r in shape.isr if r not in shape.removing)
    if not set(target) <= set(isr) or not any(r in rules.active for r in isr):
        # No target could lead; the replicas to be removed are needed until one can.
        return shape
    return _Shape(target, isr, (), ())


def _elect(
    partition: PartitionImage,
    shape: _Shape,
    partition_target: PartitionTarget,
    rules: ElectionRules,
) -> _Outcome:
    active, isr = rules.active, shape.isr
    leader = partition.leader
    preferred = shape.replicas[0]
    if partition_target.election is Election.PREFERRED and preferred in isr and preferred in active:
        return _Outcome(preferred, isr)
    if leader in isr and leader in active:
        return _Outcome(leader, isr)
    in_sync = _first(shape.replicas, active, isr)
    if in_sync is not None:
        return _Outcome(in_sync, isr)
    eligible = _first(
        shape.replicas, active, _eligible(partition, shape, isr, partition_target, rules)
    )
    if eligible is not None:
        return _Outcome(eligible, (eligible,))
    if rules.is_unclean_allowed or partition_target.election is Election.UNCLEAN:
        # The last leader has the most records; a replica that is only being added may have none.
        known = (*partition.last_known_elr, leader)
        settled = tuple(r for r in shape.replicas if r not in shape.adding)
        for pool in (known, settled, shape.adding):
            chosen = _first(pool, active, shape.replicas)
            if chosen is not None:
                return _Outcome(chosen, (chosen,), is_unclean=True)
    return _Outcome(NO_LEADER, isr)


def _eligible(
    partition: PartitionImage,
    shape: _Shape,
    isr: Replicas,
    partition_target: PartitionTarget,
    rules: ElectionRules,
) -> Replicas:
    """The eligible leader replicas outside this ISR, in the order of the replicas."""
    if not rules.has_elr or len(isr) >= min(rules.min_isr, len(shape.replicas)):
        return ()
    holders = (set(partition.isr) | set(partition.elr)) - partition_target.lost
    return tuple(r for r in shape.replicas if r in holders and r not in isr)


def _last_known(partition: PartitionImage, outcome: _Outcome, shape: _Shape) -> Replicas:
    if outcome.leader != NO_LEADER:
        return ()
    known = partition.last_known_elr
    if partition.leader != NO_LEADER:
        known = (partition.leader,)
    return tuple(r for r in known if r in shape.replicas)


def _first(order: Iterable[int], active: Set[int], members: Iterable[int]) -> int | None:
    for replica in order:
        if replica in active and replica in members:
            return replica
    return None
