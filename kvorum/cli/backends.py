"""One cluster, reached through a broker (Kafka protocol) or a controller (gRPC).

Both give the commands the same plain values: dictionaries with the keys that `-o json` prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import click

from kvorum.cli.common import bootstrap_of
from kvorum.client.cluster.broker_backend import BrokerBackend
from kvorum.client.failures import Row

if TYPE_CHECKING:
    from kvorum.client.controllers import BlockingControllerClient


class Backend(Protocol):
    """The requests of the commands to a cluster. The texts of the methods list the keys of the rows
    that they return."""

    def topics(self, names: list[str] | None) -> list[Row]:
        """topic, topic_id, partitions (each partition, leader, leader_epoch, replicas, isr)."""

    def describe_topics(self, names: list[str] | None) -> list[Row]:
        """As `topics`; each partition with elr and last_known_elr (KIP-966) too."""

    def create_topic(
        self,
        name: str,
        partitions: int,
        factor: int,
        configs: dict[str, str],
        *,
        assignment: Sequence[Sequence[int]] = (),
        validate_only: bool = False,
    ) -> Row:
        """assignment: the replicas of each partition, preferred leader first; both counts are then
        -1."""

    def delete_topics(self, names: list[str]) -> list[Row]: ...

    def brokers(self) -> list[Row]: ...

    def min_isr(self, names: Sequence[str]) -> dict[str, int]:
        """min.insync.replicas by topic; without topics that do not exist."""

    def unregister_broker(self, broker_id: int) -> None:
        """Remove a broker's registration. Raises CommandFailed if the cluster refuses."""

    def unregister_controller(self, controller_id: int) -> None:
        """Remove a controller's registration. Raises CommandFailed if the cluster refuses."""

    def features(self) -> list[Row]:
        """feature, min_level, max_level (None both if unknown here), finalized_level."""

    def update_features(self, levels: dict[str, int], kind: int, dry_run: bool) -> list[Row]:
        """feature, level, error, message. Nothing is changed unless all errors are NONE."""

    def quorum(self) -> Row:
        """cluster_id, leader_id, leader_epoch, high_watermark, voters, observers, nodes."""


def open_backend(
    bootstrap_server: str | None, bootstrap_controller: str | None, timeout_s: float
) -> Backend:
    """The backend for these options. Connects at once to a broker, lazily to controllers."""
    kind, addresses = bootstrap_of(bootstrap_server, bootstrap_controller)
    if kind == "controller":
        from kvorum.client.cluster.controller_backend import ControllerBackend

        return ControllerBackend(addresses, timeout_s)
    backend = BrokerBackend(addresses, timeout_s)
    context = click.get_current_context(silent=True)
    if context is not None:
        context.call_on_close(backend.close)
    return backend


def open_controllers(
    bootstrap_server: str | None, bootstrap_controller: str | None, timeout_s: float
) -> BlockingControllerClient:
    """A client of the controllers themselves. If the options name a broker, it is asked for their
    addresses."""
    from kvorum.client.cluster.opening import controllers_of

    return controllers_of(*bootstrap_of(bootstrap_server, bootstrap_controller), timeout_s)
