"""A cluster with TLS and logins on every link: nothing acknowledged is lost while nodes die and
certificates change, and strangers can call nothing of a controller."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from kvorum.launch.config.access import STANDARD_AUTHORIZER
from kvorum.rpc import (
    admin_pb2,
    admin_pb2_grpc,
    controller_pb2,
    controller_pb2_grpc,
    raft_pb2,
    raft_pb2_grpc,
)
from kvorum.runtime.config import dump_properties
from kvorum.runtime.http2.rpc import Channels, rpc_caller
from kvorum.runtime.tls import TlsSettings
from tests.certificates import Authority
from tests.live.cluster import Cluster, broker_name, controller_name
from tests.polling import DEADLINE_S, eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

TOPIC, PARTITIONS = "t", 3
RECORDS = 20
"""Of one transaction."""
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="node" password="node secret" '
    'user_node="node secret" user_admin="admin secret" user_alice="alice secret";'
)
ALL = {101, 102, 103}


class Secured:
    """The cluster, its CA, and clients for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "ca")
        self.node = self.authority.node("node")
        settings = {
            "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:SASL_SSL",
            "listener.name.controller.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/L,DEFAULT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.node),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.file),
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
            # Clients must authenticate again several times during the test.
            "connections.max.reauth.ms": 3_000,
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:node;User:admin",
        }
        properties = folder / "properties.toml"
        properties.write_text(dump_properties(settings), encoding="utf-8")
        self.cluster = Cluster(folder, config=properties)

    def client(self, user: str, **more: object) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.cluster.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.file),
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": f"{user} secret",
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
            "error_cb": lambda error: None,
            **{key.replace("_", "."): value for key, value in more.items()},
        }

    def controller(self, node_id: int, file: Path | None) -> Any:
        """A blocking channel to a controller, with this certificate."""
        caller = rpc_caller(
            TlsSettings(
                what="the test", keystore=str(file or ""), truststore=str(self.authority.file)
            )
        )
        port = self.cluster.ports.controller + node_id - 1
        return Channels(tls=caller).open_blocking(f"127.0.0.1:{port}")

    def quorum(self) -> admin_pb2.DescribeQuorumReply:
        """The description by the leader."""

        def described() -> admin_pb2.DescribeQuorumReply | None:
            for node_id in (1, 2, 3):
                with self.controller(node_id, self.node) as channel:
                    try:
                        told: admin_pb2.DescribeQuorumReply = admin_pb2_grpc.AdminStub(
                            channel
                        ).DescribeQuorum(admin_pb2.DescribeQuorumRequest(), timeout=3)
                    except grpc.RpcError:
                        continue
                    if told.leader_id == told.node_id:
                        return told
            return None

        return eventually(described, "the quorum has a leader")

    def command_config(self, file: Path) -> str:
        path = self.folder / f"{file.stem}.properties"
        path.write_text(
            "security.protocol=SSL\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.authority.file}\n"
            f"ssl.keystore.type=PEM\nssl.keystore.location={file}\n"
        )
        return str(path)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    secured = Secured(tmp_path_factory.mktemp("secure"))
    with secured.cluster:
        admin = AdminClient(secured.client("admin"))
        made = admin.create_topics(
            [NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})]
        )
        made[TOPIC].result(DEADLINE_S)
        allow(admin, ResourceType.TOPIC, AclOperation.READ, AclOperation.WRITE)
        allow(admin, ResourceType.GROUP, AclOperation.READ)
        allow(admin, ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE)
        yield secured


def allow(admin: AdminClient, kind: ResourceType, *operations: AclOperation) -> None:
    """Give alice access to TOPIC, or to the group or transactional id of that name."""
    wanted = [
        AclBinding(
            kind, TOPIC, ResourcePatternType.LITERAL, "User:alice", "*", operation,
            AclPermissionType.ALLOW,
        )
        for operation in operations
    ]  # fmt: skip
    for done in admin.create_acls(wanted).values():
        done.result(DEADLINE_S)


