"""A node that was away while the log was trimmed comes back through a snapshot (row Q3)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvorum.chaos.live.host.links import Link, ProxyStream
from kvorum.chaos.live.host.toxiproxy import Toxic, Toxiproxy
from kvorum.chaos.live.host.toxiproxy_server import ToxiproxyServer
from tests.live.by_hand import HandMade
from tests.live.clients import TopicMaker, Topics
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

CHUNK_BYTES = 2_000
CONNECTION_BYTES = 20_000
"""After so many bytes the proxy cuts the connection; the snapshot is longer."""

SETTINGS = (
    "metadata.log.max.record.bytes.between.snapshots=20000",
    "metadata.max.retention.bytes=150000",
    f"controller.quorum.snapshot.chunk.bytes={CHUNK_BYTES}",
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[HandMade]:
    made = HandMade(tmp_path, controllers=3, brokers=1, is_static=True, settings=SETTINGS)
    yield made
    made.close()


def snapshots_of(cluster: HandMade, name: str) -> list[Path]:
    return sorted((cluster.data(name) / "__cluster_metadata-0").glob("*.checkpoint"))


def test_transfer_goes_on_where_it_was_cut_while_topics_are_made(
    cluster: HandMade, tmp_path: Path
) -> None:
    ports = cluster.ports
    server_port = ports.controller + 8
    links = [
        Link(
            source="controller-3",
            destination=f"controller-{peer}",
            listen=f"127.0.0.1:{ports.controller + 4 + peer}",
            upstream=cluster.address(f"controller-{peer}"),
        )
        for peer in (1, 2)
    ]
    overrides = ",".join(f"{link.destination[-1]}={link.listen}" for link in links)
    cluster.change("controller-3", peer_address_overrides=overrides)
    with ToxiproxyServer(port=server_port, log_file=str(tmp_path / "toxiproxy.log")):
        api = Toxiproxy("127.0.0.1", server_port)
        api.populate(links)
        # One of the first two nodes leads, so that node 3 has a leader to fetch from.
        cluster.start("controller-1", "controller-2", "broker-101")
        topics = Topics(cluster.bootstrap)
        topics.create("first", replicas=1)
        cluster.start("controller-3")
        cluster.wait_caught_up(3, "Follower")
        cluster.kill("controller-3")
        for number in range(16):
            topics.create(f"wide-{number}", partitions=200, replicas=1)
        held = [cluster.data(f"controller-{i}") for i in (1, 2)]
        assert all(path.is_dir() for path in held)
        eventually(lambda: len(snapshots_of(cluster, "controller-1")) >= 2, "snapshots were made")

        for link in links:
            api.add_toxic(
                link,
                Toxic(
                    name="cut",
                    kind="limit_data",
                    stream=ProxyStream.DOWNSTREAM,
                    attributes={"bytes": CONNECTION_BYTES},
                ),
            )
        maker = TopicMaker(cluster.bootstrap, "meanwhile", replicas=1, pause_s=0.05)
        errors = tmp_path / "controller-3.err"
        seen = len(errors.read_text())
        cluster.start("controller-3")

        def said() -> str:
            return errors.read_text()[seen:]

        eventually(lambda: "begins anew at snapshot=" in said(), "a snapshot was loaded")
        for link in links:
            api.remove_toxic(link, "cut")
        cluster.wait_caught_up(3, "Follower")
    (begun,) = re.findall(r"fetches snapshot=(\S+)", said())
    assert re.findall(r"begins anew at snapshot=(\S+)", said()) == [begun]
    assert "the stream broke" in said()
    acknowledged = maker.finish()
    topics.wait_names(acknowledged)
    # The transfer brought the state itself: this node alone shows all of it.
    text = cluster.try_quorum("status").stderr
    assert text == ""


def test_node_with_a_damaged_newest_snapshot_uses_the_older_one_and_says_so(
    cluster: HandMade,
) -> None:
    cluster.start("controller-1", "controller-2", "controller-3", "broker-101")
    topics = Topics(cluster.bootstrap)
    for number in range(12):
        topics.create(f"wide-{number}", partitions=200, replicas=1)
    leader = cluster.quorum("status")["leader_id"]
    node_id = leader % 3 + 1
    name = f"controller-{node_id}"
    eventually(lambda: len(snapshots_of(cluster, name)) >= 2, "two snapshots")
    cluster.kill(name)
    newest = snapshots_of(cluster, name)[-1]
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(bytes(data))
    errors = cluster.folder / f"{name}.err"
    seen = len(errors.read_text())
    cluster.start(name)

    def said() -> str:
        return errors.read_text()[seen:]

    eventually(lambda: f"refuses a snapshot: {newest}" in said(), "it names the damaged file")
    assert "fails its checksum" in said()
    cluster.wait_caught_up(node_id, "Follower")
    assert "fetches snapshot" not in said()
