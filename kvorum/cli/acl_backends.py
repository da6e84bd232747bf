"""The ACLs of a cluster, reached through a broker or a controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import click

from kvorum.cli.acl_broker import BrokerAcls, Outcome
from kvorum.cli.common import bootstrap_of
from kvorum.metadata.image.acl import Acl, AclFilter


class AclBackend(Protocol):
    """The requests of `kvorum acls` to a cluster. All raise CommandFailed if it refuses them."""

    def describe(self, wanted: AclFilter) -> list[Acl]:
        """The ACLs that the filter selects."""

    def create(self, acls: Sequence[Acl]) -> list[Outcome]:
        """An outcome for each ACL, in their order."""

    def delete(self, acls: Sequence[Acl]) -> list[Outcome]:
        """An outcome for each ACL, in their order. One that is gone already counts as deleted."""


def open_acl_backend(
    bootstrap_server: str | None, bootstrap_controller: str | None, timeout_s: float
) -> AclBackend:
    """The backend for these options."""
    kind, addresses = bootstrap_of(bootstrap_server, bootstrap_controller)
    if kind == "controller":
        from kvorum.cli.acl_controller import ControllerAcls

        return ControllerAcls(addresses, timeout_s)
    backend = BrokerAcls(addresses, timeout_s)
    context = click.get_current_context(silent=True)
    if context is not None:
        context.call_on_close(backend.close)
    return backend
