"""Configs and quotas of a cluster, reached through a broker (Kafka protocol)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvorum.client.cluster.broker_backend import BrokerBackend
from kvorum.client.config_hints import with_hint
from kvorum.client.configs.config_rows import (
    BROKER_LOGGER,
    GROUP,
    RESOURCE_TYPES,
    Change,
    alteration,
    config_row,
    filter_of,
    label,
    quota_rows,
)
from kvorum.client.failures import CommandFailed, Row, check
from kvorum.client.rights import Right, on_cluster, on_group, on_topic
from kvorum.metadata.configs.config_keys import is_certificate_key
from kvorum.metadata.configs.cordons import CORDONED_LOG_DIRS
from kvorum.metadata.configs.effective import CLUSTER_DEFAULT
from kvorum.metadata.configs.effective import ConfigSource as Source
from kvorum.metadata.configs.loggers import SOURCE as LOGGER_SOURCE
from kvorum.metadata.configs.quotas import entity_text
from kvorum.metadata.image.records import QuotaEntity
from kvorum.metadata.requests.config_requests import AlterConfigs

_SET_SOURCES: dict[str, tuple[int, ...]] = {
    BROKER_LOGGER: (LOGGER_SOURCE,),
    GROUP: (Source.GROUP,),
    "topic": (Source.DYNAMIC_TOPIC,),
    "broker": (Source.DYNAMIC_BROKER, Source.DYNAMIC_DEFAULT_BROKER),
}


class BrokerConfigs(BrokerBackend):
    """Requests through any broker; for a broker's own configs that broker is asked, as Kafka's
    clients do."""

    def __init__(self, addresses: list[tuple[str, int]], timeout_s: float) -> None:
        super().__init__(addresses, timeout_s)
        self._timeout_s = timeout_s

    def describe_configs(self, kind: str, name: str | None, *, is_all: bool) -> list[Row]:
        rows: list[Row] = []
        for each in self._names(kind) if name is None else [name]:
            rows += self._describe(kind, each, is_all=is_all)
        return rows

    def alter_configs(
        self, kind: str, name: str, changes: Sequence[Change], *, dry_run: bool
    ) -> str:
        request = alteration(kind, name, changes, dry_run=dry_run)
        connection = self._connection_for(kind, name, changes)
        try:
            reply = self._alter(connection, request, dry_run=dry_run)
        finally:
            if connection is not self.connection:
                connection.close()
        for item in reply.responses:
            check(
                item.error_code,
                with_hint(item.error_message),
                label(kind, name),
                _right("ALTER_CONFIGS", kind, name),
            )
        return label(kind, name)

    def _alter(self, connection: Any, request: AlterConfigs, *, dry_run: bool) -> Any:
        return connection.call(
            "incremental_alter_configs",
            44,
            1,
            {
                "resources": [
                    {
                        "resource_type": r.resource_type,
                        "resource_name": r.resource_name,
                        "configs": [
                            {"name": o.name, "config_operation": o.kind, "value": o.value}
                            for o in r.operations
                        ],
                    }
                    for r in request.resources
                ],
                "validate_only": dry_run,
            },
            flexible=True,
        )

    def describe_quotas(self, entity: QuotaEntity, types: Sequence[str]) -> list[Row]:
        reply = self.connection.call(
            "describe_client_quotas",
            48,
            1,
            {
                "components": [
                    {"entity_type": c.entity_type, "match_type": c.match_type, "match": c.match}
                    for c in filter_of(entity, types)
                ],
                "strict": bool(entity),
            },
            flexible=True,
        )
        check(
            reply.error_code, reply.error_message, "client quotas", on_cluster("DESCRIBE_CONFIGS")
        )
        self._warn_without_leader()
        rows: list[Row] = []
        for entry in reply.entries or ():
            found = tuple((part.entity_type, part.entity_name) for part in entry.entity)
            rows += quota_rows(found, {v.key: float(v.value) for v in entry.values})
        return rows

    def alter_quotas(
        self, entity: QuotaEntity, quotas: Sequence[tuple[str, float | None]], *, dry_run: bool
    ) -> str:
        reply = self.connection.call(
            "alter_client_quotas",
            49,
            1,
            {
                "entries": [
                    {
                        "entity": [{"entity_type": t, "entity_name": n} for t, n in entity],
                        "ops": [
                            {"key": key, "value": value or 0.0, "remove": value is None}
                            for key, value in quotas
                        ],
                    }
                ],
                "validate_only": dry_run,
            },
            flexible=True,
        )
        for item in reply.entries:
            check(
                item.error_code,
                item.error_message,
                entity_text(entity),
                on_cluster("ALTER_CONFIGS"),
            )
        return entity_text(entity)

    def _names(self, kind: str) -> list[str]:
        if kind == "topic":
            return [str(row["topic"]) for row in self.topics(None)]
        if kind == GROUP:
            values = {"resource_types": [RESOURCE_TYPES[GROUP]]}
            found = self.connection.call("list_config_resources", 74, 1, values, flexible=True)
            right = on_cluster("DESCRIBE_CONFIGS")
            check(found.error_code, None, "the groups that have configs", right)
            return [str(row.resource_name) for row in found.config_resources]
        live = [str(row["broker_id"]) for row in self.brokers() if not row["is_fenced"]]
        return live if kind == BROKER_LOGGER else ["", *live]

    def _describe(self, kind: str, name: str, *, is_all: bool) -> list[Row]:
        connection = self.connection
        if kind in ("broker", BROKER_LOGGER) and name:
            connection = self._connection_to(name)
        try:
            reply = connection.call(
                "describe_configs",
                32,
                4,
                {
                    "resources": [
                        {
                            "resource_type": RESOURCE_TYPES[kind],
                            "resource_name": name,
                            "configuration_keys": None,
                        }
                    ],
                    "include_synonyms": True,
                    "include_documentation": False,
                },
                flexible=True,
            )
        finally:
            if connection is not self.connection:
                connection.close()
        result = reply.results[0]
        right = _right("DESCRIBE_CONFIGS", kind, name)
        check(result.error_code, result.error_message, label(kind, name), right)
        self._warn_without_leader()
        return [
            config_row(
                kind,
                name,
                c.name,
                c.value,
                c.config_source,
                type_number=c.config_type,
                read_only=c.read_only,
                is_sensitive=c.is_sensitive,
                synonyms=[(s.name, s.value, s.source) for s in c.synonyms],
            )
            for c in sorted(result.configs, key=lambda c: str(c.name))
            if is_all or c.config_source in _SET_SOURCES[kind]
        ]

    def _connection_for(self, kind: str, name: str, changes: Sequence[Change]) -> Any:
        """The connection for a change of these configs. Any broker forwards one of a broker that is
        down, unless only the broker itself can check it."""
        is_broker = kind == "broker" and name != CLUSTER_DEFAULT
        if not is_broker and kind != BROKER_LOGGER:
            return self.connection
        is_own = kind == BROKER_LOGGER or any(_is_checked_by_its_broker(c) for c in changes)
        is_active = any(
            str(row["broker_id"]) == name and not row["is_fenced"] for row in self.brokers()
        )
        if not is_own and not is_active:
            return self.connection
        try:
            return self._connection_to(name)
        except CommandFailed:
            if is_own:
                raise
            return self.connection

    def _connection_to(self, broker_id: str) -> Any:
        from kvorum.client.connection import KafkaConnection

        for row in self.brokers():
            if str(row["broker_id"]) == broker_id:
                try:
                    return KafkaConnection([(row["host"], row["port"])], self._timeout_s)
                except CommandFailed as error:
                    raise CommandFailed(
                        f"{error}; what was set for broker {broker_id} the controllers know too: "
                        "--bootstrap-controller HOST:PORT",
                        error.exit_code,
                    ) from error
        raise CommandFailed(
            f"broker {broker_id} is not registered; for a controller give --bootstrap-controller"
        )


def _is_checked_by_its_broker(change: Change) -> bool:
    """True for the files of certificates and the paths of data directories."""
    operation, key, _ = change
    if key == CORDONED_LOG_DIRS:
        return operation != "delete"
    return operation == "set" and is_certificate_key(key)


def _right(operation: str, kind: str, name: str) -> Right:
    """The right to an operation on configs: those of brokers and loggers are the cluster's."""
    if kind == GROUP:
        return on_group(operation, name)
    return on_topic(operation, name) if kind == "topic" else on_cluster(operation)
