"""Apache Kafka's own command-line tools, unchanged, against a Kvorum cluster and its files.

The jars come by Maven (`make setup` fetches them where mvn is present) into a folder of .tools.
"""

from __future__ import annotations

import re

import pytest

from kvorum.raft.node.control_text import control_text
from kvorum.runtime.disk import OsDisk
from kvorum.storage.files.checkpoints import read_meta_properties
from kvorum.storage.tools.dump import dump_lines
from tests.clients.java_tools import needs_java, run_tool, tool
from tests.live.by_hand import HandMade
from tests.live.cluster import Cluster
from tests.polling import eventually

pytestmark = [
    pytest.mark.live,
    pytest.mark.java,
    needs_java,
]

RECORDS = 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("java")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def topic(cluster):
    create = ["--create", "--topic", "java", "--partitions", "1", "--replication-factor", "3"]
    made = tool(
        "org.apache.kafka.tools.TopicCommand",
        "--bootstrap-server",
        cluster.bootstrap,
        *create,
        "--config",
        "min.insync.replicas=2",
    )
    assert "Created topic java." in made
    lines = "".join(f"line-{i}\n" for i in range(RECORDS))
    tool(
        "org.apache.kafka.tools.ConsoleProducer",
        "--bootstrap-server",
        cluster.bootstrap,
        "--topic",
        "java",
        stdin=lines,
    )
    return "java"


def test_kafka_topics_describes_what_it_made(cluster, topic):
    described = tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", cluster.bootstrap),
        *("--describe", "--topic", topic),
    )
    assert "ReplicationFactor: 3" in described
    assert "min.insync.replicas=2" in described


def test_console_consumer_reads_an_assigned_partition_from_the_beginning(cluster, topic):
    read = tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", cluster.bootstrap),
        *("--topic", topic, "--partition", "0", "--offset", "earliest"),
        *("--max-messages", str(RECORDS), "--timeout-ms", "30000"),
    )
    assert read.split() == [f"line-{i}" for i in range(RECORDS)]


def test_kafka_metadata_quorum_describes_the_quorum(cluster):
    status = tool(
        "org.apache.kafka.tools.MetadataQuorumCommand",
        *("--bootstrap-server", cluster.bootstrap, "describe", "--status"),
    )
    assert "LeaderEpoch:" in status
    assert "CurrentVoters:" in status


def test_kafka_metadata_quorum_adds_and_removes_a_controller(tmp_path):
    quorum = HandMade(tmp_path, controllers=1, brokers=1)
    bootstrap = ("--bootstrap-server", quorum.bootstrap)
    command = "org.apache.kafka.tools.MetadataQuorumCommand"

    def voters():
        return sorted(quorum.quorum("status")["current_voters"])

    try:
        quorum.start("controller-1", "broker-101")
        quorum.init("--add", "controller")
        quorum.start("controller-2")
        quorum.wait_caught_up(2, "Observer")
        # The new node's own configuration; its directory holds a meta.properties that Kafka reads.
        own = tmp_path / "controller.properties"
        own.write_text(
            "process.roles=controller\nnode.id=2\ncontroller.listener.names=CONTROLLER\n"
            f"listeners=CONTROLLER://{quorum.address('controller-2')}\n"
            f"log.dirs={quorum.data('controller-2')}\n"
        )
        added = tool(command, *bootstrap, "--command-config", str(own), "add-controller")
        assert "Added controller 2 with directory id" in added
        assert voters() == [1, 2]
        directory = read_meta_properties(OsDisk(), str(quorum.data("controller-1")))["directory.id"]
        remove = ("remove-controller", "--controller-id", "1", "--controller-directory-id")
        with pytest.raises(AssertionError, match="VoterNotFoundException: node 1 votes with"):
            tool(command, *bootstrap, *remove, "AAAAAAAAAAAAAAAAAAAAAg")
        assert "Removed" in tool(command, *bootstrap, *remove, directory)
        assert voters() == [2]
    finally:
        quorum.close()


def test_dump_log_reads_our_segments_and_prints_what_we_print(cluster, topic):
    folder = cluster.data_dir / "broker-101" / f"{topic}-0"
    segment = folder / f"{0:020d}.log"
    theirs = tool(
        "org.apache.kafka.tools.DumpLogSegments", "--files", str(segment), "--print-data-log"
    )
    ours = list(dump_lines(OsDisk(), str(segment), print_data_log=True))
    assert theirs.splitlines() == ours


def without_payloads(text):
    """Metadata records are bytes; as text they may break lines anywhere."""
    return re.sub(r"payload: .*?\n(?=\||baseOffset|\Z)", "payload:\n", text, flags=re.DOTALL)


def test_dump_log_reads_the_quorums_control_records_as_we_print_them(tmp_path):
    quorum = HandMade(tmp_path, controllers=1, brokers=0)
    try:
        quorum.start("controller-1")
        eventually(lambda: quorum.try_quorum("status").returncode == 0, "it leads")
        quorum.stop("controller-1")
    finally:
        quorum.close()
    segment = quorum.data("controller-1") / "__cluster_metadata-0" / f"{0:020d}.log"
    theirs = tool(
        "org.apache.kafka.tools.DumpLogSegments", "--files", str(segment), "--print-data-log"
    )
    ours = dump_lines(OsDisk(), str(segment), print_data_log=True, control_text=control_text)
    assert without_payloads(theirs) == without_payloads("\n".join(ours) + "\n")
    assert "LeaderChange: " in theirs
    assert "KRaftVersion " in theirs
    assert '"voterDirectoryId"' in theirs


def test_kafka_features_describes_downgrades_and_upgrades(cluster):
    def features(*arguments):
        return tool(
            "org.apache.kafka.tools.FeatureCommand",
            "--bootstrap-server",
            cluster.bootstrap,
            *arguments,
        )

    elr = "eligible.leader.replicas.version"

    def finalized():
        row = r"Feature: (\S+)\s.*\sFinalizedVersionLevel: (\S+)"
        return dict(re.findall(row, features("describe")))

    others = {
        "group.version": "1", "kraft.version": "0", "metadata.version": "4.4-IV2",
        "share.version": "2", "streams.version": "1",
        "transaction.version": "2",
    }  # fmt: skip
    assert finalized() == {elr: "1", **others}
    assert "can be downgraded" in features("downgrade", "--feature", f"{elr}=0", "--dry-run")
    assert "was downgraded to 0" in features("downgrade", "--feature", f"{elr}=0")
    assert finalized() == {elr: "0", **others}
    assert "was upgraded to 1" in features("upgrade", "--feature", f"{elr}=1")
    assert finalized()[elr] == "1"


def test_kafka_acls_says_that_there_is_no_authorizer(cluster):
    command = "org.apache.kafka.tools.AclCommand"
    done = run_tool(command, "--bootstrap-server", cluster.bootstrap, "--list")
    assert done.returncode != 0
    assert "SecurityDisabledException: No Authorizer is configured." in done.stdout + done.stderr
