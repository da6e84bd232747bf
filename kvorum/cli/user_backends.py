"""The users of a cluster who log in by SCRAM, reached through a broker or a controller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import click

from kvorum.cli.common import bootstrap_of
from kvorum.cli.user_credentials import NewCredential, Users
from kvorum.client.cluster.broker_backend import BrokerBackend
from kvorum.client.failures import check
from kvorum.client.rights import on_cluster
from kvorum.runtime.errors import ErrorCode


class UserBackend(Protocol):
    """The requests of `kvorum users` to a cluster. All raise CommandFailed for a refusal."""

    def users(self, names: Iterable[str] = ()) -> Users:
        """The users with credentials: all of them, or those of the names who have any."""

    def set_credential(self, credential: NewCredential) -> None: ...

    def remove_credential(self, user: str, mechanism: int) -> None: ...

    def super_users(self) -> tuple[str, ...]:
        """The principals of super.users on one broker; none if controllers are asked, which do not
        tell their properties."""


def open_user_backend(
    bootstrap_server: str | None, bootstrap_controller: str | None, timeout_s: float
) -> UserBackend:
    """The backend for these options."""
    kind, addresses = bootstrap_of(bootstrap_server, bootstrap_controller)
    if kind == "controller":
        from kvorum.cli.user_controller import ControllerUsers

        return ControllerUsers(addresses, timeout_s)
    backend = BrokerUsers(addresses, timeout_s)
    context = click.get_current_context(silent=True)
    if context is not None:
        context.call_on_close(backend.close)
    return backend


class BrokerUsers(BrokerBackend):
    """Requests through any broker; works against Apache Kafka as well."""

    def __init__(self, addresses: list[tuple[str, int]], timeout_s: float) -> None:
        super().__init__(addresses, timeout_s)
        self._timeout_s = timeout_s

    def users(self, names: Iterable[str] = ()) -> Users:
        values = {"users": [{"name": name} for name in names] or None}
        reply = self.connection.call(
            "describe_user_scram_credentials", 50, 0, values, flexible=True
        )
        check(reply.error_code, reply.error_message, "users", on_cluster("DESCRIBE"))
        self._warn_without_leader()
        found = {}
        for result in reply.results:
            if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
                continue
            check(result.error_code, result.error_message, f"user {result.user}")
            found[result.user] = {
                info.mechanism: int(info.iterations) for info in result.credential_infos
            }
        return found

    def set_credential(self, credential: NewCredential) -> None:
        upsertion = {
            "name": credential.user,
            "mechanism": credential.mechanism,
            "iterations": credential.iterations,
            "salt": credential.salt,
            "salted_password": credential.salted_password,
        }
        self._alter({"deletions": [], "upsertions": [upsertion]})

    def remove_credential(self, user: str, mechanism: int) -> None:
        self._alter({"deletions": [{"name": user, "mechanism": mechanism}], "upsertions": []})

    def super_users(self) -> tuple[str, ...]:
        from kvorum.client.configs.broker_configs import BrokerConfigs

        live = [row for row in self.brokers() if not row["is_fenced"]]
        # One that the command was given, if possible: its address is known to be right.
        live.sort(key=lambda row: (row["host"], row["port"]) not in self.addresses)
        configs = BrokerConfigs(self.addresses, self._timeout_s)
        try:
            rows = [
                row
                for each in live[:1]
                for row in configs.describe_configs("broker", str(each["broker_id"]), is_all=True)
            ]
        finally:
            configs.close()
        # Apache Kafka does not show the value.
        found = next((row["value"] for row in rows if row["name"] == "super.users"), None)
        return tuple(filter(None, (part.strip() for part in (found or "").split(";"))))

    def _alter(self, values: Mapping[str, object]) -> None:
        reply = self.connection.call("alter_user_scram_credentials", 51, 0, values, flexible=True)
        for result in reply.results:
            subject = f"user {result.user}"
            check(result.error_code, result.error_message, subject, on_cluster("ALTER"))
