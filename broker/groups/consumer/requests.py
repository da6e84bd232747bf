"""What is asked of a shard about groups of the consumer protocol, and its answers. Pure data.

As in `broker.groups.requests`; a refusal that has a sentence comes as `Rejected`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from kvorum.broker.groups.consumer.member import ConsumerMember, Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """-> ConsumerHeartbeated or Rejected. None (-1 for the time-out): as it was last said.

    subscribed_topic_regex: "" for none from now on. owned: what it may read now.
    """

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None

    @property
    def is_full(self) -> bool:
        """It says everything anew, so it is told everything anew."""
        has_subscription = (
            self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None
        )
        has_all = self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None
        return self.member_epoch == 0 or has_all


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeated:
    """assignment: all that it may use from now on; None: as it was told before."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Partitions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConsumerGroup:
    """-> ConsumerGroupDescription, or Rejected: not there, or of another kind."""

    needs_replicas: ClassVar[bool] = False
    group_id: str


class DescribedMember(NamedTuple):
    """target: what it is to have; what it has is in the member."""

    member: ConsumerMember
    target: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescription:
    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[DescribedMember, ...]
