"""Committed offsets: the members that may commit, the answers to readers, and the expiry."""

from __future__ import annotations

import pytest

from kvorum.broker.coordinator.model import TopicsChanged
from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.broker.groups.steps.requests import DeleteGroup, DeleteOffsets, TopicPartitions
from kvorum.broker.groups.steps.step_effects import BATCH_BYTES_MAX
from kvorum.runtime.errors import ErrorCode
from tests.test_groups.world import (
    GROUP,
    World,
    commit_body,
    committed,
    fetch_body,
    join_body,
    transaction_commit_body,
)

HOUR_MS = 3_600_000
CONFIG = GroupConfig(offsets_retention_minutes=60, offsets_retention_check_interval_ms=HOUR_MS // 6)
ORDERS = ("orders", 0)


def fetched(world: World, key=ORDERS, **more):
    return world.call(fetch_body(key, **more)).topics[0].partitions[0]


# --- committing ----------------------------------------------------------------------------------


def test_anybody_may_commit_to_a_group_without_members():
    world = World()
    answer = world.call(commit_body(("orders", 0, 7), ("orders", 1, 8), metadata="m"))
    assert answer.errors == (ErrorCode.NONE, ErrorCode.NONE)
    assert committed(world) == {("orders", 0): 7, ("orders", 1): 8}
    assert fetched(world).metadata == "m"


def test_a_commit_is_told_once_it_is_replicated_and_so_is_what_reads_it():
    world = World()
    world.is_replicating = False
    commit = world.ask(commit_body(("orders", 0, 7)))
    read = world.ask(fetch_body(ORDERS))
    assert commit not in world.answers
    assert read not in world.answers
    world.replicate()
    assert world.answers[commit].errors == (ErrorCode.NONE,)
    assert world.answers[read].topics[0].partitions[0].offset == 7


def test_a_member_commits_in_its_own_generation_only():
    world = World()
    (member,), generation_id = world.stable(1)
    good = commit_body(("orders", 0, 7), member_id=member, generation_id=generation_id)
    assert world.call(good).errors == (ErrorCode.NONE,)
    old = commit_body(("orders", 0, 1), member_id=member, generation_id=generation_id - 1)
    assert world.call(old) == ErrorCode.ILLEGAL_GENERATION
    stranger = commit_body(("orders", 0, 1), member_id="nobody", generation_id=generation_id)
    assert world.call(stranger) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.call(commit_body(("orders", 0, 1))) == ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(world) == {ORDERS: 7}


def test_a_commit_of_a_fenced_static_member_is_refused():
    world = World()
    token = world.join(instance="a")
    old = world.until(token).member_id
    world.sync(old, 1, {}, instance="a")
    world.call(join_body(instance="a"))
    refused = commit_body(("orders", 0, 1), member_id=old, generation_id=1, instance="a")
    assert world.call(refused) == ErrorCode.FENCED_INSTANCE_ID


def test_commits_wait_for_the_assignment_but_not_for_the_rebalance_before():
    world = World()
    (first, second), generation_id = world.stable(2)
    world.join(first)
    body = commit_body(("orders", 0, 7), member_id=second, generation_id=generation_id)
    assert world.call(body).errors == (ErrorCode.NONE,)
    world.join(second)
    assert world.state == "CompletingRebalance"
    body = commit_body(("orders", 0, 8), member_id=second, generation_id=generation_id + 1)
    assert world.call(body) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_counts_as_a_sign_of_life():
    world = World()
    (member,), generation_id = world.stable(1, session_ms=10_000)
    for _ in range(3):
        world.advance(9_999)
        world.call(commit_body(("orders", 0, 7), member_id=member, generation_id=generation_id))
    assert member in world.shard.groups[GROUP].members


@pytest.mark.parametrize(
    ("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_member_of_a_group_that_is_not_there_cannot_commit(version, error):
    world = World()
    body = commit_body(("orders", 0, 7), member_id="m", generation_id=3, version=version)
    assert world.call(body) == error


def test_metadata_that_is_too_large_spoils_its_own_offset_only():
    world = World()
    body = commit_body(("orders", 0, 7), ("orders", 1, 8), metadata="x" * 4096)
    rows = (body.offsets[0], body.offsets[1]._replace(metadata="x" * 4097))
    object.__setattr__(body, "offsets", rows)
    answer = world.call(body)
    assert answer.errors == (ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE)
    assert committed(world) == {ORDERS: 7}


def test_a_large_commit_is_written_in_batches_that_fit():
    world = World()
    rows = [("orders", partition, 7) for partition in range(300)]
    world.call(commit_body(*rows, metadata="x" * 4096))
    sizes = [sum(len(r.key) + len(r.value) for r in a.records) for a in world.appends]
    assert len(sizes) == 3
    assert max(sizes) <= BATCH_BYTES_MAX
    assert len(committed(world)) == 300


# --- reading -------------------------------------------------------------------------------------


def test_what_was_never_committed_is_minus_one_and_no_error():
    world = World()
    assert fetched(world) == (0, -1, -1, "", ErrorCode.NONE)
    assert world.call(fetch_body()).topics == ()
    assert world.shard.groups == {}


def test_a_new_coordinator_knows_all_that_was_committed():
    world = World()
    world.call(commit_body(("orders", 0, 7), ("orders", 1, 8)))
    world.call(commit_body(("orders", 0, 9), group_id="other"))
    world.call(commit_body(("orders", 0, 10)))
    world.fail_over()
    assert committed(world) == {("orders", 0): 10, ("orders", 1): 8}
    assert committed(world, "other") == {("orders", 0): 9}


# --- transactions --------------------------------------------------------------------------------


def test_offsets_of_a_transaction_count_once_it_commits():
    world = World()
    world.call(commit_body(("orders", 0, 1)))
    world.call(transaction_commit_body(("orders", 0, 5), ("orders", 1, 6), producer_id=9))
    assert committed(world) == {ORDERS: 1}
    world.marker(9, is_commit=True)
    assert committed(world) == {ORDERS: 5, ("orders", 1): 6}


def test_offsets_of_a_transaction_that_aborts_are_nothing():
    world = World()
    world.call(transaction_commit_body(("orders", 0, 5), producer_id=9))
    world.marker(9, is_commit=False)
    assert committed(world) == {}
    assert world.shard.offsets.books == {}


def test_a_reader_that_wants_stable_offsets_is_told_to_wait():
    world = World()
    world.call(commit_body(("orders", 0, 1), ("orders", 1, 2)))
    world.call(transaction_commit_body(("orders", 0, 5), ("payments", 0, 6), producer_id=9))
    row = fetched(world, require_stable=True)
    assert (row.error, row.offset) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert fetched(world).offset == 1
    assert fetched(world, ("orders", 1), require_stable=True).offset == 2
    rows = world.call(fetch_body(require_stable=True)).topics
    assert [row.topic for row in rows] == ["orders", "payments"]
    world.marker(9, is_commit=False)
    assert fetched(world, require_stable=True).offset == 1


def test_the_offset_written_later_wins_whenever_the_marker_comes():
    world = World()
    world.call(transaction_commit_body(("orders", 0, 5), producer_id=9))
    world.call(commit_body(("orders", 0, 6)))
    world.marker(9, is_commit=True)
    assert committed(world) == {ORDERS: 6}
    world.fail_over()
    assert committed(world) == {ORDERS: 6}


def test_open_transactions_survive_a_failover():
    world = World()
    world.call(transaction_commit_body(("orders", 0, 5), producer_id=9))
    world.fail_over()
    assert fetched(world, require_stable=True).error == ErrorCode.UNSTABLE_OFFSET_COMMIT
    world.marker(9, is_commit=True)
    assert committed(world) == {ORDERS: 5}


def test_a_transactions_records_are_part_of_it_in_the_log():
    world = World()
    world.call(transaction_commit_body(("orders", 0, 5), producer_id=9, producer_epoch=3))
    assert world.appends[-1].producer == (9, 3)


def test_an_older_process_of_a_producer_is_fenced():
    """Otherwise its offsets would stay pending, because no marker ends its transaction; readers of
    stable offsets would wait for ever."""
    world = World()
    world.call(transaction_commit_body(("orders", 0, 5), producer_id=9, producer_epoch=1))
    old = transaction_commit_body(("orders", 0, 6), producer_id=9, producer_epoch=0)
    assert world.call(old) == ErrorCode.INVALID_PRODUCER_EPOCH
    world.marker(9, is_commit=True, epoch=2)
    world.fail_over()
    old = transaction_commit_body(("orders", 0, 6), producer_id=9, producer_epoch=1)
    assert world.call(old) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert committed(world) == {ORDERS: 5}


def test_a_member_of_another_generation_cannot_commit_in_a_transaction():
    world = World()
    (member,), generation_id = world.stable(1)
    body = transaction_commit_body(
        ("orders", 0, 5), producer_id=9, member_id=member, generation_id=generation_id - 1
    )
    assert world.call(body) == ErrorCode.ILLEGAL_GENERATION
    body = transaction_commit_body(("orders", 0, 5), producer_id=9, member_id="x", generation_id=1)
    assert world.call(body) == ErrorCode.UNKNOWN_MEMBER_ID
    # Requests of versions 0-2 have no member id: the coordinator does not check the membership.
    body = transaction_commit_body(("orders", 0, 5), producer_id=9)
    assert world.call(body).errors == (ErrorCode.NONE,)


# --- deleting ------------------------------------------------------------------------------------


def delete_offsets(*topics: str, partitions=(0,)):
    rows = tuple(TopicPartitions(topic, partitions) for topic in topics)
    return DeleteOffsets(group_id=GROUP, topics=rows)


def test_offsets_are_deleted_unless_their_topic_is_subscribed_to():
    world = World()
    world.call(commit_body(("orders", 0, 1), ("payments", 0, 2)))
    world.stable(1, topics=("orders",))
    rows = world.call(delete_offsets("orders", "payments")).topics
    assert [row.error for row in rows] == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert committed(world) == {ORDERS: 1}
    world.fail_over()
    assert committed(world) == {ORDERS: 1}


def test_a_group_with_members_of_another_protocol_keeps_its_offsets():
    world = World()
    world.stable(1, protocol_type="connect")
    assert world.call(delete_offsets("orders")) == ErrorCode.NON_EMPTY_GROUP
    assert World().call(delete_offsets("orders")) == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_loses_any_offset():
    world = World()
    (member,), _ = world.stable(1)
    world.leave((member, None))
    world.call(commit_body(("orders", 0, 1)))
    rows = world.call(delete_offsets("orders")).topics
    assert [row.error for row in rows] == [ErrorCode.NONE]
    assert committed(world) == {}


def test_a_group_is_deleted_with_its_offsets_once_it_is_empty():
    world = World()
    (member,), generation_id = world.stable(1)
    world.call(commit_body(("orders", 0, 1), member_id=member, generation_id=generation_id))
    assert world.call(DeleteGroup(group_id=GROUP)) == ErrorCode.NON_EMPTY_GROUP
    world.leave((member, None))
    world.call(transaction_commit_body(("orders", 1, 5), producer_id=9))
    assert world.call(DeleteGroup(group_id=GROUP)) == ErrorCode.NONE
    assert world.call(DeleteGroup(group_id=GROUP)) == ErrorCode.GROUP_ID_NOT_FOUND
    world.marker(9, is_commit=True)
    assert committed(world) == {}
    loaded = world.loaded()
    assert (loaded.groups, loaded.offsets.books) == ({}, {})


def test_offsets_of_a_deleted_topic_go():
    world = World()
    world.call(commit_body(("orders", 0, 1), ("payments", 0, 2)))
    world.call(commit_body(("orders", 3, 1), group_id="other"))
    world.give(
        TopicsChanged(image=None, changed=frozenset({"orders"}), deleted=frozenset({"orders"}))
    )
    assert committed(world) == {("payments", 0): 2}
    assert committed(world, "other") == {}
    world.fail_over()
    assert committed(world) == {("payments", 0): 2}


# --- expiry --------------------------------------------------------------------------------------


def test_offsets_of_no_group_expire_by_their_commit_and_the_group_with_the_last():
    world = World(CONFIG)
    world.call(commit_body(("orders", 0, 1)))
    world.advance(HOUR_MS // 2)
    world.call(commit_body(("orders", 1, 1)))
    world.advance(HOUR_MS // 2)
    assert committed(world) == {("orders", 1): 1}
    world.advance(HOUR_MS // 2)
    assert world.shard.groups == {}
    assert world.loaded().groups == {}


def test_offsets_of_a_group_expire_after_its_last_member_is_gone():
    world = World(CONFIG)
    (member,), generation_id = world.stable(1, session_ms=1_800_000)
    world.call(commit_body(("orders", 0, 1), member_id=member, generation_id=generation_id))
    for _ in range(4):
        world.advance(HOUR_MS // 3)
        world.heartbeat(member, generation_id)
    assert committed(world) == {ORDERS: 1}
    world.leave((member, None))
    world.advance(HOUR_MS - HOUR_MS // 6)
    assert committed(world) == {ORDERS: 1}
    world.advance(HOUR_MS // 3)
    assert committed(world) == {}
    assert world.shard.groups == {}


def test_a_stable_group_loses_offsets_of_topics_that_nobody_subscribes_to():
    world = World(CONFIG)
    world.call(commit_body(("orders", 0, 1), ("payments", 0, 2)))
    (member,), generation_id = world.stable(1, session_ms=1_800_000, topics=("orders",))
    for _ in range(4):
        world.advance(HOUR_MS // 3)
        world.heartbeat(member, generation_id)
    assert committed(world) == {ORDERS: 1}


def test_nothing_expires_where_nobody_knows_what_the_members_use():
    world = World(CONFIG)
    world.call(commit_body(("orders", 0, 1)))
    (member,), generation_id = world.stable(1, session_ms=1_800_000, protocol_type="connect")
    for _ in range(4):
        world.advance(HOUR_MS // 3)
        world.heartbeat(member, generation_id)
    assert committed(world) == {ORDERS: 1}


def test_a_retention_of_its_own_is_kept_to():
    world = World(CONFIG)
    world.call(commit_body(("orders", 0, 1), retention_time_ms=HOUR_MS * 2))
    world.call(commit_body(("orders", 1, 1), retention_time_ms=1))
    world.advance(HOUR_MS + HOUR_MS // 6)
    assert committed(world) == {ORDERS: 1}
    world.fail_over()
    world.advance(HOUR_MS)
    assert committed(world) == {}


def test_an_offset_that_a_transaction_may_change_does_not_expire():
    world = World(CONFIG)
    world.call(commit_body(("orders", 0, 1)))
    world.call(transaction_commit_body(("orders", 0, 5), producer_id=9))
    world.advance(2 * HOUR_MS)
    assert committed(world) == {ORDERS: 1}
