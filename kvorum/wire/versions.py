"""The table of the APIs and versions that a listener serves.

Each file in `kvorum/broker/api` declares its `Api`, and `registry` builds the table from the
declarations. ApiVersions, the header parser and the dispatcher all read it. So the advertised
versions differ from the served ones only where a declaration says so (`advertised_min_version`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvorum.runtime.errors import invariant

_NO_VERSION = 1 << 15
"""Larger than any int16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The versions of one API that its file serves.

    key: Kafka's number.
    name: kio's schema folder (`list_offsets`).
    min_version, max_version: served, inclusive.
    first_flexible: first version with tagged fields and request header v2.
    advertised_min_version: given in ApiVersions if it must differ (0 for Produce: otherwise
        librdkafka turns compression off).
    inter_broker_min_version: from this version on only brokers send it, so no client quota applies.
    needs_controller: clients send the request to the broker that they take for the controller; the
        broker forwards it.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    first_flexible: int
    advertised_min_version: int | None = None
    inter_broker_min_version: int = _NO_VERSION
    needs_controller: bool = False


class ServedVersions:
    """The declarations by API key."""

    def __init__(self, apis: Iterable[Api]) -> None:
        self._by_key: dict[int, Api] = {}
        for api in apis:
            invariant(api.key not in self._by_key, f"API key {api.key} is declared twice")
            self._by_key[api.key] = api

    def get(self, key: int) -> Api | None:
        return self._by_key.get(key)

    def name_of(self, key: int) -> str:
        """The name of an API that is served."""
        return self._by_key[key].name

    def is_served(self, key: int, version: int) -> bool:
        api = self._by_key.get(key)
        return api is not None and api.min_version <= version <= api.max_version

    def is_flexible(self, key: int, version: int) -> bool:
        """True if a request of this API and version has header v2; False for unknown keys."""
        api = self._by_key.get(key)
        return api is not None and version >= api.first_flexible

    def advertised(self) -> list[tuple[int, int, int]]:
        """(key, min version, max version) for ApiVersions, by ascending key."""
        rows = []
        for key, api in sorted(self._by_key.items()):
            least = api.advertised_min_version
            rows.append((key, api.min_version if least is None else least, api.max_version))
        return rows
