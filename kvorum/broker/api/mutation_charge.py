"""The charge against `mutation_quota` for a request that creates or deletes partitions."""

from __future__ import annotations

from collections.abc import Hashable

from kvorum.broker.api.context import RequestContext
from kvorum.runtime.errors import ErrorCode, Rejected


class MutationCharge:
    """The charge of one request. Call `take` for each item, `give_back` for items that failed, then
    `close`.

    strict_version: first version of the API whose clients know THROTTLING_QUOTA_EXCEEDED.
    """

    def __init__(self, context: RequestContext, strict_version: int) -> None:
        self._context = context
        self._buckets = context.services.mutations
        self._limit = self._buckets.limit(context.user, context.client_id)
        self._is_strict = context.api_version >= strict_version
        self._taken: dict[Hashable, int] = {}
        self._has_refused = False

    def take(self, item: Hashable, partitions: int) -> Rejected | None:
        """Charge an item for `partitions` partitions; Rejected if the client must wait."""
        if self._limit is None or not partitions:
            return None
        now_ms = self._now_ms()
        owed_ms = self._buckets.owed_ms(self._limit, now_ms)
        if owed_ms and self._is_strict:
            self._has_refused = True
            return Rejected(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"client {self._context.client_id or ''!r} has made and deleted more than "
                f"controller_mutation_rate={self._limit.bound:g} partitions a second: ask again "
                f"in {owed_ms} ms",
            )
        self._buckets.take(self._limit, partitions, now_ms)
        self._taken[item] = partitions
        return None

    def give_back(self, item: Hashable) -> None:
        """Return an item's tokens, since the controller refused it; nothing happens if it was not
        charged."""
        if self._limit is not None:
            self._buckets.take(self._limit, -self._taken.get(item, 0), self._now_ms())

    def close(self) -> None:
        """Pause the client for the tokens that it owes; the answer has the pause (KIP-219).

        A client that knows the error and was served is not paused: it gets the error with its next
        mutation, and may send other requests until then.
        """
        if self._limit is not None and (self._has_refused or not self._is_strict):
            owed_ms = self._buckets.owed_ms(self._limit, self._now_ms())
            self._context.slot.connection.mute(owed_ms)

    def _now_ms(self) -> int:
        return self._context.services.replicas.now_ms()