class Writer:
    """Alice's transactions of numbered records until stopped. acknowledged: numbers of those whose
    commit was answered."""

    def __init__(self, secured: Secured) -> None:
        self._secured = secured
        self.acknowledged: list[int] = []
        self.failure: BaseException | None = None
        self._next = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_more(self, count: int = 10 * RECORDS) -> None:
        goal = len(self.acknowledged) + count
        eventually(
            lambda: self.failure is not None or len(self.acknowledged) >= goal,
            f"{count} more records",
        )
        assert self.failure is None

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive() and self.failure is None

    def _run(self) -> None:
        try:
            producer = self._producer()
            while not self._stop.is_set():
                numbers = range(self._next, self._next + RECORDS)
                self._next += RECORDS
                try:
                    producer.begin_transaction()
                    for number in numbers:
                        producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
                    repeated(producer.commit_transaction)
                except KafkaException as error:
                    if error.args[0].txn_requires_abort():
                        repeated(producer.abort_transaction)
                    else:
                        producer = self._producer()
                    continue
                self.acknowledged += numbers
        except BaseException as error:
            self.failure = error
            raise

    def _producer(self) -> Producer:
        producer = Producer(
            self._secured.client(
                "alice", transactional_id=TOPIC, acks="all", linger_ms=2, retry_backoff_ms=50
            )
        )
        repeated(producer.init_transactions)
        return producer


def repeated(step: Callable[[], object]) -> None:
    """Call a step of a transaction again while its error is retriable."""

    def is_done() -> bool:
        try:
            step()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            return False
        return True

    eventually(is_done, "the step of the transaction")


def read_committed(secured: Secured) -> Counter[int]:
    """All numbers that alice can read."""
    consumer = Consumer(
        secured.client(
            "alice", group_id=TOPIC, isolation_level="read_committed", enable_auto_commit=False,
            enable_partition_eof=True,
        )
    )  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
    found: Counter[int] = Counter()
    at_end: set[int] = set()

    def is_over() -> bool:
        message = consumer.poll(1)
        if message is None:
            return False
        error = message.error()
        if error is None:
            found[int(message.value())] += 1
        elif error.code() == KafkaError._PARTITION_EOF:
            at_end.add(message.partition())
        return len(at_end) == PARTITIONS

    eventually(is_over, "everything has been read")
    consumer.close()
    return found


def leader_of(secured: Secured, partition: int = 0) -> int:
    admin = AdminClient(secured.client("admin"))

    def known() -> int:
        found = admin.list_topics(TOPIC, timeout=DEADLINE_S).topics[TOPIC].partitions[partition]
        return max(found.leader, 0)

    leader: int = eventually(known, "the partition has a leader")
    return leader


def wait_in_sync(secured: Secured) -> None:
    admin = AdminClient(secured.client("admin"))

    def is_so() -> bool:
        found = admin.list_topics(TOPIC, timeout=DEADLINE_S).topics[TOPIC].partitions
        return all(set(one.isrs) == ALL for one in found.values())

    eventually(is_so, "all replicas are in sync")


def test_nothing_acknowledged_is_lost_while_nodes_die_and_certificates_change(
    secured: Secured,
) -> None:
    cluster = secured.cluster
    writer = Writer(secured)
    writer.wait_more()
    killed = broker_name(leader_of(secured))
    cluster.kill(killed)
    writer.wait_more()
    cluster.restart(killed)
    wait_in_sync(secured)
    active = controller_name(secured.quorum().leader_id)
    cluster.kill(active)
    writer.wait_more()
    cluster.restart(active)
    writer.wait_more()

    # New keys for all nodes, under load.
    secured.authority.node("node")
    for name in cluster.nodes():
        cluster.signal(name, signal.SIGHUP)
    for name in cluster.nodes():
        eventually(
            lambda name=name: "certificates read again" in cluster.log_of(name),
            f"{name} has the new certificate",
        )
    writer.wait_more()
    # The connections of one broker are made anew, with the new certificates at both ends.
    again = broker_name(leader_of(secured))
    cluster.kill(again)
    writer.wait_more()
    cluster.restart(again)
    wait_in_sync(secured)
    writer.wait_more()
    writer.finish()

    found = read_committed(secured)
    lost = [number for number in writer.acknowledged if not found[number]]
    assert lost == []
    assert [number for number, times in found.items() if times > 1] == []
    for name in cluster.nodes():
        assert "secret" not in cluster.log_of(name)


