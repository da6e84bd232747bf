"""The event of each kind of metadata record, and the events of a snapshot."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvorum.metadata.events.feed import gap_feed, record_feed, snapshot_feed
from kvorum.metadata.events.model import Event, Position, position_of
from kvorum.metadata.events.source import entries_within
from kvorum.metadata.events.things import keys_of, thing_count, things
from kvorum.metadata.image.acl import (
    Acl,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.metadata.image.record_codec import encode_record
from kvorum.metadata.image.records import (
    AccessControlEntry,
    BrokerRegistrationChange,
    ClientQuota,
    Config,
    Endpoint,
    FeatureLevel,
    NoOp,
    Partition,
    PartitionChange,
    ProducerIds,
    Record,
    RegisterBroker,
    RegisterController,
    RemoveAccessControlEntry,
    RemoveDelegationToken,
    RemoveTopic,
    ScramCredential,
    Topic,
    UnregisterBroker,
    UnregisterController,
)
from kvorum.raft.model.voters import Voter, VoterSet
from kvorum.raft.node.control_records import LeaderChange, leader_change_batch
from kvorum.runtime.ids import uuid_text
from kvorum.storage.format.batch import build_batch, iter_headers, iter_records
from tests.test_metadata.event_source import (
    KRAFT_VERSION_1,
    entries_of,
    image_of,
    leader_change,
    quorum_of,
    told_by,
    voters_change,
)
from tests.test_metadata.tokens import DAY_MS, NOW_MS, token

ORDERS = bytes(15) + b"o"
ENDPOINT = Endpoint("PLAINTEXT", "host", 9092)
BROKER = RegisterBroker(101, 0, bytes(16), (ENDPOINT,), rack="a")
TOPIC = (BROKER, Topic("orders", ORDERS), Partition(ORDERS, 0, (101, 102), (101, 102), 101))
ACL = AccessControlEntry.of(
    ORDERS,
    Acl(
        resource_type=ResourceType.TOPIC,
        resource_name="ord",
        pattern_type=PatternType.PREFIXED,
        principal="User:alice",
        host="10.0.0.0/8",
        operation=AclOperation.READ,
        permission=Permission.DENY,
    ),
)
USER = (("user", "alice"),)


def events(*records: Record) -> list[Event]:
    found = [event for _, event in record_feed(EMPTY_IMAGE, entries_of(records))]
    return [event for event in found if event is not None]


def last(*records: Record) -> tuple[str, str, dict[str, Any]]:
    """Key, kind and fields of the last record's event, as a consumer sees them."""
    event = events(*records)[-1]
    value = json.loads(event.value())
    assert value.pop("version") == 1
    assert value.pop("offset") == len(records) - 1
    assert value.pop("epoch") == 1
    assert value.pop("timestamp_ms") == 1_000_000 + len(records) - 1
    return event.key, value.pop("kind"), value


def test_a_created_topic() -> None:
    names = {"topic": "orders", "topic_id": uuid_text(ORDERS)}
    assert last(*TOPIC[:2]) == ("topic/orders", "topic_created", names)


def test_a_created_partition_has_its_whole_state() -> None:
    key, kind, fields = last(*TOPIC)
    assert (key, kind) == ("partition/orders/0", "partition_created")
    assert fields == {
        "topic": "orders", "topic_id": uuid_text(ORDERS), "partition": 0, "leader": 101,
        "leader_epoch": 0, "partition_epoch": 0, "replicas": [101, 102], "isr": [101, 102],
        "adding_replicas": [], "removing_replicas": [], "leader_recovery_state": 0, "elr": [],
        "last_known_elr": [],
    }  # fmt: skip


def test_a_changed_partition_tells_what_changed_and_the_epochs_after_it() -> None:
    key, kind, fields = last(*TOPIC, PartitionChange(ORDERS, 0, isr=(102,), leader=102))
    assert (key, kind) == ("partition/orders/0", "partition_changed")
    assert fields["changed"] == ["leader", "isr"]
    assert (fields["leader"], fields["isr"], fields["replicas"]) == (102, [102], [101, 102])
    assert (fields["leader_epoch"], fields["partition_epoch"]) == (1, 1)


