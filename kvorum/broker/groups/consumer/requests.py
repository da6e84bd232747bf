"""The requests to a shard about groups of the consumer protocol, and their answers. Pure data.

As in `broker.groups.steps.requests`; a refusal with a message is a `Rejected`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from kvorum.broker.groups.consumer.member import ConsumerMember, Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """-> ConsumerHeartbeated or Rejected. None (-1 for the timeout): unchanged since it was last
        sent.

    subscribed_topic_regex: "" ends a subscription by expression.
    owned: the partitions that the member reads now.
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
        """True if the request has all fields; the answer then has the whole assignment."""
        has_subscription = (
            self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None
        )
        has_all = self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None
        return self.member_epoch == 0 or has_all


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeated:
    """assignment: all partitions that the member may use from now on; None if unchanged."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Partitions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConsumerGroup:
    """-> ConsumerGroupDescription; Rejected if there is no such group or it is a classic one."""

    needs_replicas: ClassVar[bool] = False
    group_id: str


class DescribedMember(NamedTuple):
    """target: the member's target; its assignment is in `member`."""

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
