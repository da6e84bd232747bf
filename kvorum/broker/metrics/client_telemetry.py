"""The metrics that each client is asked to push, and the check of each push (KIP-714). Pure.

A client instance is identified by its id. Its subscription follows from the subscriptions in the
metadata, so every broker answers with the same subscription id. Rules and codes are Apache Kafka's;
`client_metrics_page` keeps the pushed values.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kvorum.metadata.configs.client_metrics_keys import (
    CLIENT_METRICS_CONFIGS,
    INTERVAL,
    INTERVAL_MS_DEFAULT,
    MATCH,
    METRICS,
    pattern_of,
)
from kvorum.metadata.configs.model import list_items, parse
from kvorum.metadata.image.image import RESOURCE_CLIENT_METRICS
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.ids import UUID_ZERO, uuid_text
from kvorum.storage.format.compression import Codec

INSTANCES_MAX = 16_384
"""As in Kafka; the instance that was heard of longest ago is forgotten first."""
EXPIRY_MS_MIN = 60_000
"""An instance is forgotten after three of its intervals without a request, but no sooner than
this."""
TELEMETRY_BYTES_MAX = 1 << 20
"""Kafka's telemetry.max.bytes: limit of one push, compressed and uncompressed."""
COMPRESSION_TYPES = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""The codecs that clients are offered, the preferred one first."""
ALL_METRICS = "*"

_RESERVED = (UUID_ZERO, bytes(15) + b"\x01")

Configs = Mapping[tuple[int, str], Mapping[str, str]]


class ClientFacts(NamedTuple):
    """The facts by which a subscription may match a client. All are text."""

    client_id: str
    software_name: str
    software_version: str
    source_address: str
    source_port: str


class _Subscription(NamedTuple):
    metrics: tuple[str, ...]
    interval_ms: int
    patterns: tuple[tuple[str, Any], ...]


@dataclass(slots=True, kw_only=True)
class Instance:
    """One client instance.

    metrics: prefixes of the names it is to push.
    subscription_id: identifies metrics and interval. last_*_ms: -1 for never.
    """

    instance_id: bytes
    facts: ClientFacts
    configs: Configs = field(repr=False)
    metrics: tuple[str, ...] = ()
    interval_ms: int = INTERVAL_MS_DEFAULT
    subscription_id: int = 0
    last_get_ms: int = -1
    last_push_ms: int = -1
    last_heard_ms: int = 0
    last_error: ErrorCode = ErrorCode.NONE
    is_terminating: bool = False


class ClientTelemetry:
    """The client instances that this broker has heard of."""

    def __init__(self) -> None:
        self._instances: OrderedDict[bytes, Instance] = OrderedDict()
        self._configs: Configs | None = None
        self._subscriptions: list[_Subscription] = []

    def is_wanted(self, configs: Configs) -> bool:
        """True if there is any subscription."""
        return bool(self._current(configs))

    def ask(
        self, instance_id: bytes, facts: ClientFacts, configs: Configs, now_ms: int
    ) -> Instance | ErrorCode:
        """Handle GetTelemetrySubscriptions: returns the instance with its subscription, or the
        error."""
        instance = self._instance(instance_id, facts, configs, now_ms)
        last_ms = max(instance.last_get_ms, instance.last_push_ms)
        may_ask_early = instance.last_error in (
            ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )
        if last_ms >= 0 and now_ms - last_ms < instance.interval_ms:
            if not may_ask_early:
                return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        else:
            instance.last_get_ms = now_ms
        instance.last_error = ErrorCode.NONE
        return instance

    def push(
        self, instance_id: bytes, facts: ClientFacts, configs: Configs, request: Any, now_ms: int
    ) -> Instance | ErrorCode:
        """Handle PushTelemetry: returns the instance if its push is accepted, or the error."""
        if instance_id in _RESERVED:
            return ErrorCode.INVALID_REQUEST
        instance = self._instance(instance_id, facts, configs, now_ms)
        instance.last_error = _push_refusal(instance, request, now_ms)
        instance.is_terminating = request.terminating
        return instance if instance.last_error == ErrorCode.NONE else instance.last_error

    def is_known(self, instance_id: bytes, now_ms: int) -> bool:
        """True if the instance sent a request within its last three intervals."""
        instance = self._instances.get(instance_id)
        if instance is None:
            return False
        return now_ms - instance.last_heard_ms < max(EXPIRY_MS_MIN, 3 * instance.interval_ms)

    def _instance(
        self, instance_id: bytes, facts: ClientFacts, configs: Configs, now_ms: int
    ) -> Instance:
        instance = self._instances.get(instance_id)
        # Compare by identity: images share the map while no config changes.
        if instance is None or instance.configs is not configs:
            instance = self._made(instance, instance_id, facts, configs)
            self._instances[instance_id] = instance
        instance.last_heard_ms = now_ms
        self._instances.move_to_end(instance_id)
        if len(self._instances) > INSTANCES_MAX:
            self._instances.popitem(last=False)
        return instance

    def _made(
        self, before: Instance | None, instance_id: bytes, facts: ClientFacts, configs: Configs
    ) -> Instance:
        """The instance under these configs; the same object if its subscription has not changed."""
        metrics: dict[str, None] = {}
        interval_ms = INTERVAL_MS_DEFAULT
        selectors = {
            "client_instance_id": uuid_text(instance_id),
            "client_id": facts.client_id,
            "client_software_name": facts.software_name,
            "client_software_version": facts.software_version,
            "client_source_address": facts.source_address,
            "client_source_port": facts.source_port,
        }
        for subscription in self._current(configs):
            if all(regex.fullmatch(selectors[name]) for name, regex in subscription.patterns):
                metrics |= dict.fromkeys(subscription.metrics)
                interval_ms = min(interval_ms, subscription.interval_ms)
        names = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
        text = "\0".join((*names, str(interval_ms))).encode() + instance_id
        subscription_id = zlib.crc32(text) & 0x7FFF_FFFF
        if before is not None and before.subscription_id == subscription_id:
            before.configs = configs
            return before
        return Instance(
            instance_id=instance_id,
            facts=facts,
            configs=configs,
            metrics=names,
            interval_ms=interval_ms,
            subscription_id=subscription_id,
        )

    def _current(self, configs: Configs) -> list[_Subscription]:
        if self._configs is not configs:
            self._configs = configs
            self._subscriptions = [
                subscription
                for (kind, _), values in configs.items()
                if kind == RESOURCE_CLIENT_METRICS
                and (subscription := _subscription(values)) is not None
            ]
        return self._subscriptions


def _subscription(values: Mapping[str, str]) -> _Subscription | None:
    """The subscription of these configs; None if this version cannot parse them (a newer one may
    have set them)."""
    interval = parse(CLIENT_METRICS_CONFIGS[INTERVAL], values.get(INTERVAL, ""))
    try:
        patterns = tuple(pattern_of(item) for item in list_items(values.get(MATCH, "")))
    except ValueError:
        return None
    return _Subscription(
        metrics=tuple(list_items(values.get(METRICS, ""))),
        interval_ms=interval if isinstance(interval, int) else INTERVAL_MS_DEFAULT,
        patterns=patterns,
    )


def _push_refusal(instance: Instance, request: Any, now_ms: int) -> ErrorCode:
    if instance.is_terminating:
        return ErrorCode.INVALID_REQUEST
    # The first push after GetTelemetrySubscriptions may arrive at any time: clients spread theirs.
    is_due = (
        instance.last_push_ms < 0
        or instance.last_get_ms > instance.last_push_ms
        or now_ms - instance.last_push_ms >= instance.interval_ms
    )
    if is_due:
        instance.last_push_ms = now_ms
    elif not request.terminating:
        return ErrorCode.THROTTLING_QUOTA_EXCEEDED
    if request.subscription_id != instance.subscription_id:
        return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    if request.compression_type not in tuple(Codec):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if len(request.metrics or b"") > TELEMETRY_BYTES_MAX:
        return ErrorCode.TELEMETRY_TOO_LARGE
    return ErrorCode.NONE
