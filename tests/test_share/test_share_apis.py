"""The APIs of share groups over the wire, on two brokers."""

from __future__ import annotations

from typing import Any

import pytest

from kvorum.broker.coordinator.keys import partition_of
from kvorum.broker.metadata_answers.topic_names import SHARE_STATE_TOPIC
from kvorum.broker.share_state.client import coordinator_key
from kvorum.broker.share_state.records import ShareKey
from kvorum.metadata.image.features import SHARE_VERSION
from kvorum.metadata.image.records import Config, FeatureLevel
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import iter_headers
from tests.polling import eventually
from tests.test_broker.group_requests import group_led_by
from tests.test_broker.raw_client import RawClient
from tests.test_share.members import (
    RESOURCE_GROUP,
    Member,
    acquired,
    beat,
    id_of,
    joined,
    produce,
    row_of,
)

# --- the group -----------------------------------------------------------------------------------


def test_a_member_joins_stays_and_leaves(client, harness, group_id, topic):
    first = beat(client, group_id, "a", 0, subscribed_topic_names=[topic])
    assert (first.error_code, first.member_id, first.member_epoch) == (0, "a", 1)
    # Its partitions have no state yet: it is told to come back soon.
    assert first.heartbeat_interval.total_seconds() == 0.5
    answer = joined(client, group_id, "a", topic)
    assert answer.heartbeat_interval.total_seconds() == 0.7
    (row,) = answer.assignment.topic_partitions
    assert (row.topic_id.bytes, row.partitions) == (id_of(harness, topic), (0,))
    again = beat(client, group_id, "a", answer.member_epoch)
    assert (again.error_code, again.assignment) == (0, None)
    assert beat(client, group_id, "a", -1).member_epoch == -1
    assert beat(client, group_id, "a", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_that_are_refused(client, group_id, topic):
    assert beat(client, "", "a", 0).error_code == ErrorCode.INVALID_REQUEST
    assert beat(client, group_id, "", 0).error_code == ErrorCode.INVALID_REQUEST
    assert beat(client, group_id, "a", 0).error_code == ErrorCode.INVALID_REQUEST
    assert beat(client, group_id, "a", -2).error_code == ErrorCode.INVALID_REQUEST
    assert beat(client, group_id, "a", 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    for name in ("a", "b"):
        assert beat(client, group_id, name, 0, subscribed_topic_names=[topic]).error_code == 0
    full = beat(client, group_id, "c", 0, subscribed_topic_names=[topic])
    assert full.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert beat(client, group_id, "a", 99).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_members_share_a_partition(client, harness, group_id, topic):
    for name in ("a", "b"):
        answer = joined(client, group_id, name, topic)
        assert [row.partitions for row in answer.assignment.topic_partitions] == [(0,)]
    nobody = group_led_by(client, 1, "nobody")
    values = {"group_ids": [group_id, nobody], "include_authorized_operations": False}
    found, missing = client.call("share_group_describe", 1, values).groups
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (found.error_code, found.group_state, found.assignor_name) == (0, "Stable", "simple")
    assert [m.member_id for m in found.members] == ["a", "b"]
    listed = client.call("list_groups", 5, {"states_filter": [], "types_filter": ["share"]})
    rows = {row.group_id: (row.protocol_type, row.group_type) for row in listed.groups}
    assert rows[group_id] == ("share", "share")


def test_a_group_has_one_type(client, harness, group_id, topic):
    joined(client, group_id, "a", topic)
    values = {
        "group_id": group_id,
        "member_id": "x",
        "member_epoch": 0,
        "rebalance_timeout": 10_000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }
    answer = client.call("consumer_group_heartbeat", 1, values)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    other = f"{group_id}-consumers"
    other = group_led_by(client, 1, other)
    assert client.call("consumer_group_heartbeat", 1, {**values, "group_id": other}).error_code == 0
    refused = beat(client, other, "a", 0, subscribed_topic_names=[topic])
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND


# --- records -------------------------------------------------------------------------------------


def test_records_are_acquired_and_accepted(client, topic, member):
    produce(client, topic, 10)
    assert member.take() == [(0, 9, 1)]
    answer = member.acknowledge([(0, 9, 1)])
    assert (answer.error_code, row_of(answer).error_code) == (0, 0)
    assert acquired(member.fetch()) == []
    produce(client, topic, 3)
    assert member.take() == [(10, 12, 1)]


def test_an_answer_has_the_batches_that_hold_the_records(client, topic, member):
    for _ in range(3):
        produce(client, topic, 5)
    assert member.take(max_records=6, batch_size=1) == [(0, 4, 1), (5, 9, 1)]
    answer = member.fetch()
    row = row_of(answer)
    assert acquired(answer) == [(10, 14, 1)]
    headers = [header for _, header in iter_headers(bytes(row.records))]
    assert [(h.base_offset, h.last_offset) for h in headers] == [(10, 14)]


def test_released_records_come_again_and_rejected_ones_do_not(client, topic, member):
    produce(client, topic, 4)
    member.take()
    answer = member.fetch([(0, 3, (2, 3, 2, 1))])
    assert row_of(answer).acknowledge_error_code == 0
    found = acquired(answer) or member.take()
    assert found == [(0, 0, 2), (2, 2, 2)]


def test_a_session_that_ends_gives_its_records_back(client, harness, group_id, topic, member):
    produce(client, topic, 4)
    member.take()
    assert member.acknowledge([], share_session_epoch=-1).error_code == 0
    other = Member(client, group_id, "b", id_of(harness, topic))
    assert other.take() == [(0, 3, 2)]


def test_a_connection_that_ends_gives_records_back(client, harness, group_id, topic, member):
    produce(client, topic, 4)
    other = RawClient(harness.cluster.brokers[1].port)
    assert Member(other, group_id, "b", id_of(harness, topic)).take() == [(0, 3, 1)]
    other.close()
    assert member.take() == [(0, 3, 2)]


def test_a_leader_that_may_have_been_replaced_gives_no_records(client, harness, topic, member):
    produce(client, topic, 4)
    member.take()
    core = harness.cluster.replica(1, topic).core
    harness.call(lambda: setattr(core, "is_abandoned", True))
    row = row_of(member.acknowledge([(0, 3, 2)]))
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    harness.call(lambda: setattr(core, "is_abandoned", False))


def test_a_fetch_waits_for_records(client, harness, group_id, topic, member):
    assert acquired(member.fetch()) == []
    other = RawClient(harness.cluster.brokers[1].port)
    member.send_fetch(max_wait=60_000)
    produce(other, topic, 2)
    assert acquired(member.client.answer("share_fetch", 2)) == [(0, 1, 1)]
    other.close()


def test_a_fetch_waits_for_as_many_bytes_as_it_asks_for(client, harness, group_id, topic, member):
    assert acquired(member.fetch()) == []
    other = RawClient(harness.cluster.brokers[1].port)
    member.send_fetch(max_wait=60_000, min_bytes=1_000)
    produce(other, topic, 1)
    client.sock.settimeout(0.5)
    with pytest.raises(TimeoutError):
        client.answer("share_fetch", 2)
    client.sock.settimeout(10)
    produce(other, topic, 400)
    assert (
        sum(last - first + 1 for first, last, _ in acquired(client.answer("share_fetch", 2))) == 401
    )
    other.close()


def test_a_fetch_that_waited_in_vain_for_more_bytes_gets_what_there_is(client, topic, member):
    produce(client, topic, 1)
    eventually(lambda: acquired(member.fetch(max_wait=50, min_bytes=1 << 20)), "a record came")


def test_a_lock_that_ends_gives_the_records_to_the_member_that_waits(
    client, harness, group_id, topic, member
):
    produce(client, topic, 3)
    assert member.take() == [(0, 2, 1)]
    other = RawClient(harness.cluster.brokers[1].port)
    waiting = Member(other, group_id, "b", id_of(harness, topic))
    assert waiting.take() == [(0, 2, 2)]
    refused = row_of(member.acknowledge([(0, 2, 1)]))
    assert refused.error_code == ErrorCode.INVALID_RECORD_STATE
    other.close()


def test_a_fetch_that_waits_acquires_nothing_for_a_session_that_has_ended(
    client, harness, group_id, topic, member
):
    produce(client, topic, 1)
    assert member.take() == [(0, 0, 1)]
    member.acknowledge([(0, 0, 1)])
    member.send_fetch(max_wait=60_000)
    member.send_acknowledge([], share_session_epoch=-1)
    assert acquired(client.answer("share_fetch", 2)) == []
    assert client.answer("share_acknowledge", 2).error_code == 0
    produce(client, topic, 3)
    other = Member(client, group_id, "b", id_of(harness, topic))
    assert other.take() == [(1, 3, 1)]


def test_a_renewal_is_answered_with_the_other_acknowledgements_of_its_request(
    client, topic, member
):
    produce(client, topic, 4)
    member.take()
    row = row_of(member.fetch([(0, 1, 4), (2, 3, 1)], is_renew_ack=True))
    assert (row.acknowledge_error_code, row.acquired_records) == (0, ())
    row = row_of(member.fetch([(0, 1, 4)], is_renew_ack=True))
    assert row.acknowledge_error_code == 0
    assert row_of(member.acknowledge([(0, 1, 1)])).error_code == 0


def test_acknowledgements_that_are_refused(client, topic, member):
    produce(client, topic, 4)
    member.take()
    for acks, error in (
        ([(0, 9, 1)], ErrorCode.INVALID_RECORD_STATE),
        ([(0, 1, 7)], ErrorCode.INVALID_REQUEST),
        ([(2, 3, 1), (0, 1, 1)], ErrorCode.INVALID_REQUEST),
    ):
        assert row_of(member.acknowledge(acks)).error_code == error
    assert row_of(member.acknowledge([(0, 3, 1)])).error_code == 0
    assert row_of(member.acknowledge([(0, 3, 1)])).error_code == ErrorCode.INVALID_RECORD_STATE


def test_twenty_thousand_ranges_are_refused_and_nobody_else_suffers(
    client, harness, group_id, topic, member
):
    # On a busy machine so many ranges take longer than the usual lock.
    lock = Config(RESOURCE_GROUP, group_id, "share.record.lock.duration.ms", "60000")
    harness.call(lambda: harness.cluster.controller.commit(lock))
    produce(client, topic, 4)
    member.take()
    row = row_of(member.acknowledge([(offset, offset, 1) for offset in range(20_000)]))
    assert row.error_code == ErrorCode.INVALID_RECORD_STATE
    assert row_of(member.acknowledge([(0, 3, 2)])).error_code == 0
    other = RawClient(harness.cluster.brokers[1].port)
    assert Member(other, group_id, "b", id_of(harness, topic)).take() == [(0, 3, 2)]
    other.close()


def test_a_request_of_too_many_ranges_costs_its_connection(
    client, harness, group_id, topic, member
):
    produce(client, topic, 4)
    member.take()
    member.send_acknowledge([(offset, offset, 1) for offset in range(150_000)])
    with pytest.raises((EOFError, ConnectionResetError)):
        client.answer("share_acknowledge", 2)
    other = RawClient(harness.cluster.brokers[1].port)
    assert Member(other, group_id, "b", id_of(harness, topic)).take() == [(0, 3, 2)]
    other.close()


def test_members_on_one_connection_have_sessions_of_their_own(
    client, harness, group_id, topic, member
):
    second = Member(client, group_id, "b", id_of(harness, topic))
    for _ in range(2):
        produce(client, topic, 3)
    assert member.take(max_records=1) == [(0, 2, 1)]
    assert second.take() == [(3, 5, 1)]
    assert row_of(second.acknowledge([(0, 2, 1)])).error_code == ErrorCode.INVALID_RECORD_STATE
    assert row_of(member.acknowledge([(0, 2, 1)])).error_code == 0
    assert row_of(second.acknowledge([(3, 5, 1)])).error_code == 0


def test_a_partition_named_twice_has_all_its_acknowledgements(client, topic, member):
    produce(client, topic, 4)
    member.take()
    rows = [*member.topics([(0, 1, 1)]), *member.topics([(2, 3, 1)])]
    assert row_of(member.acknowledge((), topics=rows)).error_code == 0
    assert row_of(member.acknowledge([(0, 0, 1)])).error_code == ErrorCode.INVALID_RECORD_STATE


def test_sessions_that_are_refused(client, harness, group_id, topic, member):
    assert member.fetch(share_session_epoch=3).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    member.fetch(share_session_epoch=0)
    refused = member.fetch(share_session_epoch=5)
    assert refused.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    refused = member.acknowledge([], share_session_epoch=0)
    assert refused.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.fetch([(0, 1, 1)], share_session_epoch=0).error_code == ErrorCode.INVALID_REQUEST
    others = [Member(client, group_id, name, member.topic_id) for name in ("b", "c", "d")]
    codes = [other.fetch().error_code for other in others]
    assert codes == [0, 0, ErrorCode.SHARE_SESSION_LIMIT_REACHED]


def test_a_session_is_of_one_connection(client, harness, member):
    member.fetch()
    other = RawClient(harness.cluster.brokers[1].port)
    member.client = other
    assert member.fetch().error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    other.close()


def test_partitions_that_are_refused(client, harness, group_id, topic):
    member = Member(client, group_id, "a", b"\x07" * 16)
    assert row_of(member.fetch()).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    # Nobody has subscribed to the topic, so its share-partition has no state.
    member = Member(client, group_id, "b", id_of(harness, topic))
    answer = member.fetch(max_wait=5_000)
    assert row_of(answer).error_code == ErrorCode.INVALID_REQUEST
    assert "not initialized" in row_of(answer).error_message


def test_a_new_leader_has_what_was_acknowledged(client, harness, group_id, topic, member):
    produce(client, topic, 10)
    member.take()
    member.acknowledge([(0, 3, 1), (6, 6, 3)])
    controller = harness.cluster.controller
    harness.call(lambda: controller.lead(member.topic_id, 0, 2, (1, 2)))
    assert row_of(member.fetch()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    other = RawClient(harness.cluster.brokers[2].port)
    found = Member(other, group_id, "a", member.topic_id).take()
    assert found == [(4, 5, 1), (7, 9, 1)]
    other.close()


@pytest.mark.parametrize("has_new_leader", [False, True])
def test_a_new_share_coordinator_has_what_was_acknowledged(
    client, harness, group_id, topic, member, has_new_leader
):
    produce(client, topic, 10)
    member.take()
    member.acknowledge([(0, 3, 1), (6, 6, 3)])
    controller = harness.cluster.controller
    states = controller.image.topic(SHARE_STATE_TOPIC)
    key = coordinator_key(ShareKey(group_id, member.topic_id, 0))
    partition = partition_of(key, len(states.partitions))
    leader = states.partitions[partition].leader
    harness.call(lambda: controller.lead(states.topic_id, partition, 3 - leader, (1, 2)))
    if has_new_leader:
        harness.call(lambda: controller.lead(member.topic_id, 0, 2, (1, 2)))
    broker = harness.cluster.brokers[2 if has_new_leader else 1]
    other = RawClient(broker.port)
    if not has_new_leader:
        # The old leader goes on: the new coordinator takes its writes.
        assert row_of(member.acknowledge([(4, 4, 1)])).error_code == 0
        assert member.acknowledge([], share_session_epoch=-1).error_code == 0
    found = Member(other, group_id, "b", member.topic_id).take()
    expected = [(4, 5, 1), (7, 9, 1)] if has_new_leader else [(5, 5, 2), (7, 9, 2)]
    assert found == expected
    other.close()


def test_a_changed_config_of_the_group_is_obeyed_from_the_next_request_on(
    client, harness, group_id, topic, member
):
    produce(client, topic, 1)
    member.take()
    assert row_of(member.acknowledge([(0, 0, 4)], is_renew_ack=True)).error_code == 0
    off = Config(RESOURCE_GROUP, group_id, "share.renew.acknowledge.enable", "false")
    harness.call(lambda: harness.cluster.controller.commit(off))
    refused = row_of(member.acknowledge([(0, 0, 4)], is_renew_ack=True))
    assert refused.error_code == ErrorCode.INVALID_REQUEST


# --- offsets -------------------------------------------------------------------------------------


def described(client: RawClient, group_id: str) -> Any:
    values = {"groups": [{"group_id": group_id, "topics": None}]}
    (group,) = client.call("describe_share_group_offsets", 1, values).groups
    return group


def test_offsets_are_described_altered_and_deleted(client, topic, group_id, member):
    produce(client, topic, 10)
    member.take()
    member.acknowledge([(0, 3, 1), (5, 5, 1)])
    ((row,),) = [found.partitions for found in described(client, group_id).topics]
    assert (row.start_offset, row.lag, row.error_code) == (4, 5, 0)
    partition = {"partition_index": 0, "start_offset": 2}
    altering = {
        "group_id": group_id,
        "topics": [{"topic_name": topic, "partitions": [partition]}],
    }
    busy = client.call("alter_share_group_offsets", 0, altering)
    assert busy.error_code == ErrorCode.NON_EMPTY_GROUP
    beat(client, group_id, "a", -1)
    done = client.call("alter_share_group_offsets", 0, altering)
    assert (done.error_code, row_of(done).error_code) == (0, 0)
    ((row,),) = [found.partitions for found in described(client, group_id).topics]
    assert (row.start_offset, row.lag) == (2, 8)
    # The leader's old state is fenced: what it still writes is refused.
    assert row_of(member.acknowledge([(6, 6, 1)])).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    deleting = {"group_id": group_id, "topics": [{"topic_name": topic}, {"topic_name": "none"}]}
    done = client.call("delete_share_group_offsets", 0, deleting)
    codes = [row.error_code for row in done.responses]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert described(client, group_id).topics == ()


def test_the_start_that_the_first_leader_chose_is_kept(client, harness, topic, group_id, member):
    produce(client, topic, 3)
    harness.call(
        lambda: harness.cluster.controller.commit(
            Config(RESOURCE_GROUP, group_id, "share.auto.offset.reset", "latest")
        )
    )
    assert acquired(member.fetch()) == []

    def start_offset() -> Any:
        ((row,),) = [found.partitions for found in described(client, group_id).topics]
        return row.start_offset

    eventually(lambda: start_offset() == 3, "the chosen start is kept")


def test_an_altered_offset_is_obeyed_once_nobody_fetches(client, topic, group_id, member):
    produce(client, topic, 4)
    assert member.take() == [(0, 3, 1)]
    member.acknowledge([(0, 3, 1)])
    member.acknowledge([], share_session_epoch=-1)
    beat(client, group_id, "a", -1)
    partition = {"partition_index": 0, "start_offset": 2}
    topics = [{"topic_name": topic, "partitions": [partition]}]
    done = client.call("alter_share_group_offsets", 0, {"group_id": group_id, "topics": topics})
    assert row_of(done).error_code == 0
    joined(client, group_id, "a", topic)
    member.epoch = 0
    assert member.take() == [(2, 3, 1)]


def test_a_group_is_deleted_with_its_states(client, topic, group_id, member):
    values = {"groups_names": [group_id]}
    (row,) = client.call("delete_groups", 2, values).results
    assert row.error_code == ErrorCode.NON_EMPTY_GROUP
    beat(client, group_id, "a", -1)
    (row,) = client.call("delete_groups", 2, values).results
    assert row.error_code == 0
    assert (described(client, group_id).error_code, described(client, group_id).topics) == (0, ())
    (row,) = client.call("delete_groups", 2, values).results
    assert row.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_everything_is_refused_while_the_feature_is_off(client, harness, group_id, topic):
    controller = harness.cluster.controller
    harness.call(lambda: controller.commit(FeatureLevel(SHARE_VERSION, 0)))
    try:
        off = ErrorCode.UNSUPPORTED_VERSION
        assert beat(client, group_id, "a", 0, subscribed_topic_names=[topic]).error_code == off
        assert Member(client, group_id, "a", id_of(harness, topic)).fetch().error_code == off
        assert described(client, group_id).error_code == off
    finally:
        harness.call(lambda: controller.commit(FeatureLevel(SHARE_VERSION, 2)))