def test_strangers_can_call_nothing_and_change_nothing(secured: Secured) -> None:
    before = secured.quorum()
    mallory = secured.authority.client("Mallory")
    for node_id in (1, 2, 3):
        for file, code in (
            (None, grpc.StatusCode.UNAVAILABLE),
            (mallory, grpc.StatusCode.PERMISSION_DENIED),
        ):
            with secured.controller(node_id, file) as channel:
                assert set(refusals(channel, before).values()) == {code}
    after = secured.quorum()
    assert (after.leader_id, after.leader_epoch) == (before.leader_id, before.leader_epoch)
    assert {(n.node_id, n.host, n.port) for n in after.nodes} == {
        (n.node_id, n.host, n.port) for n in before.nodes
    }
    told = secured.cluster.log_of(controller_name(before.leader_id))
    assert "/kvorum.rpc.Raft/Vote is refused to User:mallory from 127.0.0.1" in told
    topics = AdminClient(secured.client("admin")).list_topics(timeout=DEADLINE_S)
    assert "stolen" not in topics.topics
    assert set(topics.brokers) == ALL


def refusals(channel: Any, known: Any) -> dict[str, grpc.StatusCode]:
    """The errors of a caller that tries to win the quorum, to pose as a broker and to create a
    topic.
    """
    raft = raft_pb2_grpc.RaftStub(channel)
    epoch, other = known.leader_epoch + 100, known.leader_id % 3 + 1
    attempts: dict[str, tuple[Any, Any]] = {
        "Vote": (
            raft.Vote,
            raft_pb2.VoteRequest(
                cluster_id=known.cluster_id, epoch=epoch, candidate_id=other, voter_id=-1,
                last_epoch=epoch, end_offset=1 << 40,
            ),
        ),
        "BeginQuorumEpoch": (
            raft.BeginQuorumEpoch,
            raft_pb2.BeginQuorumEpochRequest(
                cluster_id=known.cluster_id, epoch=epoch, leader_id=other,
                leader_address={"host": "203.0.113.1", "port": 1},
            ),
        ),
        "RegisterBroker": (
            controller_pb2_grpc.ControllerStub(channel).RegisterBroker,
            controller_pb2.RegisterBrokerRequest(broker_id=104, cluster_id=known.cluster_id),
        ),
        "CreateTopics": (
            admin_pb2_grpc.AdminStub(channel).CreateTopics,
            admin_pb2.CreateTopicsRequest(topics=[{"name": "stolen", "num_partitions": 1}]),
        ),
    }  # fmt: skip
    found = {}
    for name, (call, request) in attempts.items():
        with pytest.raises(grpc.RpcError) as refused:
            call(request, timeout=5)
        found[name] = refused.value.code()
    return found


def test_commands_have_the_access_of_their_certificate(secured: Secured) -> None:
    ask = ("quorum", "status", "--bootstrap-controller", secured.cluster.bootstrap_controller)
    node = secured.command_config(secured.node)
    assert secured.cluster.cli(*ask, "--command-config", node).returncode == 0
    mallory = secured.command_config(secured.authority.client("Mallory"))
    refused = secured.cluster.cli(*ask, "--command-config", mallory)
    assert refused.returncode == 5
    assert "refused to User:mallory" in refused.stderr
