"""Delegation tokens: Apache Kafka's kafka-delegation-tokens, a Java producer that logs in with a
token, and `kvorum tokens`."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvorum.cli.tokens import client_jaas
from tests.clients.java_tools import needs_java, run_tool, tool
from tests.live.by_hand import HandMade
from tests.live.cluster import run_kvorum
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

COMMAND = "org.apache.kafka.tools.DelegationTokenCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SECRET = "the key of all nodes"
USERS = ("admin", "alice", "bob")
ROW = re.compile(r"^(\S{22})\s+(\S{88})\s+(\S+)\s+(\S+)\s+(\[.*?\])\s+(\S+)\s+(\S+)\s+(\S+)", re.M)


class Cluster:
    """A controller, which removes expired tokens each second, and two brokers with users."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hand = HandMade(folder / "nodes", controllers=1, brokers=2)
        users = " ".join(f'user_{name}="of {name}"' for name in USERS)
        addresses = []
        for at, name in enumerate(("broker-101", "broker-102")):
            own = f"127.0.0.1:{self.hand.ports.broker + at}"
            addresses.append(f"127.0.0.1:{self.hand.ports.broker + 4 + at}")
            self.hand.change(
                name,
                listeners=f"CLIENTS://{addresses[at]},PLAINTEXT://{own}",
                listener_security_protocol_map="CLIENTS:SASL_PLAINTEXT",
                **{
                    "inter.broker.listener.name": "PLAINTEXT",
                    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                    "listener.name.clients.plain.sasl.jaas.config": f"{PLAIN} {users};",
                    "delegation.token.secret.key": SECRET,
                    "authorizer.class.name": AUTHORIZER,
                    "super.users": "User:admin;User:ANONYMOUS",
                },
            )
        self.hand.change(
            "controller-1",
            **{
                "delegation.token.secret.key": SECRET,
                "delegation.token.expiry.check.interval.ms": "500",
            },
        )
        self.hand.start("controller-1", "broker-101", "broker-102")
        self.bootstrap = ",".join(addresses)
        self.plaintext = f"127.0.0.1:{self.hand.ports.broker}"

    def prepare(self) -> None:
        create = ("topics", "create", "t", "--partitions", "1", "--replication-factor", "2")
        eventually(
            lambda: run_kvorum(*create, "-b", self.plaintext).returncode == 0, "the topic is made"
        )
        done = run_kvorum(
            "acls", "create", "--allow-principal", "User:alice", "--producer", "--consumer",
            "--topic", "t", "--group", "readers", "-b", self.plaintext,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def file(self, user: str) -> str:
        """The client properties of a user."""
        return self._file(user, "PLAIN", f'{PLAIN} username="{user}" password="of {user}";')

    def token_file(self, token_id: str, hmac: str, mechanism: str = "SCRAM-SHA-512") -> str:
        return self._file(token_id, mechanism, client_jaas(token_id, hmac))

    def _file(self, name: str, mechanism: str, jaas: str) -> str:
        path = self.folder / f"{name}.properties"
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config={jaas}\ndelivery.timeout.ms=20000\nrequest.timeout.ms=10000\n"
        )
        return str(path)

    def delegation_tokens(self, user: str, *arguments: str) -> str:
        """kafka-delegation-tokens as that user."""
        return tool(
            COMMAND, "--bootstrap-server", self.bootstrap, "--command-config", self.file(user),
            *arguments,
        )  # fmt: skip

    def produce(self, file: str, value: str) -> subprocess.CompletedProcess[str]:
        """Apache Kafka's console producer, with client properties."""
        return run_tool(
            PRODUCER, "--bootstrap-server", self.bootstrap, "--topic", "t",
            "--command-config", file, "--command-property", "acks=all", stdin=f"{value}\n",
        )  # fmt: skip

    def values(self) -> list[str]:
        return run_kvorum("consume", "t", "-b", self.plaintext).stdout.splitlines()

    def kvorum(self, user: str, *arguments: str, code: int = 0) -> Any:
        done = run_kvorum(*arguments, "-b", self.bootstrap, "--command-config", self.file(user))
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def wait_removed(self, token_id: str) -> None:
        """Wait until the controller has removed a token that has expired."""
        eventually(
            lambda: token_id not in {each["token_id"] for each in self.tokens("admin", "list")},
            f"token {token_id} is removed",
        )

    def tokens(self, user: str, *arguments: str) -> Any:
        """`kvorum tokens` as that user: its JSON."""
        return json.loads(self.kvorum(user, "tokens", *arguments, "-o", "json").stdout)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("tokens"))
    try:
        made.prepare()
        yield made
    finally:
        made.hand.close()