def test_a_deleted_topic_ends_all_its_keys_behind_an_event_of_another_key() -> None:
    records = (*TOPIC, Config(2, "orders", "retention.ms", "1"), RemoveTopic(ORDERS))
    key, kind, fields = last(*records)
    assert (key, kind, fields["topic"], fields["partitions"]) == (
        "removed", "topic_deleted", "orders", 1,
    )  # fmt: skip
    assert events(*records)[-1].removed == (
        "topic/orders", "partition/orders/0", "config/topic/orders",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"is_fenced": False}, "broker_unfenced"),
        ({"is_fenced": True}, "broker_fenced"),
        ({"in_controlled_shutdown": True}, "broker_changed"),
        ({"log_dirs": (bytes(16),)}, "broker_changed"),
    ],
)
def test_a_changed_broker(change: dict[str, Any], kind: str) -> None:
    key, found, fields = last(BROKER, BrokerRegistrationChange(101, 0, **change))
    assert (key, found) == ("broker/101", kind)
    assert fields["is_fenced"] == change.get("is_fenced", True)
    assert fields["in_controlled_shutdown"] == change.get("in_controlled_shutdown", False)


def test_a_registered_broker() -> None:
    assert last(BROKER) == (
        "broker/101",
        "broker_registered",
        {
            "broker_id": 101, "broker_epoch": 0, "host": "host", "port": 9092, "rack": "a",
            "is_fenced": True, "in_controlled_shutdown": False,
            "incarnation_id": uuid_text(bytes(16)),
        },
    )  # fmt: skip


def test_an_unregistered_broker() -> None:
    records = (BROKER, UnregisterBroker(101, 0))
    assert last(*records)[:2] == ("removed", "broker_unregistered")
    assert events(*records)[-1].removed == ("broker/101",)


def test_an_unregistered_controller() -> None:
    records = (RegisterController(3, b"i" * 16, (), ()), UnregisterController(3))
    assert last(*records)[:2] == ("removed", "controller_unregistered")
    assert events(*records)[-1].removed == ("controller/3",)


def test_configs_of_a_resource_until_the_last_one_is_removed() -> None:
    first, second = Config(2, "t", "retention.ms", "1"), Config(2, "t", "segment.ms", "2")
    key, kind, fields = last(first, second)
    assert (key, kind) == ("config/topic/t", "config_changed")
    assert fields == {
        "resource_type": 2, "resource_name": "t", "name": "segment.ms", "value": "2",
        "configs": {"retention.ms": "1", "segment.ms": "2"},
    }  # fmt: skip
    gone = Config(2, "t", "retention.ms", None)
    key, _, fields = last(first, second, gone)
    assert (key, fields["value"], fields["configs"]) == (
        "config/topic/t",
        None,
        {"segment.ms": "2"},
    )
    records = (first, gone)
    assert last(*records)[0] == "removed"
    assert events(*records)[-1].removed == ("config/topic/t",)


@pytest.mark.parametrize("name", ["ssl.keystore.password", "of.a.plug-in"])
def test_a_config_that_may_be_a_password_is_hidden(name: str) -> None:
    key, _, fields = last(Config(4, "", name, "s3cret"))
    assert key == "config/broker/<default>"
    assert fields["value"] == fields["configs"][name] == "[hidden]"


def test_quotas_of_an_entity_until_the_last_one_is_removed() -> None:
    records = (ClientQuota(USER, "producer_byte_rate", 5.0),)
    assert last(*records) == (
        "quota/user=alice",
        "quota_changed",
        {"entity": "user=alice", "quotas": {"producer_byte_rate": 5.0}}
        | {"key": "producer_byte_rate", "value": 5.0},
    )
    records += (ClientQuota(USER, "producer_byte_rate", None),)
    assert last(*records)[0] == "removed"
    assert events(*records)[-1].removed == ("quota/user=alice",)


