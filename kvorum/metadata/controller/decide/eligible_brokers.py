"""The brokers that may be elected, and the rules of each topic's elections.

A topic's own config comes first, then the cluster default in the image. For unclean elections, the
controllers' static property is last. For min.insync.replicas it is not used. An eligible leader
replica is valid only if leader and controller use exactly the same minimum. Only the metadata log
is the same for both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from kvorum.metadata.configs.model import parse
from kvorum.metadata.configs.topic_keys import TOPIC_CONFIGS
from kvorum.metadata.image.features import (
    ELIGIBLE_LEADER_REPLICAS,
    METADATA_VERSION,
    REASSIGNMENT_LEVEL,
    level_of,
)
from kvorum.metadata.image.image import ClusterImage, PartitionImage, is_online
from kvorum.metadata.image.records import LOST_DIRECTORY

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"
MIN_ISR_DEFAULT = 1
_MINIMUM_MAX = (1 << 15) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionRules:
    """The rules for elections in one topic's partitions.

    active: brokers that may lead.
    min_isr: min.insync.replicas as configured, maybe more than the partition's replicas.
    has_elr, has_recovery_state: the feature levels can record eligible leader replicas, and a
        leader that recovers.
    log_dirs: ids of the online directories, by broker.
    """

    active: Set[int]
    min_isr: int = MIN_ISR_DEFAULT
    is_unclean_allowed: bool = False
    has_elr: bool = True
    has_recovery_state: bool = True
    log_dirs: Mapping[int, tuple[bytes, ...]] = field(default_factory=dict)

    def of(self, partition: PartitionImage) -> ElectionRules:
        """The rules of one partition: a broker whose replica is in an offline directory may not
        lead it, as if that broker were fenced for this partition (KIP-858)."""
        if not partition.directories:
            return self
        offline = {
            replica
            for replica, directory in zip(partition.replicas, partition.directories, strict=True)
            if not is_online(directory, self.log_dirs.get(replica, ()))
        }
        return dataclasses.replace(self, active=self.active - offline) if offline else self


@dataclass(frozen=True, slots=True, kw_only=True)
class EligibleBrokers:
    """The brokers that may lead, and the defaults for topics without configs of their own."""

    active: frozenset[int]
    is_unclean_default: bool = False
    log_dirs: Mapping[int, tuple[bytes, ...]] = field(default_factory=dict)

    def rules(self, image: ClusterImage, topic: str) -> ElectionRules:
        """The rules of the topic with this name."""
        return ElectionRules(
            active=self.active,
            min_isr=min_isr_of(image, topic),
            is_unclean_allowed=_is_unclean_allowed(image, topic, self.is_unclean_default),
            has_elr=level_of(image.features, ELIGIBLE_LEADER_REPLICAS) > 0,
            has_recovery_state=level_of(image.features, METADATA_VERSION) >= REASSIGNMENT_LEVEL,
            log_dirs=self.log_dirs,
        )


def eligible_brokers(
    image: ClusterImage,
    *,
    is_unclean_default: bool = False,
    joining: int | None = None,
    leaving: Iterable[int] = (),
    offline_dirs: frozenset[bytes] = frozenset(),
) -> EligibleBrokers:
    """The brokers that may lead by this image, with `joining` and without `leaving`.

    offline_dirs: directories that have just failed; replicas in them do not count as online.
    """
    active = set(image.active_broker_ids())
    if joining is not None:
        active.add(joining)
    active.difference_update(leaving)
    log_dirs = {b.broker_id: b.log_dirs for b in image.brokers.values() if b.log_dirs}
    if offline_dirs:
        log_dirs = {
            # An empty list would mean that the broker reports no directories: see image.is_online.
            broker_id: tuple(d for d in ids if d not in offline_dirs) or (LOST_DIRECTORY,)
            for broker_id, ids in log_dirs.items()
        }
    return EligibleBrokers(
        active=frozenset(active), is_unclean_default=is_unclean_default, log_dirs=log_dirs
    )


def min_isr_of(image: ClusterImage, topic: str) -> int:
    """min.insync.replicas of a topic; 1, which switches its ELR off, if the image has none."""
    text = image.topic_configs(topic).get(MIN_INSYNC_REPLICAS)
    if text is not None:
        return _minimum(text)
    return _cluster_minimum.of(image)


class _ClusterMinimum:
    """min.insync.replicas of topics without a value of their own. Kept until brokers or configs
    change: with 1,000 brokers it takes a millisecond, and a fencing asks for each topic."""

    def __init__(self) -> None:
        # One value, since the console reads in several threads.
        self._kept: tuple[object, object, int] = (None, None, MIN_ISR_DEFAULT)

    def of(self, image: ClusterImage) -> int:
        configs, brokers, value = self._kept
        if configs is not image.configs or brokers is not image.brokers:
            value = self._made(image)
            self._kept = (image.configs, image.brokers, value)
        return value

    @staticmethod
    def _made(image: ClusterImage) -> int:
        # A broker's own dynamic value overrides the cluster default there. Only the lowest value is
        # one that every leader observes.
        return min(
            _minimum(image.default_config(MIN_INSYNC_REPLICAS)),
            *(
                _minimum(configs[MIN_INSYNC_REPLICAS])
                for broker_id in image.brokers
                if MIN_INSYNC_REPLICAS in (configs := image.broker_configs(broker_id))
            ),
            _MINIMUM_MAX,
        )


_cluster_minimum = _ClusterMinimum()


def _minimum(text: str | None) -> int:
    # Parse as brokers do, which accept " 2" and "+2" too: a leader does not raise its high
    # watermark while its ISR has fewer members than the parsed value.
    number = None if text is None else parse(TOPIC_CONFIGS[MIN_INSYNC_REPLICAS], text)
    return number if isinstance(number, int) else MIN_ISR_DEFAULT


def _is_unclean_allowed(image: ClusterImage, topic: str, default: bool) -> bool:
    text = image.topic_configs(topic).get(UNCLEAN_ELECTION)
    if text is None:
        text = image.default_config(UNCLEAN_ELECTION)
    is_allowed = None if text is None else parse(TOPIC_CONFIGS[UNCLEAN_ELECTION], text)
    return is_allowed if isinstance(is_allowed, bool) else default
