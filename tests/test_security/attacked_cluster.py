"""A secure cluster under attack: its administrator's view, and the proofs of all callers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc

from kvorum.broker.sasl.core.jaas import parse_jaas
from kvorum.launch.cluster.secure_plan import NODES_PORT_SHIFT
from kvorum.rpc import admin_pb2, admin_pb2_grpc
from tests.certificates import Authority
from tests.live.cluster import Cluster
from tests.polling import eventually
from tests.test_access.requests_of_apis import REQUESTS, TOPIC
from tests.test_broker.raw_client import batch, produce_values
from tests.test_security.attackers import TlsClient, certificate_of

MINE = "mine"
"""The topic and group of the user narrow."""
PASSWORD = "a long and secret password"


class Attacked:
    """The cluster, its administrator's view, and the proofs of all callers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        links = folder / "links.json"
        self.cluster = Cluster(folder, controllers=3, brokers=2, is_secure=True, links=links)
        self.pages = [self.cluster.ports.broker + 7, self.cluster.ports.broker + 8]
        names = ("controller-1", "broker-101")
        text = {
            name: {"metrics": f"127.0.0.1:{port}"}
            for name, port in zip(names, self.pages, strict=True)
        }
        links.write_text(json.dumps(text))

    def prepare(self) -> None:
        cluster = self.cluster
        self.secrets = cluster.data_dir / "secrets"
        for name in (TOPIC, MINE):
            replicas = ("--replica-assignment", "101:102")
            done = cluster.cli("topics", "create", name, *replicas)
            assert done.returncode == 0, done.stderr
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        for user in ("nobody", "narrow"):
            done = cluster.cli("users", "create", user, "--password-file", str(secret))
            assert done.returncode == 0, done.stderr
        given = ("acls", "create", "--allow-principal")
        for more in (
            ("User:narrow", "--topic", MINE, "--producer"),
            ("User:narrow", "--topic", MINE, "--group", MINE, "--consumer"),
            ("User:narrow", "--transactional-id", MINE, "--operation", "write"),
            ("User:watcher", "--cluster", "--operation", "describe"),
        ):
            done = cluster.cli(*given, *more)
            assert done.returncode == 0, done.stderr
        stranger = Authority(self.folder / "stranger")
        self.proofs: dict[str, Path | None] = {
            "no certificate": None,
            "another CA": stranger.node("broker-101"),
            "expired": self.certificate("broker-101", is_expired=True),
        }
        admin = self.as_admin()
        admin.call("produce", 9, produce_values(TOPIC, batch(3)))
        # Make both internal topics, and a block of producer ids for each broker, now: otherwise a
        # permitted request of a user would change the metadata later.
        for key_type in (0, 1):
            values = {"key_type": key_type, "coordinator_keys": [MINE]}
            eventually(
                lambda values=values: (
                    admin.call("find_coordinator", 4, values).coordinators[0].error_code == 0
                ),
                "the coordinator is there",
            )
        version, values = REQUESTS["init_producer_id"]
        for port in (self.clients, self.clients + 1):
            other = self.as_admin(port)
            eventually(
                lambda other=other: other.call("init_producer_id", version, values).error_code == 0,
                "the broker has ids of producers",
            )
            other.close()
        admin.close()

    def certificate(self, user: str, *, is_expired: bool = False) -> Path:
        path = self.folder / f"{user}-{is_expired}.pem"
        return certificate_of(self.secrets, user, path, is_expired=is_expired)

    @property
    def clients(self) -> int:
        return self.cluster.ports.broker

    @property
    def nodes(self) -> int:
        return self.cluster.ports.broker + NODES_PORT_SHIFT

    def as_admin(self, port: int = 0) -> TlsClient:
        """A connection of the administrator. port: 0 for the first broker."""
        lines = (self.secrets / "admin.properties").read_text().splitlines()
        text = next(line for line in lines if line.startswith("sasl.jaas.config="))
        options = parse_jaas("the test", text.partition("=")[2]).options
        client = TlsClient(port or self.clients)
        assert client.log_in(options["username"], options["password"]) == 0
        return client

    def logged_in(self, user: str) -> TlsClient:
        client = TlsClient(self.clients)
        assert client.log_in(user, PASSWORD) == 0
        return client

    def channel(self, port: int, certificate: Path | None) -> grpc.Channel:
        pem = None if certificate is None else certificate.read_bytes()
        proof = grpc.ssl_channel_credentials((self.secrets / "ca.pem").read_bytes(), pem, pem)
        # No back-off after a refused connection, because each call opens a connection of its own.
        options = (
            ("grpc.enable_http_proxy", 0), ("grpc.initial_reconnect_backoff_ms", 1),
            ("grpc.max_reconnect_backoff_ms", 1), ("grpc.use_local_subchannel_pool", 1),
        )  # fmt: skip
        return grpc.secure_channel(f"127.0.0.1:{port}", proof, options)

    def quorum(self) -> admin_pb2.DescribeQuorumReply:
        """As the leader describes it to the administrator."""

        def described() -> admin_pb2.DescribeQuorumReply | None:
            for at in range(3):
                port = self.cluster.ports.controller + at
                with self.channel(port, self.secrets / "admin.pem") as channel:
                    ask = admin_pb2_grpc.AdminStub(channel).DescribeQuorum
                    try:
                        told: admin_pb2.DescribeQuorumReply = ask(
                            admin_pb2.DescribeQuorumRequest(), timeout=3
                        )
                    except grpc.RpcError:
                        continue
                if told.leader_id == told.node_id:
                    return told
            return None

        return eventually(described, "the quorum has a leader")

    def state(self) -> dict[str, Any]:
        """All state that only the administrator may change."""
        quorum = self.quorum()
        admin = self.as_admin()
        ask = {"resource_type": 2, "resource_name": TOPIC, "configuration_keys": None}
        anything = {
            "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
            "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
        }  # fmt: skip
        latest = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
        topics = [{"name": name, "partitions": [latest]} for name in (TOPIC, MINE)]
        try:
            return {
                "leader": (quorum.leader_id, quorum.leader_epoch),
                "voters": sorted((n.node_id, n.host, n.port) for n in quorum.nodes),
                "metadata": quorum.high_watermark,
                "topics": admin.call("metadata", 9, {
                    "topics": None, "allow_auto_topic_creation": False,
                    "include_cluster_authorized_operations": False,
                    "include_topic_authorized_operations": False,
                }),
                "offsets": admin.call(
                    "list_offsets", 7, {"replica_id": -1, "isolation_level": 0, "topics": topics}
                ),
                "configs": admin.call("describe_configs", 4, {
                    "resources": [ask], "include_synonyms": False, "include_documentation": False,
                }),
                "acls": admin.call("describe_acls", 3, anything),
                "users": admin.call("describe_user_scram_credentials", 0, {"users": None}),
                "quotas": admin.call(
                    "describe_client_quotas", 1, {"components": [], "strict": False}
                ),
                "groups": admin.call("list_groups", 4, {"states_filter": []}),
            }  # fmt: skip
        finally:
            admin.close()

    def serves(self) -> None:
        """Assert that the administrator can write, and that the cluster still has all its nodes."""
        admin = self.as_admin()
        answer = admin.call("produce", 9, produce_values(MINE, batch(1)))
        assert answer.responses[0].partition_responses[0].error_code == 0
        admin.close()
        assert all(node["starts"] == 1 for node in self.cluster.nodes().values())
