"""Offsets in transactions, byte by byte: TxnOffsetCommit of old and new clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvorum.runtime.errors import ErrorCode
from tests.polling import eventually
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient
from tests.test_transactions.raw_producer import CONFIG, NEW, OLD, Client

GROUP = "g"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path, count=2, config=CONFIG)
    controller = harness.cluster.controller
    harness.call(lambda: controller.create("t", [(1, 2), (1, 2)]))
    # Groups at one broker, transactions at the other, so that the two have to talk.
    harness.call(lambda: controller.create("__consumer_offsets", [(1, 2)]))
    harness.call(lambda: controller.create("__transaction_state", [(2, 1)]))
    yield harness
    harness.close()
    assert not harness.failures, harness.failures


class Copier(Client):
    """A producer that commits offsets too. version: of Produce."""

    @property
    def api_version(self) -> int:
        return 5 if self.version >= NEW else 3

    topic_id = bytes(16)
    """For version 6, which has it in place of the name."""

    def add_offsets(self) -> int:
        answer = self.coordinator.call("add_offsets_to_txn", 3, {
            "transactional_id": self.id, "producer_id": self.producer_id,
            "producer_epoch": self.epoch, "group_id": GROUP,
        })  # fmt: skip
        return int(answer.error_code)

    def commit(self, offset: int, *, version: int | None = None, **changes: Any) -> int:
        """Commit an offset of t-0. Retried while the group's or the last transaction is not
        ready."""
        codes: list[int] = []

        def is_answered() -> bool:
            codes[:] = [self.commit_once(offset, version=version, **changes)[0]]
            return codes[0] not in (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS,
            )  # fmt: skip

        eventually(is_answered, "the offsets are answered")
        return codes[0]

    def commit_once(
        self, offset: int, *, version: int | None = None, partitions: tuple[int, ...] = (0,),
        **changes: Any,
    ) -> list[int]:  # fmt: skip
        name, version = "txn_offset_commit", version or self.api_version
        rows = [
            {"partition_index": p, "committed_offset": offset, "committed_metadata": ""}
            for p in partitions
        ]
        topic = {"name": "t", "topic_id": self.topic_id, "partitions": rows}
        values = {
            "transactional_id": self.id, "group_id": GROUP, "producer_id": self.producer_id,
            "producer_epoch": self.epoch, "topics": [topic], **changes,
        }  # fmt: skip
        (topic,) = self.leader.call(name, version, values).topics
        return [int(row.error_code) for row in topic.partitions]


@pytest.fixture(params=[OLD, NEW])
def client(harness: Harness, request: pytest.FixtureRequest) -> Iterator[Copier]:
    made = Copier(harness, request.param)
    assert made.init() == 0
    yield made
    made.close()


@pytest.fixture
def old(harness: Harness) -> Iterator[Copier]:
    made = Copier(harness, OLD)
    assert made.init() == 0
    yield made
    made.close()


def fetched(client: Client, *, is_stable: bool = True) -> tuple[int, int]:
    """(error, offset) of t-0."""
    answer = client.leader.call("offset_fetch", 7, {
        "group_id": GROUP, "require_stable": is_stable,
        "topics": [{"name": "t", "partition_indexes": [0]}],
    })  # fmt: skip
    (row,) = answer.topics[0].partitions
    return int(row.error_code), int(row.committed_offset)


@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_count_once_the_transaction_commits(
    harness: Harness, client: Copier, is_commit: bool
) -> None:
    if client.version < NEW:
        assert client.add_offsets() == 0
    assert client.commit(42) == 0
    (shard,) = harness.cluster.brokers[1].server.services.groups.active_shards()
    (pending,) = shard.offsets.books[GROUP].pending[client.producer_id].values()
    assert pending.value.topic_id == harness.cluster.controller.image.topic_ids["t"]
    assert fetched(client) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert fetched(client, is_stable=False) == (0, -1)
    assert client.end(is_commit=is_commit) == 0
    eventually(lambda: fetched(client) == (0, 42 if is_commit else -1), "the outcome has arrived")


def test_one_transaction_may_commit_offsets_again_and_again(client: Copier) -> None:
    if client.version < NEW:
        client.add_offsets()
    for offset in (1, 2, 3):
        assert client.commit(offset) == 0
    assert client.end() == 0
    eventually(lambda: fetched(client) == (0, 3), "the last of them counts")


def test_the_next_transaction_begins_anew(client: Copier) -> None:
    for offset in (1, 2):
        if client.version < NEW:
            eventually(lambda: client.add_offsets() == 0, "the last one's markers are written")
        assert client.commit(offset) == 0
        assert client.end(is_commit=offset == 1) == 0
    eventually(lambda: fetched(client) == (0, 1), "the second one is aborted")


@pytest.mark.parametrize(
    ("version", "code"),
    [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_an_older_client_must_have_added_the_group(
    old: Copier, version: int, code: ErrorCode
) -> None:
    assert old.commit(42, version=version) == code


def test_a_fenced_producer_commits_no_offsets(harness: Harness, client: Copier) -> None:
    if client.version < NEW:
        client.add_offsets()
    second = Copier(harness, client.version)
    assert second.init() == 0
    assert client.commit(42) == ErrorCode.INVALID_PRODUCER_EPOCH
    second.close()


def test_offsets_that_come_behind_the_marker_stay_out(client: Copier) -> None:
    if client.version < NEW:
        client.add_offsets()
    late = {"producer_id": client.producer_id, "producer_epoch": client.epoch}
    assert client.commit(1) == 0
    assert client.end() == 0
    eventually(lambda: fetched(client) == (0, 1), "the marker is here")
    assert client.commit(2, **late) in (
        ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE,
    )  # fmt: skip
    assert fetched(client) == (0, 1)


def test_a_partition_that_does_not_exist_spoils_no_other(client: Copier) -> None:
    if client.version < NEW:
        client.add_offsets()
    client.commit(1)
    assert client.commit_once(2, partitions=(0, 9, 1)) == [
        0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0,
    ]  # fmt: skip


def test_what_cannot_be_is_refused(harness: Harness, client: Copier) -> None:
    assert client.commit(1, transactional_id="") == ErrorCode.INVALID_REQUEST
    assert client.commit(1, group_id="") == ErrorCode.INVALID_GROUP_ID
    client.leader, leader = RawClient(harness.cluster.brokers[2].port), client.leader
    assert client.commit(1) == ErrorCode.NOT_COORDINATOR
    client.leader.close()
    client.leader = leader


def test_a_stranger_to_the_group_is_refused(client: Copier) -> None:
    if client.version < NEW:
        client.add_offsets()
    code = client.commit(1, generation_id=3, member_id="nobody")
    assert code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


def test_the_newest_clients_name_topics_by_their_ids(harness: Harness) -> None:
    client = Copier(harness, NEW)
    assert client.init() == 0
    client.topic_id = harness.cluster.controller.image.topic_ids["t"]
    assert client.commit(42, version=6) == 0
    assert client.commit_once(1, version=6, partitions=(0, 9)) == [
        0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]  # fmt: skip
    client.topic_id = bytes(range(16))
    assert client.commit_once(1, version=6) == [ErrorCode.UNKNOWN_TOPIC_ID]
    client.close()


@pytest.mark.parametrize(
    ("version", "field", "code"),
    [
        (5, "generation_id", ErrorCode.ILLEGAL_GENERATION),
        (6, "generation_id_or_member_epoch", ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_missing_group_has_a_code_of_its_own_for_the_newest_clients(
    harness: Harness, version: int, field: str, code: ErrorCode
) -> None:
    client = Copier(harness, NEW)
    assert client.init() == 0
    client.topic_id = harness.cluster.controller.image.topic_ids["t"]
    member = {field: 3, "member_id": "nobody", "group_id": "missing"}
    assert client.commit(1, version=version, **member) == code
    client.close()