def test_feature_levels() -> None:
    records = (FeatureLevel("group.version", 1),)
    fields = {"feature": "group.version", "level": 1}
    assert last(*records) == ("feature/group.version", "feature_changed", fields)
    records += (FeatureLevel("group.version", 0),)
    assert (last(*records)[0], events(*records)[-1].removed) == (
        "removed", ("feature/group.version",),
    )  # fmt: skip


def test_an_acl_until_it_is_deleted() -> None:
    fields = {
        "acl_id": uuid_text(ORDERS), "resource_type": "TOPIC", "resource_name": "ord",
        "pattern_type": "PREFIXED", "principal": "User:alice", "host": "10.0.0.0/8",
        "operation": "READ", "permission": "DENY",
    }  # fmt: skip
    key = f"acl/{uuid_text(ORDERS)}"
    assert last(ACL) == (key, "acl_created", fields)
    records = (ACL, RemoveAccessControlEntry(ORDERS))
    assert last(*records) == ("removed", "acl_deleted", fields)
    assert events(*records)[-1].removed == (key,)


def test_a_delegation_token_until_it_is_removed() -> None:
    made = token(renewers=("User:bob",))
    renewed = token(renewers=("User:bob",), expiration_timestamp_ms=NOW_MS + 5)
    key = "delegation_token/id-1"
    assert last(made)[:2] == (key, "delegation_token_created")
    found_key, kind, fields = last(made, renewed)
    assert (found_key, kind) == (key, "delegation_token_renewed")
    assert fields == {
        "token_id": "id-1", "owner": "User:alice", "requester": "User:alice",
        "renewers": ["User:bob"], "issue_timestamp_ms": NOW_MS,
        "max_timestamp_ms": NOW_MS + 7 * DAY_MS, "expiration_timestamp_ms": NOW_MS + 5,
    }  # fmt: skip
    records = (made, renewed, RemoveDelegationToken("id-1"))
    assert last(*records) == ("removed", "delegation_token_removed", fields)
    assert events(*records)[-1].removed == (key,)


def test_a_registered_controller() -> None:
    key, kind, fields = last(RegisterController(3, bytes(16), (ENDPOINT,), ()))
    assert (key, kind) == ("controller/3", "controller_registered")
    assert (fields["controller_id"], fields["host"], fields["port"]) == (3, "host", 9092)


def test_what_concerns_no_client_has_no_event() -> None:
    secret = ScramCredential("alice", 1, 4096, b"salt", b"stored", b"server")
    assert events(NoOp(), ProducerIds(101, 0, 1_000), secret) == []


def test_an_election_of_a_controller_and_its_voters_by_the_logs_own_bytes() -> None:
    voters = VoterSet.of(Voter(i, bytes(15) + bytes([i]), "host", 9000 + i) for i in (1, 2, 3))
    batch = leader_change_batch(
        LeaderChange(leader_id=2, voters=voters, granting_voters=(3, 2)),
        base_offset=0, epoch=7, timestamp_ms=5, has_voter_set=True,
    )  # fmt: skip
    records = build_batch(
        [(None, encode_record(FeatureLevel("group.version", 1)))],
        base_offset=3, leader_epoch=7, timestamp_ms=6,
    )  # fmt: skip
    feed = record_feed(EMPTY_IMAGE, entries_within(bytes(batch + records), 0, 4))
    found = [(image.end_offset, event) for image, event in feed]
    assert [end_offset for end_offset, _ in found] == [1, 2, 3, 4]
    leader, version, voter_set, feature = (event for _, event in found if event is not None)
    assert (leader.key, leader.kind) == ("quorum/leader", "controller_elected")
    assert leader.fields == {"controller_id": 2, "voters": [1, 2, 3], "granting_voters": [2, 3]}
    assert (leader.origin.epoch, leader.origin.timestamp_ms) == (7, 5)
    assert version.fields == {"feature": "kraft.version", "level": 1}
    assert (voter_set.key, voter_set.kind) == ("quorum/voters", "voters_changed")
    assert voter_set.fields["voters"] == [1, 2, 3]
    assert voter_set.fields["voter_endpoints"][1]["port"] == 9002
    assert feature.origin.offset == 3
    # A position inside the batch: the records before it are left out.
    inside = entries_within(bytes(batch + records), 2, 3)
    assert [entry.offset for entry in inside] == [2]


