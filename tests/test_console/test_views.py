"""What each page shows, of a sample; and the patches that bring it there."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.console.core.patch import difference, without_nulls
from kvorum.console.core.replica_log import ReplicaLog, Seen
from kvorum.console.core.sample import Answer, QuorumNode, Sample
from kvorum.console.core.topics_summary import TopicBook, state_of, summary_of, totals_of
from kvorum.console.core.views import BadParameter, NotThere, document_of, whole, window
from kvorum.metadata.image.image import RESOURCE_TOPIC
from kvorum.metadata.image.records import Config, Endpoint, PartitionChange, Topic
from tests.test_console.samples import (
    NOW_MS,
    ORDERS,
    cluster_records,
    facts_with,
    image_with,
    registration,
    sample_with,
    topic_records,
)

documents = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(st.text(max_size=2), documents, max_size=4)


def merged(target, patch):
    """RFC 7396's own procedure, MergePatch(Target, Patch)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


@given(objects, objects)
def test_patch_makes_the_second_document_of_the_first(before, after):
    assert merged(before, difference(before, after)) == after


@given(objects)
def test_equal_documents_have_an_empty_patch(document):
    assert difference(document, document) == {}


def test_patch_tells_true_from_one():
    assert difference({"a": 1}, {"a": True}) == {"a": True}


def test_nulls_are_left_out_at_any_depth():
    assert without_nulls({"a": None, "b": [{"c": None}], "d": {"e": None}}) == {"b": [{}], "d": {}}


def test_quorum_shows_roles_epochs_and_lag():
    view = document_of("quorum", facts_with(), {})
    nodes = view["nodes"]
    assert view["leader_id"] == 2
    assert [nodes[key]["role"] for key in view["order"]] == [
        "follower", "leader", "unreachable", "observer", "silent",
    ]  # fmt: skip
    assert (nodes["1"]["lag"], nodes["3"]["lag"], nodes["101"]["lag"]) == (0, 40, 1)
    assert nodes["1"]["epoch"] == 5
    assert "epoch" not in nodes["3"]
    assert nodes["3"]["fetch_age_ms"] == 9_000
    assert "caught_up_age_ms" not in nodes["3"]
    assert nodes["101"]["address"] == "127.0.0.1:9092"
    assert view["totals"] == {
        "topics": 1, "partitions": 3, "offline": 0, "under_min_isr": 0, "under_replicated": 0,
    }  # fmt: skip


def test_quorum_without_a_leader_says_why_and_knows_no_lag():
    sample = sample_with(leader_id=-1, no_quorum="no quorum: 1 of 3 voters reachable")
    view = document_of("quorum", facts_with(sample), {})
    assert "leader_id" not in view
    assert view["no_quorum"].startswith("no quorum")
    assert all("lag" not in row for row in view["nodes"].values())


def test_quorum_that_the_user_may_not_see_has_no_numbers_and_names_the_right():
    right = "DESCRIBE on the cluster"
    hidden = {"quorum": right, "elections": "CLUSTER_ACTION on the cluster"}
    sample = Sample(taken_ms=NOW_MS, image=image_with(*cluster_records()), hidden=hidden)
    view = document_of("quorum", facts_with(sample), {})
    assert view["hidden"] == hidden
    assert not {"leader_id", "leader_epoch", "high_watermark"} & view.keys()


def test_min_isr_that_was_not_read_is_not_shown():
    sample = sample_with(hidden={"min_isr": "CLUSTER_ACTION on the cluster"})
    assert "min_isr" not in document_of("topics", facts_with(sample), {})["rows"]["orders"]
    assert "min_isr" not in document_of("topic", facts_with(sample), {"name": "orders"})["summary"]
    assert document_of("topics", facts_with(), {})["rows"]["orders"]["min_isr"] == 1


