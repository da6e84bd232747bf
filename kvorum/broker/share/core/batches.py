"""The batches of a read, as members of a share group may have them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from kvorum.broker.share.core.states import FetchedBatch
from kvorum.storage.files.transaction_index import AbortedTransaction
from kvorum.storage.format.batch import BatchHeader


def fetched_batches(
    headers: Iterable[tuple[int, BatchHeader]], aborted: Iterable[AbortedTransaction] | None
) -> list[FetchedBatch]:
    """The batches of a read, in order. aborted: the aborted transactions in it, None if members
    read uncommitted records too.

    A marker is for nobody. Nor is a batch of an aborted transaction, for groups that read committed
    records only.
    """
    by_producer: dict[int, list[AbortedTransaction]] = {}
    for entry in aborted or ():
        by_producer.setdefault(entry.producer_id, []).append(entry)
    rows = []
    for _, header in headers:
        is_dropped = header.is_control
        if header.is_transactional and not is_dropped and by_producer:
            is_dropped = any(
                entry.first_offset <= header.base_offset <= entry.last_offset
                for entry in by_producer.get(header.producer_id, ())
            )
        rows.append(FetchedBatch(header.base_offset, header.last_offset, is_dropped))
    return rows
