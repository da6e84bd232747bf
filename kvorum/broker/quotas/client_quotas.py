"""Client quotas: the pause of a client for what it has just used. Pure.

The rules are Kafka's (KIP-13, KIP-124, KIP-219, KIP-546). Each quota bounds a rate, measured over
eleven samples of one second. A client above the bound pauses until the mean over those samples is
at the bound again: (observed - bound) / bound * window. The request is served and answered first,
with the pause in ThrottleTimeMs; then the client's connection is not read from during the pause.

A client is a (user, client id). Of the entities that match, the most specific one applies:
user+client, user+any client, user, any user+client, any+any, any user, client, any client. An
entity with <default> gives each client that it matches a limit of its own.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from kvorum.metadata.configs.quotas import CLIENT_ID, USER
from kvorum.metadata.image.records import QuotaEntity

WINDOWS_KEPT_MAX = 10_000
"""Above this number, the windows of clients that used nothing within a window are dropped."""
UNLIMITED_BYTES = (1 << 63) - 1
PAUSE_MS_MAX = (1 << 31) - 1
"""Largest ThrottleTimeMs, an INT32. A quota may be as small as a float can be; then the pause is
infinite."""


class QuotaKind(enum.Enum):
    """The kinds of quota, by the quota's name.

    REQUEST: per cent of this broker's one thread.
    MUTATION: partitions, see `broker.quotas.mutation_quota`.
    """

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"


class Limit(NamedTuple):
    """A limit on clients.

    bound: units a second.
    key: the clients with the same key share one window.
    """

    bound: float
    key: tuple[QuotaKind, str | None, str | None]


class RateWindow:
    """The recent use of one client, in samples (Kafka's SampledStat and Rate)."""

    __slots__ = ("_sample_ms", "_samples", "_samples_max")

    def __init__(self, samples_max: int, sample_ms: int) -> None:
        self._samples: deque[list[float]] = deque()
        """[start in ms, units used], oldest first."""
        self._samples_max = samples_max
        self._sample_ms = sample_ms

    def record(self, amount: float, now_ms: int) -> None:
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._sample_ms:
            samples.append([now_ms, 0.0])
        samples[-1][1] += amount
        self._drop_old(now_ms)

    def is_empty(self, now_ms: int) -> bool:
        """True if no sample of the window counts any more."""
        self._drop_old(now_ms)
        return not self._samples

    def rate(self, now_ms: int) -> float:
        """Units a second."""
        self._drop_old(now_ms)
        used = sum(amount for _, amount in self._samples)
        return used * 1000 / self.width_ms(now_ms)

    def width_ms(self, now_ms: int) -> int:
        """The time that the rate covers: at least all samples but one, so that a client's first
        second does not count as its mean."""
        full_min_ms = (self._samples_max - 1) * self._sample_ms
        if not self._samples:
            return full_min_ms
        elapsed_ms = now_ms - int(self._samples[0][0])
        missing = self._samples_max - 1 - elapsed_ms // self._sample_ms
        return elapsed_ms + max(missing, 0) * self._sample_ms

    def _drop_old(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._samples_max * self._sample_ms
        samples = self._samples
        while samples and samples[0][0] <= oldest_ms:
            samples.popleft()


class ClientQuotas:
    """The quotas of the cluster, and what this broker's clients have used of them.

    is_active: a quota of a user or client is set; otherwise nothing is recorded.
    """

    def __init__(self, *, samples_max: int = 11, sample_ms: int = 1_000) -> None:
        self._samples_max = samples_max
        self._sample_ms = sample_ms
        self._quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self._limits: dict[tuple[QuotaKind, str, str], Limit | None] = {}
        self._windows: dict[tuple[QuotaKind, str | None, str | None], RateWindow] = {}
        self.is_active = False
        self.binds_requests = False
        self.binds_mutations = False

    def update(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Adopt the client quotas of the metadata. Past use still counts."""
        if quotas is self._quotas:
            return
        self._quotas = quotas
        self._limits.clear()
        bound = {key for of_entity in quotas.values() for key in of_entity}
        self.is_active = any(kind.value in bound for kind in QuotaKind)
        self.binds_requests = QuotaKind.REQUEST.value in bound
        self.binds_mutations = QuotaKind.MUTATION.value in bound
        if not self.is_active:
            self._windows.clear()

    def throttle_ms(
        self, kind: QuotaKind, user: str, client_id: str | None, amount: float, now_ms: int
    ) -> int:
        """Count `amount` for the client; returns its pause in ms, 0 for none."""
        limit = self.limit(kind, user, client_id)
        if limit is None:
            return 0
        window = self._windows.get(limit.key)
        if window is None:
            self._make_room(now_ms)
            window = self._windows[limit.key] = RateWindow(self._samples_max, self._sample_ms)
        window.record(amount, now_ms)
        rate = window.rate(now_ms)
        if rate <= limit.bound:
            return 0
        pause_ms = bounded_ms((rate - limit.bound) / limit.bound * window.width_ms(now_ms))
        # KIP-124: one request may use more than a client's share of many windows. A client that is
        # not read from for that long would lose its session and its place in its group.
        return min(pause_ms, self._sample_ms) if kind is QuotaKind.REQUEST else pause_ms

    def fetch_bytes_max(self, user: str, client_id: str | None) -> int:
        """Bytes that one fetch answer may have: what the quota allows in one window."""
        limit = self.limit(QuotaKind.FETCH, user, client_id)
        if limit is None:
            return UNLIMITED_BYTES
        return int(limit.bound * (self._samples_max - 1) * self._sample_ms / 1000)

    def limit(self, kind: QuotaKind, user: str, client_id: str | None) -> Limit | None:
        """The limit that applies to this client; None if none does."""
        client_id = client_id or ""
        asked = (kind, user, client_id)
        if asked in self._limits:
            return self._limits[asked]
        if len(self._limits) >= WINDOWS_KEPT_MAX:
            self._limits.clear()  # clients choose their ids, so there may be any number of them
        limit = self._limits[asked] = self._find(kind, user, client_id)
        return limit

    def _find(self, kind: QuotaKind, user: str, client_id: str) -> Limit | None:
        for entity, shares in _candidates(user, client_id):
            bound = self._quotas.get(entity, {}).get(kind.value)
            if bound is not None:
                return Limit(bound, (kind, *shares))
        return None

    def _make_room(self, now_ms: int) -> None:
        if len(self._windows) < WINDOWS_KEPT_MAX:
            return
        for key in [key for key, window in self._windows.items() if window.is_empty(now_ms)]:
            del self._windows[key]


def bounded_ms(pause_ms: float) -> int:
    """A pause in whole ms, within what ThrottleTimeMs can hold."""
    return round(min(pause_ms, PAUSE_MS_MAX))


def _candidates(
    user: str, client_id: str
) -> tuple[tuple[QuotaEntity, tuple[str | None, str | None]], ...]:
    """The entities that may apply, most specific first. Each has the (user, client id) that shares
    a window under it."""
    both, user_only, client_only = (user, client_id), (user, None), (None, client_id)
    return (
        (((CLIENT_ID, client_id), (USER, user)), both),
        (((CLIENT_ID, None), (USER, user)), both),
        (((USER, user),), user_only),
        (((CLIENT_ID, client_id), (USER, None)), both),
        (((CLIENT_ID, None), (USER, None)), both),
        (((USER, None),), user_only),
        (((CLIENT_ID, client_id),), client_only),
        (((CLIENT_ID, None),), client_only),
    )