@pytest.mark.parametrize(("protocol", "port"), [("SASL_SSL", 9094), ("SSL", 9092)])
def test_address_of_a_broker_is_its_listener_for_the_user(protocol, port):
    endpoints = (Endpoint("NODES", "h", 9092, "SSL"), Endpoint("CLIENTS", "h", 9094, "SASL_SSL"))
    record = dataclasses.replace(registration(101), endpoints=endpoints)
    sample = sample_with(image_with(record), protocol=protocol)
    address = f"h:{port}"
    assert document_of("brokers", facts_with(sample), {})["rows"]["101"]["address"] == address
    assert document_of("quorum", facts_with(sample), {})["nodes"]["101"]["address"] == address


def test_dead_broker_of_a_lab_stays_on_the_quorum_page_under_a_leader_that_never_heard_it():
    dead = {"name": "broker-102", "is_broker": True, "state": "dead"}
    heard = sample_with()
    nodes = tuple(node for node in heard.nodes if node.node_id != 102)
    unheard = sample_with(nodes=(*nodes, QuorumNode(node_id=103, kind="observer")))
    views = [
        document_of("quorum", facts_with(sample, processes={102: dead}), {})
        for sample in (heard, unheard)
    ]
    rows = [view["nodes"]["102"] for view in views]
    assert [(row["role"], row["kind"]) for row in rows] == [("silent", "observer")] * 2
    assert [(row["is_broker"], row["process"]) for row in rows] == [(True, dead)] * 2
    assert views[1]["order"] == ["1", "2", "3", "101", "102", "103"]


def test_brokers_show_what_they_lead_and_what_is_out_of_sync():
    change = PartitionChange(topic_id=ORDERS, partition_id=1, isr=(101, 103))
    image = image_with(change, base=image_with(*cluster_records()))
    rows = document_of("brokers", facts_with(sample_with(image)), {})["rows"]
    assert [rows[key]["state"] for key in ("101", "102", "103")] == ["active"] * 3
    assert (rows["101"]["leaders"], rows["101"]["replicas"]) == (3, 3)
    assert [rows[key]["out_of_sync"] for key in ("101", "102", "103")] == [0, 1, 0]


def many_topics(count):
    for number in range(count):
        yield from topic_records(
            name=f"t{number:03}", topic_id=number.to_bytes(16, "big"), partitions=number % 4 + 1
        )


def test_topics_come_a_page_at_a_time():
    facts = facts_with(sample_with(image_with(*cluster_records(), *many_topics(120))))
    view = document_of("topics", facts, {"start": "100", "limit": "15"})
    assert (view["total"], view["matched"]) == (121, 121)
    assert view["order"] == [f"t{n:03}" for n in range(99, 114)]
    assert list(view["rows"]) == view["order"]
    assert len(document_of("topics", facts, {"limit": "999999"})["order"]) == 121
    assert document_of("topics", facts, {"q": "T01"})["order"] == [f"t01{n}" for n in range(10)]
    assert document_of("topics", facts, {"sort": "partitions"})["order"][0] == "t003"


def test_topics_with_problems_come_first_or_alone():
    offline = topic_records(name="down", topic_id=bytes([9] * 16), isr=(101,), leader=-1)
    thin = topic_records(name="thin", topic_id=bytes([8] * 16), isr=(101, 102))
    facts = facts_with(sample_with(image_with(*cluster_records(), *thin, *offline)))
    assert document_of("topics", facts, {"sort": "problems"})["order"] == ["down", "thin", "orders"]
    assert document_of("topics", facts, {"only": "problems"})["order"] == ["down", "thin"]


def test_internal_topics_show_when_they_are_asked_for():
    internal = topic_records(name="__consumer_offsets", topic_id=bytes([9] * 16))
    facts = facts_with(sample_with(image_with(*cluster_records(), *internal)))
    assert document_of("topics", facts, {})["order"] == ["orders"]
    assert "__consumer_offsets" in document_of("topics", facts, {"internal": "1"})["order"]
    assert document_of("topics", facts, {"q": "consumer"})["order"] == ["__consumer_offsets"]


