"""`kvorum dev --secure`: a user of a laptop has TLS, users and ACLs with one command."""

from __future__ import annotations

import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from tests.live.cluster import Cluster, run_kvorum
from tests.polling import DEADLINE_S, eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

PASSWORD = "correct horse battery staple"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("secure"), is_secure=True) as cluster:
        assert cluster.cli("topics", "create", "orders", "--partitions", "3").returncode == 0
        yield cluster


def client(cluster: Cluster, user: str, password: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(cluster.data_dir / "secrets" / "ca.pem"),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
        "error_cb": lambda error: None,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def produced(settings: dict[str, Any], value: bytes = b"v") -> KafkaError | None:
    """The error of one record; None if it was acknowledged."""
    found: list[KafkaError | None] = []
    producer = Producer({**settings, "message.timeout.ms": 10_000})
    producer.produce("orders", value, on_delivery=lambda error, _: found.append(error))
    producer.flush(DEADLINE_S)
    return found[0]


def test_the_first_command_says_where_the_properties_are(cluster: Cluster) -> None:
    line = cluster.launcher.wait_line("client properties: ")
    assert str(cluster.command_config) in line
    done = cluster.cli("quorum", "status", "--bootstrap-controller", cluster.bootstrap_controller)
    assert done.returncode == 0, done.stderr


def test_a_user_may_do_what_acls_allow_and_nothing_else(cluster: Cluster, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text(PASSWORD)
    created = cluster.cli("users", "create", "alice", "--password-file", str(secret))
    assert created.returncode == 0, created.stderr
    alice = client(cluster, "alice", PASSWORD)
    refused = produced(alice)
    assert refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    given = ("--allow-principal", "User:alice", "--topic", "orders")
    assert cluster.cli("acls", "create", *given, "--producer").returncode == 0
    eventually(lambda: produced(alice) is None, "alice may produce on every broker")
    consumer = Consumer({**alice, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    with pytest.raises(KafkaException) as failed:
        for _ in range(100):
            message = consumer.poll(0.2)
            if message is not None and message.error():
                raise KafkaException(message.error())
    assert failed.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()


def test_a_wrong_password_and_a_plain_client_get_nowhere(cluster: Cluster) -> None:
    errors: list[KafkaError] = []
    settings = {**client(cluster, "admin", "wrong"), "error_cb": errors.append}
    assert produced(settings) is not None
    assert KafkaError._AUTHENTICATION in {error.code() for error in errors}
    done = run_kvorum("topics", "list", KVORUM_BOOTSTRAP_SERVER=cluster.bootstrap)
    assert done.returncode == 3
    assert "--command-config" in done.stderr


def test_nobody_else_on_the_machine_may_read_a_secret(cluster: Cluster) -> None:
    files = [path for path in cluster.data_dir.rglob("*") if path.is_file()]
    assert len(files) > 20
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_the_cluster_is_as_it_was_made_when_it_starts_again(cluster: Cluster) -> None:
    assert cluster.stop(signal.SIGTERM) == 0
    cluster._arguments.remove("--secure")
    cluster.start()
    assert cluster.cli("topics", "describe", "orders").returncode == 0
    listed = cluster.cli("users", "list").stdout
    assert "admin" in listed
