"""group.consumer.migration.policy: which way a group with members may change its kind. Pure.

An empty group becomes one of the other kind whatever the policy says.
"""

from __future__ import annotations

import enum


class MigrationPolicy(enum.Enum):
    """Values: Kafka's."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        """A classic group becomes one of the consumer protocol with the first such member."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def allows_downgrade(self) -> bool:
        """A group becomes a classic one when its last member of the consumer protocol goes."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)

    @property
    def allows_mixed_groups(self) -> bool:
        """Classic members join a group that has members of the consumer protocol."""
        return self is not MigrationPolicy.DISABLED


def parse_policy(text: str) -> MigrationPolicy:
    """In any case of letters. Raises ValueError."""
    try:
        return MigrationPolicy(text.strip().lower())
    except ValueError:
        names = ", ".join(policy.value for policy in MigrationPolicy)
        raise ValueError(
            f"group.consumer.migration.policy is {text!r}: it is one of {names}"
        ) from None