def test_topic_shows_each_partition_with_its_isr():
    change = PartitionChange(topic_id=ORDERS, partition_id=2, isr=(101,))
    config = Config(RESOURCE_TOPIC, "orders", "min.insync.replicas", "2")
    image = image_with(change, config, base=image_with(*cluster_records()))
    facts = facts_with(sample_with(image))
    view = document_of("topic", facts, {"name": "orders"})
    assert [view["rows"][key]["state"] for key in view["order"]] == ["ok", "ok", "under-min-isr"]
    assert view["rows"]["2"]["isr"] == [101]
    only = document_of("topic", facts, {"name": "orders", "only": "problems"})
    assert only["order"] == ["2"]


@pytest.mark.parametrize("name", ["", "nothing", "../etc/passwd", "<b>", "x" * 5_000])
def test_topic_that_does_not_exist_is_named(name):
    view = document_of("topic", facts_with(), {"name": name})
    assert view == {"absent": f"the cluster has no topic {name!r}", "news": []}


def test_replication_shows_each_replica_as_its_broker_tells_it():
    log = ReplicaLog(
        start_offset=5,
        end_offset=42,
        high_watermark=40,
        last_stable_offset=38,
        epochs=((0, 0), (3, 20)),
    )
    seen = {101: Seen(log=log), 102: Seen(log=log, problem="it hangs")}
    change = PartitionChange(topic_id=ORDERS, partition_id=1, isr=(101, 102))
    image = image_with(change, base=image_with(*cluster_records()))
    facts = facts_with(sample_with(image), logs={("orders", 1): seen})
    view = document_of("replication", facts, {"name": "orders", "start": "1", "limit": "1"})
    assert (view["order"], view["matched"]) == (["1"], 3)
    partition = view["rows"]["1"]
    assert (partition["leader"], partition["state"]) == (101, "under-replicated")
    assert partition["replica_order"] == ["101", "102", "103"]
    assert partition["replicas"]["101"] == {
        "id": 101, "role": "leader", "is_in_sync": True, "start": 5,
        "stable": 38, "high_watermark": 40, "end": 42, "epochs": [[0, 0], [3, 20]],
    }  # fmt: skip
    assert partition["replicas"]["102"]["problem"] == "it hangs"
    assert partition["replicas"]["102"]["end"] == 42
    nothing_yet = {"id": 103, "role": "follower", "is_in_sync": False}
    assert partition["replicas"]["103"] == nothing_yet


def test_replication_shows_at_most_eight_partitions_at_once():
    image = image_with(*cluster_records(), *topic_records("wide", bytes([6] * 16), 20))
    facts = facts_with(sample_with(image))
    view = document_of("replication", facts, {"name": "wide", "limit": "200"})
    assert (len(view["rows"]), view["limit"], view["matched"]) == (8, 8, 20)


def test_replication_of_a_topic_that_does_not_exist_says_so():
    view = document_of("replication", facts_with(), {"name": "nothing"})
    assert view["absent"] == "the cluster has no topic 'nothing'"


def test_replication_of_the_metadata_log_has_voters_as_they_tell_and_brokers_up_to_their_end():
    log = ReplicaLog(start_offset=50, end_offset=100, high_watermark=90, epochs=((4, 40), (5, 99)))
    leader = Answer(role="leader", epoch=5, leaderless_ms=0, log=log)
    view = document_of("replication", facts_with(sample_with(answers={2: leader})), {})
    nodes = view["rows"]["metadata"]["replicas"]
    assert (nodes["2"]["start"], nodes["2"]["high_watermark"]) == (50, 90)
    assert "stable" not in nodes["2"]
    assert (nodes["1"]["role"], nodes["1"]["end"]) == ("unreachable", 100)
    assert (nodes["101"]["end"], nodes["101"]["epochs"]) == (99, [[4, 40]])
    assert "high_watermark" not in nodes["101"]


def test_replication_of_a_quorum_that_the_user_may_not_see_has_no_rows():
    hidden = {"quorum": "DESCRIBE on the cluster"}
    view = document_of("replication", facts_with(sample_with(hidden=hidden)), {})
    assert (view["rows"], view["hidden"]) == ({}, hidden)


