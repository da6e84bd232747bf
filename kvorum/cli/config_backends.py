"""Configs and quotas of a cluster, reached through a broker or a controller.

Both give the same rows. A controller knows the values in the metadata but no broker's file, so
`--all` needs a broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import click

from kvorum.cli.common import bootstrap_of
from kvorum.client.configs.broker_configs import BrokerConfigs
from kvorum.client.configs.config_rows import Change
from kvorum.client.failures import Row
from kvorum.metadata.image.records import QuotaEntity


class ConfigBackend(Protocol):
    """The requests of `kvorum configs` to a cluster."""

    def describe_configs(self, kind: str, name: str | None, *, is_all: bool) -> list[Row]:
        """kind: topic or broker. name: None for all of them, "" for the default of all brokers."""

    def alter_configs(
        self, kind: str, name: str, changes: Sequence[Change], *, dry_run: bool
    ) -> str:
        """Returns the entity as text. Raises CommandFailed for a refused change."""

    def describe_quotas(self, entity: QuotaEntity, types: Sequence[str]) -> list[Row]:
        """Quotas of one entity; if entity is empty, of all entities that have a part of each of the
        types."""

    def alter_quotas(
        self, entity: QuotaEntity, quotas: Sequence[tuple[str, float | None]], *, dry_run: bool
    ) -> str:
        """Returns the entity as text. Raises CommandFailed for a refused change."""


def open_config_backend(
    bootstrap_server: str | None, bootstrap_controller: str | None, timeout_s: float
) -> ConfigBackend:
    """The backend for these options."""
    kind, addresses = bootstrap_of(bootstrap_server, bootstrap_controller)
    if kind == "controller":
        from kvorum.client.configs.controller_configs import ControllerConfigs

        return ControllerConfigs(addresses, timeout_s)
    backend = BrokerConfigs(addresses, timeout_s)
    context = click.get_current_context(silent=True)
    if context is not None:
        context.call_on_close(backend.close)
    return backend