def test_a_position_is_read_back_from_a_value() -> None:
    (event,) = events(FeatureLevel("group.version", 1))
    assert position_of(event.value()) == event.position
    assert event.position.is_whole


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"offset":"x"}', b"\xff"])
def test_a_value_that_is_no_event_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="not an event of the metadata"):
        position_of(value)


STATE = (
    *TOPIC,
    Config(2, "orders", "retention.ms", "1"),
    ClientQuota(USER, "request_percentage", 9),
    ACL,
)


def test_a_gap_tells_the_range_ends_what_is_gone_and_restates_the_rest() -> None:
    image = image_of(STATE)
    known = ("topic/gone", "topic/orders", "quorum/leader", "gap", "removed")
    feed = gap_feed(image, first_offset=2, timestamp_ms=77, known=known)
    gap, *rest = (event for _, event in feed if event is not None)
    assert (gap.key, gap.kind, gap.removed) == ("gap", "gap", ("topic/gone",))
    assert gap.origin.offset == len(STATE) - 1
    assert gap.origin.timestamp_ms == 77
    count = thing_count(image) + 1
    assert gap.fields == {"first_offset": 2, "index": 0, "count": count}
    assert [event.key for event in rest] == list(keys_of(image))
    assert [event.fields["index"] for event in rest] == list(range(1, count))
    assert {event.kind for event in rest} == {"snapshot"}
    assert [event.position.is_whole for event in (gap, *rest)] == [False] * (count - 1) + [True]


def test_the_events_of_a_snapshot_go_on_behind_any_of_them() -> None:
    image = image_of(STATE)
    whole = list(gap_feed(image, first_offset=0, timestamp_ms=77, known=()))
    for index, (_, event) in enumerate(whole):
        assert event is not None
        position: Position = position_of(event.value())
        rest = list(snapshot_feed(image, position))
        assert [e.value() for _, e in rest if e] == [e.value() for _, e in whole[index + 1 :] if e]


def test_a_gap_restates_the_quorum_as_far_as_the_snapshot_knows_it() -> None:
    records = [KRAFT_VERSION_1, voters_change(2, 1), leader_change(2)]
    quorum = quorum_of(records)
    known = ("quorum/leader", "quorum/voters", "feature/kraft.version")
    image = image_of(STATE)
    feed = gap_feed(image, first_offset=2, timestamp_ms=77, known=known, quorum=quorum)
    gap, *rest = (event for _, event in feed if event is not None)
    assert gap.removed == ()
    assert gap.fields["count"] == 1 + len(rest)
    assert [event.key for event in rest] == list(keys_of(image, quorum))
    told = {key: json.loads(value) for key, value in told_by(records).values()}
    for event in rest[-2:]:
        state = {name: told[event.key][name] for name in event.fields.keys() - {"index", "count"}}
        assert state.items() <= event.fields.items()
    assert rest[-1].fields["voters"] == [1, 2]


def test_a_thing_has_the_fields_of_its_last_event() -> None:
    by_key = {event.key: event for event in events(*STATE)}
    for key, fields in things(image_of(STATE)):
        assert fields().items() <= by_key[key].fields.items()


def test_records_of_a_batch_keep_their_own_timestamps() -> None:
    batch = build_batch([(b"a", b"1"), (b"b", None), (b"c", b"2")], timestamp_ms=(50, 20, 90))
    ((position, header),) = iter_headers(bytes(batch))
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (50, 90)
    found = [(r.timestamp_ms, r.key, r.value) for r in iter_records(batch, position, header)]
    assert found == [(50, b"a", b"1"), (20, b"b", None), (90, b"c", b"2")]
