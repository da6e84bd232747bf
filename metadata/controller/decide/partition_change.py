"""One partition's next state, whatever caused it: the rules that hold for every change.

Every decision that touches a partition names what it wants (another ISR, other replicas, an
election) and comes through `change`. In this order (Kafka's PartitionChangeBuilder):

1. A reassignment is completed as soon as all its targets are in sync.
2. A leader is found: the present one if it may stay, else the first active member of the ISR in
   the order of the replicas, else of the eligible leader replicas, else, where that is allowed,
   uncleanly anyone.
3. Who left an ISR that is now below min.insync.replicas is remembered as eligible (KIP-966). The
   leader's high watermark stands still down there, so they hold all that is committed.

Unlike in Kafka the ISR is never empty: its last member stays in it, fenced or not, until an
eligible replica or an unclean election takes its place.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from kvorum.metadata.controller.decide.electorate import Terms
from kvorum.metadata.image.image import PartitionImage
from kvorum.metadata.image.records import NO_LEADER, RECOVERED, RECOVERING, PartitionChange

Key = tuple[bytes, int]
"""Topic id and partition id."""

Replicas = tuple[int, ...]


class Election(enum.Enum):
    """How far an election may go."""

    ONLINE = "keep the leader if it may stay"
    PREFERRED = "the first replica if it is in sync and active, else as ONLINE"
    UNCLEAN = "as ONLINE, and out of sync rather than nobody, by an operator's order"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a change is to bring; None means as it is.

    lost: replicas that may have lost what they held; they are eligible no more.
    is_recovered: the leader says by its proposal that it has recovered.
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


def change(key: Key, partition: PartitionImage, wish: Wish, terms: Terms) -> PartitionChange | None:
    """The record that brings the wish about, None if nothing is different then.

    wish.isr must not be empty.
    """
    terms = terms.of(partition)
    shape = _completed(_wished(partition, wish), terms)
    outcome = _elect(partition, shape, wish, terms)
    # A replica that is elected out of sync may be the last target of a reassignment, which is then
    # complete.
    shape = _completed(shape._replace(isr=outcome.isr), terms)
    isr, leader = shape.isr, outcome.leader
    elr = () if outcome.is_unclean else _eligible(partition, shape, isr, wish, terms)
    new_leader: int | None = None if leader == partition.leader else leader
    new_replicas = None
    if shape.replicas != partition.replicas:
        new_replicas = shape.replicas
        if leader != NO_LEADER and not set(partition.replicas) <= set(new_replicas):
            # A new epoch for the same leader keeps replicas that are out from fetching on.
            new_leader = leader
    recovery = None
    if terms.has_recovery_state and (outcome.is_unclean or wish.is_recovered):
        recovery = RECOVERING if outcome.is_unclean else RECOVERED
    last_known = _last_known(partition, outcome, shape) if terms.has_elr else ()
    # Tens of thousands of these are made at once when a broker dies: told by fields what there is
    # nothing of, not by comparing with an empty record.
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
    """The partition after `record`, for a reply that goes out before it is replayed."""
    leader = record.leader
    return PartitionImage(
        partition.replicas if record.replicas is None else record.replicas,
        partition.isr if record.isr is None else record.isr,
        partition.leader if leader is None else leader,
        partition.leader_epoch + (leader is not None),
        partition.partition_epoch + 1,
    )


def without(partition: PartitionImage, broker_id: int, *, is_lost: bool = False) -> Wish:
    """The wish to take a broker out of the ISR.

    is_lost: it may also have lost what it held, and is not eligible any more. The last member of
    an ISR stays, unless it is lost and an eligible replica can stand for it: that one is known
    to hold all that is committed, the lost one is not.
    """
    lost = frozenset((broker_id,)) if is_lost else frozenset()
    isr = tuple(member for member in partition.isr if member != broker_id)
    if not isr:
        isr = partition.isr
        heirs = [r for r in partition.replicas if r in partition.elr and r != broker_id]
        if is_lost and isr and heirs:
            isr = (heirs[0],)
    return Wish(isr=isr, lost=lost)


def dropped(
    key: Key, partition: PartitionImage, broker_id: int, terms: Terms, *, is_lost: bool = False
) -> PartitionChange | None:
    """The record that takes a broker out: `change` by the wish `without`.

    A dead broker costs one of these for each partition that it led or followed, all before any
    of them has a new leader. So the plain case takes a short way to the same record.
    """
    isr = tuple([member for member in partition.isr if member != broker_id])
    is_plain = not (
        partition.directories
        or partition.adding_replicas
        or partition.removing_replicas
        or partition.elr
        or partition.last_known_elr
    )
    if is_plain and len(partition.isr) > len(isr) >= min(terms.min_isr, len(partition.replicas)):
        if partition.leader in isr and partition.leader in terms.active:
            return PartitionChange(*key, isr)
        for replica in partition.replicas:
            if replica in isr and replica in terms.active:
                return PartitionChange(*key, isr, replica)
    return change(key, partition, without(partition, broker_id, is_lost=is_lost), terms)


def _wished(partition: PartitionImage, wish: Wish) -> _Shape:
    return _Shape(
        partition.replicas if wish.replicas is None else wish.replicas,
        partition.isr if wish.isr is None else wish.isr,
        partition.adding_replicas if wish.adding is None else wish.adding,
        partition.removing_replicas if wish.removing is None else wish.removing,
    )


def _completed(shape: _Shape, terms: Terms) -> _Shape:
    if not shape.adding and not shape.removing:
        return shape
    target = tuple(r for r in shape.replicas if r not in shape.removing)
    isr = tuple(r for r in shape.isr if r not in shape.removing)
    if not set(target) <= set(isr) or not any(r in terms.active for r in isr):
        # With no target that could lead, the replicas to be removed are the only way on.
        return shape
    return _Shape(target, isr, (), ())


def _elect(partition: PartitionImage, shape: _Shape, wish: Wish, terms: Terms) -> _Outcome:
    active, isr = terms.active, shape.isr
    leader = partition.leader
    preferred = shape.replicas[0]
    if wish.election is Election.PREFERRED and preferred in isr and preferred in active:
        return _Outcome(preferred, isr)
    if leader in isr and leader in active:
        return _Outcome(leader, isr)
    in_sync = _first(shape.replicas, active, isr)
    if in_sync is not None:
        return _Outcome(in_sync, isr)
    eligible = _first(shape.replicas, active, _eligible(partition, shape, isr, wish, terms))
    if eligible is not None:
        return _Outcome(eligible, (eligible,))
    if terms.is_unclean_allowed or wish.election is Election.UNCLEAN:
        # The last leader held the most; a replica that is only being added may hold nothing.
        known = (*partition.last_known_elr, leader)
        settled = tuple(r for r in shape.replicas if r not in shape.adding)
        for pool in (known, settled, shape.adding):
            chosen = _first(pool, active, shape.replicas)
            if chosen is not None:
                return _Outcome(chosen, (chosen,), is_unclean=True)
    return _Outcome(NO_LEADER, isr)


def _eligible(
    partition: PartitionImage, shape: _Shape, isr: Replicas, wish: Wish, terms: Terms
) -> Replicas:
    """The eligible leader replicas beside this ISR, in the order of the replicas."""
    if not terms.has_elr or len(isr) >= min(terms.min_isr, len(shape.replicas)):
        return ()
    holders = (set(partition.isr) | set(partition.elr)) - wish.lost
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