def test_groups_are_waiting_until_they_were_read():
    assert document_of("groups", facts_with(), {})["is_waiting"]
    offsets = [
        {"topic": "orders", "partition": n, "committed_offset": 5, "end_offset": 5 + n, "lag": n}
        for n in range(3)
    ]
    group = {
        "group": "g/1", "state": "Stable", "type": "classic", "protocol": "range",
        "coordinator": 101, "members": [{"member_id": "m"}], "offsets": offsets,
    }  # fmt: skip
    facts = facts_with(groups={"g/1": group})
    assert document_of("groups", facts, {})["rows"]["g/1"]["lag"] == 3
    one = document_of("group", facts, {"name": "g/1", "limit": "2"})
    assert one["order"] == ["orders-0", "orders-1"]
    assert one["matched"] == 3
    assert document_of("group", facts, {"name": "g/2"}) == {
        "absent": "the cluster has no group 'g/2'"
    }
    some = facts_with(groups={"g/1": group}, groups_left_out=7)
    view = document_of("group", some, {"name": "g/2"})
    assert view == {"absent": "the cluster has no group 'g/2' among the first 1", "left_out": 7}


@pytest.mark.parametrize("text", ["-1", "1e3", "²", "9" * 30, "9" * 5_000, "1 ", "0x1"])
def test_number_that_is_none_is_refused(text):
    with pytest.raises(BadParameter, match="start="):
        window({"start": text})


def test_numbers_have_defaults_and_bounds():
    assert whole({}, "at", 7) == 7
    assert window({"limit": "0"}) == (0, 1)
    assert window({"limit": "100000"}) == (0, 200)


def test_unknown_view_and_sort_are_refused():
    with pytest.raises(NotThere, match="no view 'cluster'"):
        document_of("cluster", facts_with(), {})
    with pytest.raises(BadParameter, match="sort=size"):
        document_of("topics", facts_with(), {"sort": "size"})


def test_book_counts_as_a_count_from_nothing_does():
    image = image_with(*cluster_records(), *many_topics(20))
    book = TopicBook()
    before = book.read(image)
    changed = image_with(PartitionChange(topic_id=ORDERS, partition_id=0, isr=(101,)), base=image)
    after = book.read(changed)
    afresh = {topic.name: summary_of(topic, 1) for topic in changed.topics.values()}
    assert after.topics == afresh
    assert after.totals == totals_of(afresh.values())
    # Only the topic that changed was counted again.
    assert [name for name in afresh if after.topics[name] is not before.topics[name]] == ["orders"]
    assert book.read(changed) is after


def test_book_sees_a_changed_min_isr():
    image = image_with(*cluster_records())
    book = TopicBook()
    book.read(image)
    config = Config(RESOURCE_TOPIC, "orders", "min.insync.replicas", "3")
    shrunk = PartitionChange(topic_id=ORDERS, partition_id=0, isr=(101, 102))
    assert book.read(image_with(shrunk, base=image)).totals.under_min_isr == 0
    assert book.read(image_with(shrunk, config, base=image)).totals.under_min_isr == 1


def test_state_is_the_worst():
    image = image_with(
        *cluster_records(), Topic("one", bytes([7] * 16)),
        *list(topic_records(name="x", topic_id=bytes([6] * 16), isr=(101,), leader=-1)),
    )  # fmt: skip
    down = image.topics[bytes([6] * 16)].partitions[0]
    well = image.topics[ORDERS].partitions[0]
    assert (state_of(down, 2), state_of(well, 2), state_of(well, 5)) == ("offline", "ok", "ok")


def test_a_replica_that_a_reassignment_adds_is_no_illness():
    moving = PartitionChange(topic_id=ORDERS, partition_id=0, replicas=(101, 102, 103, 104))
    adding = dataclasses.replace(moving, adding_replicas=(104,))
    image = image_with(*cluster_records())
    states = [
        state_of(image_with(change, base=image).topics[ORDERS].partitions[0], 1)
        for change in (moving, adding)
    ]
    assert states == ["under-replicated", "ok"]