def found(text: str) -> dict[str, tuple[str, ...]]:
    """The tokens in a table of Kafka's tool: HMAC, owner, requester, renewers and times by id."""
    return {row[0]: row[1:] for row in ROW.findall(text)}


@needs_java
@pytest.mark.java
def test_kafkas_tool_creates_describes_renews_and_expires(cluster: Cluster) -> None:
    made = found(
        cluster.delegation_tokens(
            "alice", "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob"
        )
    )
    ((token_id, row),) = made.items()
    hmac, owner, requester, renewers, *_ = row
    assert (owner, requester, renewers) == ("User:alice", "User:alice", "[User:bob]")
    assert base64.b64decode(hmac)
    # Without --owner-principal the tool sends an empty list of owners, and gets no tokens.
    of_alice = ("--describe", "--owner-principal", "User:alice")
    for user in ("alice", "bob", "admin"):
        text = cluster.delegation_tokens(user, *of_alice)
        assert found(text).get(token_id) == row, text
    of_others = cluster.delegation_tokens("bob", "--describe", "--owner-principal", "User:carol")
    assert found(of_others) == {}
    period = ("--renew-time-period", "-1")
    renewed = cluster.delegation_tokens("bob", "--renew", *period, "--hmac", hmac)
    assert "Completed renew operation" in renewed
    expired = cluster.delegation_tokens(
        "alice", "--expire", "--expiry-time-period", "-1", "--hmac", hmac
    )
    assert "Completed expire operation" in expired
    assert token_id not in cluster.delegation_tokens("alice", *of_alice)
    refused = run_tool(
        COMMAND, "--bootstrap-server", cluster.bootstrap, "--command-config",
        cluster.file("alice"), "--renew", *period, "--hmac", hmac,
    )  # fmt: skip
    assert "DelegationTokenNotFoundException" in refused.stdout + refused.stderr
    # For another owner, alice needs CREATE_TOKENS.
    for_bob = ("--create", "--max-life-time-period", "-1", "--owner-principal", "User:bob")
    refused = run_tool(
        COMMAND, "--bootstrap-server", cluster.bootstrap, "--command-config",
        cluster.file("alice"), *for_bob,
    )  # fmt: skip
    assert "DelegationTokenAuthorizationException" in refused.stdout + refused.stderr
    ((made_id, row),) = found(cluster.delegation_tokens("admin", *for_bob)).items()
    assert row[1:3] == ("User:bob", "User:admin")
    # As in Kafka, the creator of a token for another owner is not its renewer.
    cluster.tokens("bob", "expire", made_id, "--after-ms", "0")
    cluster.wait_removed(made_id)


@needs_java
@pytest.mark.java
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_java_producer_logs_in_with_a_token_until_it_expires(
    cluster: Cluster, mechanism: str
) -> None:
    made = cluster.tokens("alice", "create")
    file = cluster.token_file(made["token_id"], made["hmac"], mechanism)
    done = cluster.produce(file, f"by token, {mechanism}")
    assert done.returncode == 0 and "ERROR" not in done.stderr, done.stderr
    assert f"by token, {mechanism}" in cluster.values()
    # A client that logged in with a token cannot create another one.
    refused = run_tool(
        COMMAND, "--bootstrap-server", cluster.bootstrap, "--command-config", file,
        "--create", "--max-life-time-period", "-1",
    )  # fmt: skip
    assert "DelegationToken" in refused.stdout + refused.stderr
    assert "requests are not allowed" in refused.stdout + refused.stderr
    cluster.tokens("alice", "expire", made["token_id"], "--after-ms", "0")
    cluster.wait_removed(made["token_id"])
    refused = cluster.produce(file, f"too late, {mechanism}")
    assert "SaslAuthenticationException" in refused.stdout + refused.stderr
    assert f"too late, {mechanism}" not in cluster.values()
    assert made["hmac"] not in refused.stderr


