"""The offsets of all groups of one shard: commit, fetch, delete, expire. Pure.

The store has one `OffsetBook` for each group id. The caller checks that the group allows the
request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvorum.broker.coordinator.model import CoordinatorRecord, ReplayedRecord, TransactionEnd
from kvorum.broker.groups.committing import offset_errors, offset_value
from kvorum.broker.groups.offsets import EMPTY_BOOK, OffsetBook, PartitionKey
from kvorum.broker.groups.steps.config import PRODUCERS_MAX
from kvorum.broker.groups.steps.records import OffsetKey, decode_offset, encode_offset, offset_key
from kvorum.broker.groups.steps.requests import (
    NO_RETENTION_TIME,
    CommitOffsets,
    CommitTransactionOffsets,
    FetchedOffset,
    FetchedTopicOffsets,
    FetchOffsets,
    OffsetsCommitted,
    OffsetsFetched,
    TopicPartitions,
)
from kvorum.broker.groups.steps.step_effects import StepEffects
from kvorum.runtime.errors import ErrorCode


class OffsetStore:
    """books: by group id; only of groups that have offsets."""

    __slots__ = ("_epochs", "_groups_of_producer", "_order", "books")

    def __init__(self) -> None:
        self.books: dict[str, OffsetBook] = {}
        self._groups_of_producer: dict[int, dict[str, None]] = {}
        self._epochs: dict[int, int] = {}
        self._order = -1

    def book(self, group_id: str) -> OffsetBook:
        """The group's offsets, for reading only."""
        return self.books.get(group_id, EMPTY_BOOK)

    # --- the log -----------------------------------------------------------------------------

    def replay(self, key: OffsetKey, record: ReplayedRecord) -> None:
        """Apply one record of the log. Raises CorruptData."""
        self._order = record.offset
        if record.value is None:
            self._remove(key.group_id, [(key.topic, key.partition)])
            return
        value = decode_offset(record.value)
        book = self.books.setdefault(key.group_id, OffsetBook())
        if record.is_transactional:
            self._groups_of_producer.setdefault(record.producer_id, {})[key.group_id] = None
            self._note_epoch(record.producer_id, record.producer_epoch)
            book.put_pending(record.producer_id, key.topic, key.partition, value, self._order)
        else:
            book.put(key.topic, key.partition, value, self._order)

    def end_transaction(self, end: TransactionEnd) -> None:
        """Apply a transaction marker, loaded or just appended."""
        self._note_epoch(end.producer_id, end.producer_epoch)
        for group_id in self._groups_of_producer.pop(end.producer_id, {}):
            book = self.books.get(group_id)
            if book is not None:
                book.end_transaction(end.producer_id, is_commit=end.is_commit)
                self._forget_if_blank(group_id, book)

    def _note_epoch(self, producer_id: int, epoch: int) -> None:
        # Pop first, so that the dict is in the order of the latest use.
        self._epochs[producer_id] = max(epoch, self._epochs.pop(producer_id, -1))
        if len(self._epochs) > PRODUCERS_MAX:
            del self._epochs[next(iter(self._epochs))]

    # --- committing --------------------------------------------------------------------------

    def commit(self, request: CommitOffsets, step: StepEffects) -> OffsetsCommitted:
        """Write the offsets that can be written; an offset with an error does not affect the
        others."""
        errors = offset_errors(request.offsets, step.config)
        group_id, wall_ms = request.group_id, step.now.wall_ms
        records = []
        for row, error in zip(request.offsets, errors, strict=True):
            if error != ErrorCode.NONE:
                continue
            value = offset_value(row, wall_ms, request.retention_time_ms)
            self._order += 1
            book = self.books.get(group_id)
            if book is None:
                book = self.books[group_id] = OffsetBook()
            book.put(row.topic, row.partition, value, self._order)
            key = offset_key(group_id, row.topic, row.partition)
            records.append(CoordinatorRecord(key, encode_offset(value)))
        step.append_all(records)
        return OffsetsCommitted(errors)

    def is_fenced(self, request: CommitTransactionOffsets) -> bool:
        """True if a later epoch of that producer is known: no marker would ever end this
        transaction."""
        return request.producer_epoch < self._epochs.get(request.producer_id, -1)

    def commit_in_transaction(
        self, request: CommitTransactionOffsets, step: StepEffects
    ) -> OffsetsCommitted:
        """As `commit`, in a transaction: the offsets count once the producer's commit marker
        arrives."""
        errors = offset_errors(request.offsets, step.config)
        group_id, producer_id = request.group_id, request.producer_id
        records = []
        for row, error in zip(request.offsets, errors, strict=True):
            if error != ErrorCode.NONE:
                continue
            value = offset_value(row, step.now.wall_ms, NO_RETENTION_TIME)
            self._order += 1
            book = self.books.setdefault(group_id, OffsetBook())
            book.put_pending(producer_id, row.topic, row.partition, value, self._order)
            key = offset_key(group_id, row.topic, row.partition)
            records.append(CoordinatorRecord(key, encode_offset(value)))
        if records:
            self._groups_of_producer.setdefault(producer_id, {})[group_id] = None
            self._note_epoch(producer_id, request.producer_epoch)
        step.append_all(records, producer=(producer_id, request.producer_epoch))
        return OffsetsCommitted(errors)

    # --- reading -----------------------------------------------------------------------------

    def fetch(self, request: FetchOffsets) -> OffsetsFetched:
        book = self.book(request.group_id)
        topics: Iterable[TopicPartitions]
        if request.topics is not None:
            topics = request.topics
        else:
            keys = book.all_keys() if request.require_stable else dict.fromkeys(book.keys())
            topics = _by_topic(keys)
        return OffsetsFetched(
            tuple(
                FetchedTopicOffsets(
                    topic,
                    tuple(
                        _fetched(book, topic, partition, request.require_stable)
                        for partition in partitions
                    ),
                )
                for topic, partitions in topics
            )
        )

    # --- removing ----------------------------------------------------------------------------

    def delete(self, group_id: str, keys: Iterable[PartitionKey], step: StepEffects) -> int:
        """Write tombstones for the `keys` that have an offset; returns their number."""
        known = self.book(group_id).all_keys()
        there = [key for key in dict.fromkeys(keys) if key in known]
        self._remove(group_id, there)
        self._order += len(there)
        step.append_all(
            CoordinatorRecord(offset_key(group_id, topic, partition), None)
            for topic, partition in there
        )
        return len(there)

    def delete_all(self, group_id: str, step: StepEffects) -> None:
        """Write tombstones for all offsets of the group."""
        self.delete(group_id, self.book(group_id).all_keys(), step)

    def of_topics(self, topics: frozenset[str]) -> Iterator[tuple[str, list[PartitionKey]]]:
        """Each group id that has offsets of these topics, with their keys."""
        if not topics:
            return  # every new topic calls this
        for group_id, book in self.books.items():
            found = [key for key in book.all_keys() if key[0] in topics]
            if found:
                yield group_id, found

    def _remove(self, group_id: str, keys: Iterable[PartitionKey]) -> None:
        book = self.books.get(group_id)
        if book is None:
            return
        for topic, partition in keys:
            book.remove(topic, partition)
        self._forget_if_blank(group_id, book)

    def _forget_if_blank(self, group_id: str, book: OffsetBook) -> None:
        if book.is_blank:
            del self.books[group_id]


def _fetched(book: OffsetBook, topic: str, partition: int, require_stable: bool) -> FetchedOffset:
    if require_stable and book.is_pending(topic, partition):
        return FetchedOffset(partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    value = book.get(topic, partition)
    if value is None:
        return FetchedOffset(partition)
    return FetchedOffset(partition, value.offset, value.leader_epoch, value.metadata)


def _by_topic(keys: Iterable[PartitionKey]) -> list[TopicPartitions]:
    topics: dict[str, list[int]] = {}
    for topic, partition in keys:
        topics.setdefault(topic, []).append(partition)
    return [TopicPartitions(topic, tuple(partitions)) for topic, partitions in topics.items()]
