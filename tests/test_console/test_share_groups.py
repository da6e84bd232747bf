"""The page of groups shows share groups: as two brokers describe one, and as the page's JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from kvorum.client.cluster.broker_backend import BrokerBackend
from kvorum.client.failures import EXIT_NOT_AUTHORIZED, CommandFailed
from kvorum.client.groups.group_client import GroupClient, NoSuchGroup
from kvorum.client.groups.streams_members import streams_members
from kvorum.console.core.share_figures import ShareFigures
from kvorum.console.core.views import document_of
from kvorum.console.desk import described_groups
from kvorum.console.static_files import FOLDER
from kvorum.metadata.image.records import Config
from kvorum.runtime.errors import ErrorCode
from tests.polling import eventually
from tests.test_broker.group_requests import group_led_by, join
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient
from tests.test_console.samples import facts_with
from tests.test_share.members import (
    CONFIG,
    RESOURCE_GROUP,
    Member,
    beat,
    id_of,
    joined,
    produce,
)

ACCEPT = 1
TOPIC = "orders"
TIMEOUT_S = 10.0


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    harness = Harness(tmp_path_factory.mktemp("console-share"), count=2, config=CONFIG)
    harness.call(lambda: harness.cluster.controller.create(TOPIC, [(1, 2)]))
    yield harness
    harness.close()


@pytest.fixture
def raw(harness: Harness) -> Iterator[RawClient]:
    raw = RawClient(harness.cluster.brokers[1].port)
    yield raw
    raw.close()


@pytest.fixture
def client(harness: Harness) -> Iterator[GroupClient]:
    backend = BrokerBackend([("127.0.0.1", harness.cluster.brokers[1].port)], TIMEOUT_S)
    client = GroupClient(backend, TIMEOUT_S)
    yield client
    client.close()
    backend.close()


@pytest.fixture
def group_id(raw: RawClient, harness: Harness) -> str:
    def has_coordinator() -> bool:
        values = {"key_type": 0, "coordinator_keys": ["x"]}
        return raw.call("find_coordinator", 6, values).coordinators[0].error_code == 0

    eventually(has_coordinator, "the topic of offsets is there")
    group_id = group_led_by(raw, 1, "workers")
    configs = Config(RESOURCE_GROUP, group_id, "share.auto.offset.reset", "earliest")
    harness.call(lambda: harness.cluster.controller.commit(configs))
    return group_id


def test_a_share_group_has_members_with_epochs_and_share_partitions_with_lag(
    raw, client, harness, group_id
):
    epochs = {name: joined(raw, group_id, name, TOPIC).member_epoch for name in ("a", "b")}
    epochs["a"] = beat(raw, group_id, "a", epochs["a"]).member_epoch
    member = Member(raw, group_id, "a", id_of(harness, TOPIC))
    produce(raw, TOPIC, 10)
    member.take()
    member.acknowledge([(0, 3, ACCEPT)])
    join(raw, group_led_by(raw, 1, "readers"))

    listed = [str(row["group"]) for row in client.list_groups([])]
    rows, problem = described_groups(client, listed, {})
    assert problem == ""
    facts = facts_with(groups=rows)
    one = document_of("groups", facts, {"q": group_id})
    assert one["rows"][group_id] == {
        "group": group_id, "type": "share", "state": "Stable", "protocol": "simple",
        "coordinator": 1, "members": 2, "partitions": 1, "lag": 6,
    }  # fmt: skip
    view = document_of("group", facts, {"name": group_id})
    assert view["type"] == "share"
    assert view["rows"] == {
        f"{TOPIC}-0": {
            "topic": TOPIC, "partition": 0, "committed_offset": 4, "end_offset": 10, "lag": 6,
            "metadata": "", "members": ["a", "b"],
        }
    }  # fmt: skip
    assert {
        name: (row["client_host"], row["partitions"], row["member_epoch"])
        for name, row in view["member_rows"].items()
    } == {name: ("/127.0.0.1", [f"{TOPIC}-0"], epochs[name]) for name in epochs}
    # Without a list before it, the same answer: `kvorum groups describe` asks so.
    fresh = GroupClient(client._backend, TIMEOUT_S)
    assert fresh.describe([group_id]) == [rows[group_id]]
    fresh.close()


def test_a_group_that_is_deleted_after_it_was_listed_is_no_group(client):
    client._listed_types["gone"] = "share"
    with pytest.raises(NoSuchGroup):
        client.describe(["gone"])


def test_a_user_who_may_not_describe_a_share_group_is_told_which_right_is_missing(
    client, monkeypatch
):
    client._listed_types["workers"] = "share"
    refused = SimpleNamespace(
        error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, error_message=None, members=[]
    )
    monkeypatch.setattr(client, "_ask", lambda *_: (1, SimpleNamespace(groups=[refused])))
    with pytest.raises(CommandFailed, match="DESCRIBE") as caught:
        client.describe(["workers"])
    assert caught.value.exit_code == EXIT_NOT_AUTHORIZED
    rows, problem = described_groups(client, ["workers"], {})
    assert (rows, problem) == ({}, str(caught.value))


STREAMS = SimpleNamespace(
    topology=None,
    members=[
        SimpleNamespace(
            member_id="a",
            instance_id=None,
            client_id="c",
            client_host="/h",
            member_epoch=1,
            process_id="p",
            assignment=SimpleNamespace(active_tasks=(), standby_tasks=()),
        )
    ],
)


def test_the_page_reads_only_fields_that_the_documents_have():
    member = {
        "member_id": "a", "group_instance_id": "i", "client_id": "c", "client_host": "/h",
        "member_epoch": 3, "partitions": ["orders-0"],
    }  # fmt: skip
    offset = {
        "topic": "orders", "partition": 0, "committed_offset": 4, "end_offset": 10, "lag": 6,
        "metadata": "", "member_id": "a",
    }  # fmt: skip
    group = {
        "group": "g", "state": "Stable", "type": "share", "protocol": "simple", "coordinator": 1,
        "members": [member], "offsets": [offset],
    }  # fmt: skip
    row = {
        "in_flight": 3, "held": 2, "delivered_once": 1, "delivered_twice": 1, "delivered_more": 1,
    }  # fmt: skip
    figures = ShareFigures(rows={("g", "orders", 0): row})
    facts = facts_with(groups={"g": group}, figures=figures)
    view = document_of("group", facts, {"name": "g"})
    fields = {
        *document_of("groups", facts, {})["rows"]["g"],
        *view["rows"]["orders-0"],
        *view["member_rows"]["a"],
        # Of the members of a Streams group.
        *streams_members(STREAMS, {})[0],
    }
    script = (FOLDER / "groups.js").read_text(encoding="utf-8")
    read = set(re.findall(r"\br\.(\w+)", script))
    assert len(read) > 10
    assert read <= fields
    assert row.keys() <= read
    assert "figures_note" in script and "figures_note" in view
