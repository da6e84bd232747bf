"""The markers that are still to be written, and their writers."""

from __future__ import annotations

from kvorum.broker.transactions.core import marker_book
from kvorum.broker.transactions.core.marker_book import MarkerBook
from kvorum.broker.transactions.core.model import TopicPartition
from kvorum.broker.transactions.core.requests import SendMarkers
from kvorum.metadata.image.image import ClusterImage, PartitionImage, TopicImage
from kvorum.metadata.image.persistent_map import Map
from kvorum.runtime.errors import ErrorCode

NOBODY: frozenset[int] = frozenset()
A, B, C = (TopicPartition("t", number) for number in range(3))


def image(*leaders: int) -> ClusterImage:
    """Topic t whose partitions have these leaders."""
    partitions = Map(
        {
            number: PartitionImage((1, 2), (1, 2), leader, 0, 0)
            for number, leader in enumerate(leaders)
        }
    )
    topic = TopicImage("t", b"t" * 16, partitions)
    return ClusterImage(topics=Map({topic.topic_id: topic}), topic_ids=Map({"t": topic.topic_id}))


def question(ask_id: int, *partitions: TopicPartition) -> SendMarkers:
    return SendMarkers(
        ask_id=ask_id, transactional_id=f"x-{ask_id}", producer_id=ask_id, producer_epoch=0,
        coordinator_epoch=0, is_commit=True, transaction_version=2,
        partitions=frozenset(partitions),
    )  # fmt: skip


def sent(book: MarkerBook, held: ClusterImage, busy: frozenset[int] = NOBODY):
    """The markers that are due, as {broker: [(key, partitions)]}, and the transactions that are
    done."""
    batches, done = book.due(held, busy)
    return {
        batch.broker_id: [(key, partitions) for key, _, partitions in batch.items]
        for batch in batches
    }, done


def test_markers_are_gathered_by_leader() -> None:
    book = MarkerBook()
    book.add("one", question(1, A, B))
    book.add("two", question(2, A, C))
    assert sent(book, image(1, 2, 1)) == (
        {1: [("one", (A,)), ("two", (A, C))], 2: [("one", (B,))]}, [],
    )  # fmt: skip
    # They are under way, so they are not sent again.
    assert sent(book, image(1, 2, 1)) == ({}, [])


def test_a_transaction_is_done_with_its_last_marker_and_told_once() -> None:
    book = MarkerBook()
    book.add("one", question(1, A, B))
    sent(book, image(1, 2))
    assert not book.take("one", A, ErrorCode.NONE)
    assert book.take("one", B, ErrorCode.NONE)
    assert not book.take("one", B, ErrorCode.NONE)
    assert len(book) == 0


def test_what_failed_is_sent_again_to_who_leads_then() -> None:
    book = MarkerBook()
    book.add("one", question(1, A))
    sent(book, image(1))
    assert not book.take("one", A, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert sent(book, image(2)) == ({2: [("one", (A,))]}, [])
    # The leader may not know of the topic yet: only the coordinator's own image decides that it is
    # deleted.
    assert not book.take("one", A, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert sent(book, image(2)) == ({2: [("one", (A,))]}, [])


def test_a_partition_without_leader_waits() -> None:
    book = MarkerBook()
    book.add("one", question(1, A))
    assert sent(book, image(-1)) == ({}, [])
    assert sent(book, image(2)) == ({2: [("one", (A,))]}, [])


def test_a_busy_broker_waits_for_its_next_request() -> None:
    book = MarkerBook()
    book.add("one", question(1, A, B))
    assert sent(book, image(1, 2), frozenset({1})) == ({2: [("one", (B,))]}, [])


def test_partitions_that_are_gone_are_done() -> None:
    book = MarkerBook()
    book.add("one", question(1, A, B))
    assert sent(book, image(1)) == ({1: [("one", (A,))]}, [])
    assert book.take("one", A, ErrorCode.NONE)
    book.add("two", question(2, B))
    assert sent(book, image(1)) == ({}, ["two"])


def test_a_later_coordinator_takes_the_transaction_over() -> None:
    book = MarkerBook()
    book.add("one", question(1, A, B))
    sent(book, image(1, 2))
    assert not book.take("one", A, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    assert not book.take("one", B, ErrorCode.NONE)
    assert len(book) == 0


def test_a_partition_past_the_marker_counts_as_done() -> None:
    book = MarkerBook()
    book.add("one", question(1, A))
    sent(book, image(1))
    assert book.take("one", A, ErrorCode.INVALID_PRODUCER_EPOCH)


def test_one_request_has_a_limit(monkeypatch) -> None:
    monkeypatch.setattr(marker_book, "MARKERS_PER_REQUEST_MAX", 2)
    book = MarkerBook()
    book.add("one", question(1, A, B, C))
    assert sent(book, image(1, 1, 1)) == ({1: [("one", (A, B))]}, [])
    assert sent(book, image(1, 1, 1)) == ({1: [("one", (C,))]}, [])
