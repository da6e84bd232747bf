"""Limits on connections: how many, and how many new ones a second. Pure.

Of an address they are max.connections.per.ip with its overrides, and the quota
connection_creation_rate (KIP-612). A new connection above either limit is closed at once, without a
byte. Kafka instead delays a connection above the rate, and so holds a socket for each. Of all
addresses it is max.connection.creation.rate, above which nothing is accepted for a while.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvorum.broker.quotas.client_quotas import RateWindow
from kvorum.metadata.configs.model import INT32_MAX
from kvorum.metadata.configs.quotas import IP
from kvorum.metadata.image.records import QuotaEntity
from kvorum.runtime.text import whole_number

CREATION_RATE = "connection_creation_rate"
ADDRESSES_KEPT_MAX = 10_000


class ConnectionLimits:
    """Open connections and their recent rate, by address. overrides: connection limit by
    address."""

    def __init__(
        self, overrides: Mapping[str, int], *, samples_max: int = 11, sample_ms: int = 1_000
    ) -> None:
        self._overrides = dict(overrides)
        self._samples_max = samples_max
        self._sample_ms = sample_ms
        self._open: dict[str, int] = {}
        self._rates: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self._windows: dict[str, RateWindow] = {}
        self._of_all = RateWindow(samples_max, sample_ms)

    def set_overrides(self, overrides: Mapping[str, int]) -> None:
        """Adopt other limits of single addresses. Connections above one of them stay."""
        self._overrides = dict(overrides)

    def update(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Adopt the client quotas of the metadata. Connections made before still count."""
        self._rates = quotas

    def refusal(self, address: str, per_address_max: int, now_ms: int) -> str | None:
        """The reason to refuse a new connection of `address`; None counts the connection as open.

        per_address_max: limit of an address without an override.
        """
        limit = self._overrides.get(address, per_address_max)
        if self._open.get(address, 0) >= limit:
            return f"{address} has {limit} connections already"
        rate = self._rate_of(address)
        if rate is not None and not self._has_room(address, rate, now_ms):
            return f"{address} makes more than {rate:g} connections a second"
        self._open[address] = self._open.get(address, 0) + 1
        return None

    def are_too_fast(self, rate_max: int, now_ms: int) -> bool:
        """True if `rate_max` connections a second or more were accepted lately."""
        return rate_max < INT32_MAX and self._of_all.rate(now_ms) >= rate_max

    def accepted(self, now_ms: int) -> None:
        """Count a new connection of any address."""
        self._of_all.record(1.0, now_ms)

    def closed(self, address: str) -> None:
        """Count an admitted connection of `address` as ended."""
        left = self._open[address] - 1
        if left:
            self._open[address] = left
        else:
            del self._open[address]

    def _rate_of(self, address: str) -> float | None:
        for name in (address, None):
            rate = self._rates.get(((IP, name),), {}).get(CREATION_RATE)
            if rate is not None:
                return rate
        return None

    def _has_room(self, address: str, rate: float, now_ms: int) -> bool:
        window = self._windows.get(address)
        if window is None:
            if len(self._windows) >= ADDRESSES_KEPT_MAX:
                for known in [a for a, w in self._windows.items() if w.is_empty(now_ms)]:
                    del self._windows[known]
            window = self._windows[address] = RateWindow(self._samples_max, self._sample_ms)
        if window.rate(now_ms) >= rate:
            return False
        window.record(1.0, now_ms)
        return True


def parse_overrides(text: str) -> dict[str, int]:
    """Parse max.connections.per.ip.overrides, `address:count,address:count`. Raises ValueError."""
    overrides = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        address, _, digits = part.rpartition(":")
        count = whole_number(digits)
        if not address or count is None:
            raise ValueError(f"{part!r} is not address:count")
        overrides[address.strip("[]")] = count
    return overrides
