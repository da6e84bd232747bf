"""The coordinator's settings, as Kafka names and defaults them (4.1.0)."""

from __future__ import annotations

from dataclasses import dataclass

PARTITIONS_PER_TRANSACTION_MAX = 20_000
"""Partitions of one transaction. Ours: all of them stand in each record of the transaction, which
must stay below the largest message."""

PARK_MS = 200
"""How long a producer that wants to go on waits here for the markers of its last transaction. Ours:
Apache Kafka answers CONCURRENT_TRANSACTIONS at once, and clients come again after 20 to 100 ms,
while the markers take a few."""

PARKED_MAX = 8
"""Requests of one transactional id that wait so; more are answered at once."""

TRANSACTIONAL_ID_BYTES_MAX = 32_767
"""The key of a record has the id with an int16 length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Times in ms. Meanings: docs/configs.md."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