def test_kvorum_creates_lists_renews_and_expires(cluster: Cluster) -> None:
    shown = cluster.kvorum(
        "alice", "tokens", "create", "--renewer", "User:bob", "--max-lifetime-ms", "600000"
    ).stdout
    token_id = re.search(r'username="(\S+)"', shown)[1]
    (listed,) = (
        each
        for each in cluster.tokens("bob", "list", "--owner", "alice")
        if each["token_id"] == token_id
    )
    assert (listed["owner"], listed["renewers"]) == ("User:alice", ["User:bob"])
    assert listed["expires"] == listed["max"]
    hmac = re.search(r"HMAC, shown this once: (\S{88})", shown)[1]
    assert f'username="{token_id}" password="..." tokenauth="true"' in shown
    assert hmac not in cluster.kvorum("alice", "tokens", "list", "-o", "wide").stdout
    assert hmac not in cluster.kvorum("alice", "tokens", "list", "-o", "yaml").stdout
    (renewed,) = cluster.tokens("bob", "renew", token_id, "--period-ms", "60000")
    assert listed["issued"] < renewed["expires"] < listed["expires"]
    file = cluster.token_file(token_id, hmac)
    done = run_kvorum(
        "produce", "t", "by kvorum", "-b", cluster.bootstrap, "--command-config", file
    )
    assert done.returncode == 0, done.stderr
    assert "by kvorum" in cluster.values()
    for arguments in (("-n", "1"), ("-g", "readers")):
        done = run_kvorum(
            "consume", "t", *arguments, "-b", cluster.bootstrap, "--command-config", file
        )
        assert done.returncode == 0, done.stderr
    assert "by kvorum" in done.stdout
    refused = run_kvorum("tokens", "list", "-b", cluster.bootstrap, "--command-config", file)
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in refused.stderr
    (gone,) = cluster.tokens("bob", "expire", token_id, "--yes")
    assert gone == {"token_id": token_id, "owner": "User:alice", "removed": True}
    refused = run_kvorum("topics", "list", "-b", cluster.bootstrap, "--command-config", file)
    assert (refused.returncode, refused.stdout) == (5, "")
    assert hmac not in refused.stderr


def test_what_cannot_be_is_said(cluster: Cluster) -> None:
    said = cluster.kvorum("bob", "tokens", "create", "--owner", "alice", code=5).stderr
    assert "a token of User:alice: DELEGATION_TOKEN_AUTHORIZATION_FAILED" in said
    said = cluster.kvorum("bob", "tokens", "renew", "no-such-token", code=1).stderr
    assert "there is no token no-such-token that you may see" in said
    done = run_kvorum("tokens", "list", "-b", cluster.plaintext)
    assert done.returncode == 1
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in done.stderr
    done = run_kvorum("tokens", "list", "--bootstrap-controller", "127.0.0.1:1")
    assert (done.returncode, "give --bootstrap-server" in done.stderr) == (2, True)


def test_no_hmac_and_no_key_is_in_a_file_of_the_cluster(cluster: Cluster) -> None:
    made = cluster.tokens("alice", "create")
    forms = [made["hmac"].encode(), base64.b64decode(made["hmac"]), SECRET.encode()]
    nodes = cluster.hand
    dumped = run_kvorum(
        "metadata", "cat", "/delegation_tokens", "--bootstrap-controller",
        nodes.bootstrap_controller,
    )  # fmt: skip
    assert made["token_id"] in dumped.stdout, dumped.stderr
    assert made["hmac"] not in dumped.stdout
    read = 0
    for path in nodes.folder.rglob("*"):
        if path.is_file() and path.parent != nodes.conf:
            data = path.read_bytes()
            read += made["token_id"].encode() in data
            assert not any(form in data for form in forms), path
    assert read >= 3, "the metadata logs of three nodes have the token"
    cluster.tokens("alice", "expire", made["token_id"], "--yes")
