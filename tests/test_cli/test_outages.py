"""Followers of `kvorum consume` whose only broker is killed and comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live.clients import Topics
from tests.live.cluster import Cluster, Command
from tests.polling import eventually
from tests.test_cli.pipes import sent

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("outages"), controllers=1, brokers=1) as cluster:
        yield cluster


def test_followers_go_on_when_their_only_broker_is_back(cluster, tmp_path):
    Topics(cluster.bootstrap).create("orders", partitions=2, replicas=1)
    sent(cluster, "orders", "before")
    arguments = ("consume", "orders", "-F", "-b", cluster.bootstrap, "--timeout", "1")
    plain = Command(*arguments, error_file=tmp_path / "plain")
    member = Command(*arguments, "-g", "billing", error_file=tmp_path / "member")
    try:
        plain.wait_line("before")
        member.wait_line("before")
        cluster.kill("broker-101")
        eventually(
            lambda: "group billing is asked again" in member.errors() or not member.is_running(),
            "the member has missed its coordinator",
        )
        cluster.restart("broker-101")
        sent(cluster, "orders", "after")
        plain.wait_line("after")
        member.wait_line("after")
    finally:
        plain.close()
        member.close()
