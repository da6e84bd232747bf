"""A coordinator's settings are the broker's of the same name, with the same defaults."""

from __future__ import annotations

from dataclasses import fields

import pytest

from kvorum.broker.config.broker_config import BrokerConfig, part_of
from kvorum.broker.groups.consumer.assignors import parse_assignors
from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.broker.groups.steps.migration_policy import MigrationPolicy
from kvorum.broker.transactions.core.config import TransactionConfig


@pytest.mark.parametrize(
    ("part", "given"),
    [
        (
            GroupConfig,
            {
                "group_consumer_assignors": parse_assignors(
                    BrokerConfig().group_consumer_assignors
                ),
                "group_consumer_migration_policy": MigrationPolicy.BIDIRECTIONAL,
            },
        ),
        (TransactionConfig, {}),
    ],
)
def test_a_part_of_the_defaults_is_the_parts_own_defaults(part, given):
    assert part_of(BrokerConfig(), part, **given) == part()


def test_a_setting_of_the_broker_reaches_its_part():
    config = BrokerConfig(**{field.name: 7 for field in fields(TransactionConfig)})
    assert part_of(config, TransactionConfig) == TransactionConfig(
        **{field.name: 7 for field in fields(TransactionConfig)}
    )
