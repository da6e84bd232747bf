"""`kvorum consume --share-group` and `kvorum groups` on a live cluster of one broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.live.clients import Topics, settings
from tests.live.cluster import Cluster
from tests.polling import DEADLINE_S
from tests.test_cli.pipes import piped, printed, sent

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("share"), controllers=1, brokers=1) as cluster:
        yield cluster


def begin_with_the_first_record(cluster: Cluster, group: str) -> None:
    entry = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient(settings(cluster.bootstrap))
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(DEADLINE_S)


def offsets_of(cluster: Cluster, group: str) -> tuple[int, int]:
    """The start offset and the lag of the group's only share-partition."""
    (found,) = cluster.cli_json("groups", "describe", group)
    assert (found["type"], found["protocol"], found["state"]) == ("share", "simple", "Empty")
    (row,) = found["offsets"]
    return row["committed_offset"], row["lag"]


def test_records_that_are_printed_are_accepted_and_the_others_come_again(cluster: Cluster):
    Topics(cluster.bootstrap).create("orders", replicas=1)
    sent(cluster, "orders", stdin=b"".join(b"v%d\n" % at for at in range(8)))
    begin_with_the_first_record(cluster, "workers")
    first = printed(cluster, "orders", "--share-group", "workers", "-n", "3")
    assert first == [b"v0", b"v1", b"v2"]
    assert offsets_of(cluster, "workers") == (3, 5)
    rest = printed(cluster, "orders", "--share-group", "workers")
    assert rest == [b"v3", b"v4", b"v5", b"v6", b"v7"]
    assert offsets_of(cluster, "workers") == (8, 0)
    reset = ("groups", "reset-offsets", "workers", "--topic", "orders", "--to-offset", "6")
    assert "nothing is changed yet" in cluster.cli(*reset).stderr
    assert offsets_of(cluster, "workers") == (8, 0)
    assert "reset" in cluster.cli(*reset, "--execute").stdout
    assert offsets_of(cluster, "workers") == (6, 2)
    again = printed(cluster, "orders", "--share-group", "workers")
    assert again == [b"v6", b"v7"]
    forget = ("groups", "delete-offsets", "workers", "--topic", "orders")
    assert "deleted" in cluster.cli(*forget).stdout
    (found,) = cluster.cli_json("groups", "describe", "workers")
    assert found["offsets"] == []
    assert "deleted" in cluster.cli("groups", "delete", "workers").stdout


@pytest.mark.parametrize(
    "more", [("-o", "end"), ("-o", "3"), ("-p", "0"), ("--isolation", "read_committed")]
)
def test_what_a_share_groups_configs_decide_is_no_option(cluster: Cluster, more: tuple[str, str]):
    done = cluster.cli("consume", "orders", "--share-group", "workers", *more)
    assert done.returncode == 2
    assert "is not for --share-group" in done.stderr


def test_a_member_has_one_group(cluster: Cluster):
    done = cluster.cli("consume", "orders", "--share-group", "workers", "-g", "x")
    assert (done.returncode, "give --group or --share-group" in done.stderr) == (2, True)


def test_a_share_group_may_be_told_its_start_before_it_has_members(cluster: Cluster):
    Topics(cluster.bootstrap).create("early", replicas=1)
    sent(cluster, "early", stdin=b"one\ntwo\n")
    reset = ("groups", "reset-offsets", "later", "--topic", "early", "--to-earliest", "--execute")
    assert "reset" in cluster.cli(*reset, "--share").stdout
    assert printed(cluster, "early", "--share-group", "later") == [b"one", b"two"]
    listed = cluster.cli_json("groups", "list", "--type", "share")
    assert "later" in {row["group"] for row in listed}
    assert "later" not in {
        row["group"] for row in cluster.cli_json("groups", "list", "--type", "classic")
    }
    consumers = ("groups", "reset-offsets", "others", "--topic", "early", "--to-earliest")
    assert "reset" in cluster.cli(*consumers, "--execute").stdout
    refused = cluster.cli(*consumers, "--execute", "--share")
    assert refused.returncode == 1
    assert refused.stderr == "kvorum: group others is of type classic: leave out --share\n"


def test_a_member_of_the_wrong_kind_is_told_the_groups_type_and_the_option(cluster: Cluster):
    Topics(cluster.bootstrap).create("mixed", replicas=1)
    sent(cluster, "mixed", stdin=b"one\n")
    assert printed(cluster, "mixed", "--group", "readers") == [b"one"]
    refused = cluster.cli("consume", "mixed", "--share-group", "readers")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.splitlines()[-1] == (
        "kvorum: group readers is of type consumer, which --share-group cannot join: kvorum "
        "consume --group readers reads as its member, kvorum groups describe readers shows it"
    )
    make = ("groups", "reset-offsets", "queue", "--topic", "mixed", "--to-earliest", "--execute")
    assert cluster.cli(*make, "--share").returncode == 0
    refused = cluster.cli("consume", "mixed", "--group", "queue")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.splitlines()[-1] == (
        "kvorum: group queue is of type share, which --group cannot join: kvorum consume "
        "--share-group queue reads as its member, kvorum groups describe queue shows it"
    )


def test_a_new_group_that_leaves_out_older_records_says_so_once(cluster: Cluster):
    Topics(cluster.bootstrap).create("late", replicas=1)
    quiet = piped(cluster, "consume", "late", "--share-group", "quiet")
    assert quiet.stderr == b"0 records\n"  # there are no older records
    sent(cluster, "late", stdin=b"one\ntwo\n")
    first = piped(cluster, "consume", "late", "--share-group", "tail")
    assert (first.returncode, first.stdout) == (0, b"")
    hint, count = first.stderr.decode().splitlines()
    assert hint == (
        "kvorum: share group tail begins at the end of late, without the older records: its "
        "share.auto.offset.reset is latest. To read them: kvorum configs alter --entity group "
        "--name tail --set share.auto.offset.reset=earliest before the group begins, kvorum groups "
        "reset-offsets tail --topic late --to-earliest --execute once it has begun"
    )
    assert count == "0 records"
    again = piped(cluster, "consume", "late", "--share-group", "tail")
    assert again.stderr == b"0 records\n"
    reset = ("groups", "reset-offsets", "tail", "--topic", "late", "--to-earliest", "--execute")
    assert cluster.cli(*reset).returncode == 0
    assert printed(cluster, "late", "--share-group", "tail") == [b"one", b"two"]
    begin_with_the_first_record(cluster, "head")
    head = piped(cluster, "consume", "late", "--share-group", "head")
    assert (head.stdout, head.stderr) == (b"one\ntwo\n", b"2 records\n")


def test_a_cluster_without_share_groups_says_how_to_switch_them_on(cluster: Cluster):
    Topics(cluster.bootstrap).create("off", replicas=1)
    assert cluster.cli("features", "downgrade", "--feature", "share.version=0").returncode == 0
    try:
        done = cluster.cli("consume", "off", "--share-group", "nobody")
        assert (done.returncode, "features upgrade --feature share.version=2" in done.stderr) == (
            1,
            True,
        )
    finally:
        on = cluster.cli("features", "upgrade", "--feature", "share.version=2")
        assert on.returncode == 0
