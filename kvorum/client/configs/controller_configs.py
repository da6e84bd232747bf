"""Configs and quotas of a cluster, reached through a controller (gRPC)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvorum.client.cluster.controller_backend import ControllerBackend
from kvorum.client.config_hints import with_hint
from kvorum.client.configs.config_rows import (
    BROKER_LOGGER,
    GROUP,
    Change,
    alteration,
    config_row,
    filter_of,
    label,
    quota_alteration,
    quota_rows,
)
from kvorum.client.failures import EXIT_USAGE, CommandFailed, Row, check, no_topic
from kvorum.metadata.configs.config_keys import TOPIC_CONFIGS, broker_key
from kvorum.metadata.configs.effective import CLUSTER_DEFAULT, broker_configs
from kvorum.metadata.configs.effective import ConfigSource as Source
from kvorum.metadata.configs.group_keys import GROUP_CONFIGS
from kvorum.metadata.configs.loggers import SOURCE as LOGGER_SOURCE
from kvorum.metadata.configs.model import is_hidden
from kvorum.metadata.configs.quotas import entity_text, filter_problem, matching
from kvorum.metadata.image.image import RESOURCE_GROUP, ClusterImage
from kvorum.metadata.image.records import QuotaEntity
from kvorum.metadata.rpc.calls import ALTER_CLIENT_QUOTAS, ALTER_CONFIGS


class ControllerConfigs(ControllerBackend):
    """Configs and quotas through the controllers. The active one gets changes and reads; without
    one, the reachable controller with the highest high watermark answers reads, and stderr says so.
    Loggers are those of one controller, which is asked itself."""

    def describe_configs(self, kind: str, name: str | None, *, is_all: bool) -> list[Row]:
        if kind == BROKER_LOGGER:
            ids = sorted(self.client.describe_all()) if name is None else [_controller_id(name)]
            return [row for node_id in ids for row in self._logger_rows(node_id)]
        if is_all:
            raise CommandFailed(
                "--all shows what brokers read from their files, which no controller knows; "
                "ask a broker with --bootstrap-server"
            )
        image = self._image()
        if name is not None:
            return _rows(image, kind, name)
        names = sorted(image.topic_ids)
        if kind == GROUP:
            names = sorted(each for number, each in image.configs if number == RESOURCE_GROUP)
        if kind == "broker":
            names = ["", *(str(broker_id) for broker_id in sorted(image.brokers))]
        return [row for each in names for row in _rows(image, kind, each)]

    def alter_configs(
        self, kind: str, name: str, changes: Sequence[Change], *, dry_run: bool
    ) -> str:
        request = alteration(kind, name, changes, dry_run=dry_run)
        if kind == BROKER_LOGGER:
            operations = request.resources[0].operations
            refused = self.client.alter_loggers(_controller_id(name), operations, dry_run=dry_run)
            if refused is not None:
                check(refused.code, refused.message, label(kind, name))
            return label(kind, name)
        for result in self.request(ALTER_CONFIGS, request, label(kind, name)):
            check(result.error, with_hint(result.message), label(kind, name))
        return label(kind, name)

    def describe_quotas(self, entity: QuotaEntity, types: Sequence[str]) -> list[Row]:
        components = filter_of(entity, types)
        refused = filter_problem(components)
        if refused is not None:
            check(refused.code, refused.message, "client quotas")
        found = matching(self._image(), components, is_strict=bool(entity))
        return [row for each, quotas in found for row in quota_rows(each, quotas)]

    def alter_quotas(
        self, entity: QuotaEntity, quotas: Sequence[tuple[str, float | None]], *, dry_run: bool
    ) -> str:
        request = quota_alteration(entity, quotas, dry_run=dry_run)
        for result in self.request(ALTER_CLIENT_QUOTAS, request, entity_text(entity)):
            check(result.error, result.message, entity_text(entity))
        return entity_text(entity)

    def _logger_rows(self, node_id: int) -> list[Row]:
        return [
            config_row(BROKER_LOGGER, str(node_id), logger, level, LOGGER_SOURCE)
            for logger, level in self.client.describe_loggers(node_id)
        ]


def _controller_id(name: str) -> int:
    if not name.isdigit():
        raise CommandFailed(
            f"{name!r} is no controller's id; for a broker's loggers give --bootstrap-server",
            EXIT_USAGE,
        )
    return int(name)


def _rows(image: ClusterImage, kind: str, name: str) -> list[Row]:
    """The values in the metadata: a broker's own values before those of the default of all
    brokers."""
    levels: list[tuple[Mapping[str, str], Source]] = []
    if kind == "topic":
        if image.topic(name) is None:
            raise no_topic(name)
        levels.append((image.topic_configs(name), Source.DYNAMIC_TOPIC))
    elif kind == GROUP:
        levels.append((image.configs.get((RESOURCE_GROUP, name), {}), Source.GROUP))
    else:
        if name and not (name.isdigit() and int(name) in image.brokers):
            raise CommandFailed(f"broker {name} is not registered")
        if name:
            levels.append((broker_configs(image, name), Source.DYNAMIC_BROKER))
        levels.append((broker_configs(image, CLUSTER_DEFAULT), Source.DYNAMIC_DEFAULT_BROKER))
    key_of = {"topic": TOPIC_CONFIGS.get, GROUP: GROUP_CONFIGS.get}.get(kind, broker_key)
    rows = []
    for key in sorted({key for level, _ in levels for key in level}):
        known = key_of(key)
        is_sensitive = is_hidden(known)
        synonyms = [
            (key, None if is_sensitive else level[key], source)
            for level, source in levels
            if key in level
        ]
        value = synonyms[0][1]
        if value is not None and known is not None:
            value = known.canonical(value)  # as a broker shows it
        rows.append(
            config_row(
                kind,
                name,
                key,
                value,
                synonyms[0][2],
                type_number=0 if known is None else known.type,
                is_sensitive=is_sensitive,
                synonyms=synonyms,
            )
        )
    return rows
