"""group.consumer.migration.policy: the direction in which a group with members may change protocol.
Pure.

An empty group may change its protocol under any policy.
"""

from __future__ import annotations

import enum


class MigrationPolicy(enum.Enum):
    """The policy. The values are Kafka's."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        """True if a classic group is upgraded when its first member of the consumer protocol
        joins."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def allows_downgrade(self) -> bool:
        """True if a group is downgraded when its last member of the consumer protocol leaves."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)

    @property
    def allows_mixed_groups(self) -> bool:
        """True if classic members may join a group that has members of the consumer protocol."""
        return self is not MigrationPolicy.DISABLED


def parse_policy(text: str) -> MigrationPolicy:
    """Parse the policy, in upper or lower case. Raises ValueError."""
    try:
        return MigrationPolicy(text.strip().lower())
    except ValueError:
        names = ", ".join(policy.value for policy in MigrationPolicy)
        raise ValueError(
            f"group.consumer.migration.policy is {text!r}: it is one of {names}"
        ) from None
