"""Configs of the transaction coordinator, with Kafka's names and defaults (4.1.0)."""

from __future__ import annotations

from dataclasses import dataclass

PARTITIONS_PER_TRANSACTION_MAX = 20_000
"""Limit of one transaction's partitions. Kvorum's own: each record of the transaction lists all of
them, and must be smaller than the largest message."""

PARK_MS = 200
"""Time that a producer's next request waits here for the markers of its last transaction. Kvorum's
own: Apache Kafka answers CONCURRENT_TRANSACTIONS at once, and clients retry after 20 to 100 ms,
while the markers take a few ms."""

PARKED_MAX = 8
"""Limit of one transactional id's requests that wait this way; further ones are answered at
once."""

TRANSACTIONAL_ID_BYTES_MAX = 32_767
"""The id has an int16 length in the key of its record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Configs of one shard. Times in ms; for their meanings see docs/configs.md."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
