"""Users who log in: real clients on a SASL listener, and what each of them sees when refused."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.clients.java_tools import java, needs_java
from tests.live.by_hand import HandMade
from tests.live.cluster import run_kvorum
from tests.polling import DEADLINE_S, eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORDS = {"PLAIN": "plain secret", "SCRAM-SHA-256": "pencil", "SCRAM-SHA-512": "pencil"}
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="plain secret" user_bob="other";'
)


class Secured:
    """One controller and two brokers: PLAINTEXT for the brokers, CLIENTS with SASL."""

    def __init__(self, hand: HandMade) -> None:
        self.hand = hand
        self.addresses = {}
        for at, name in enumerate(("broker-101", "broker-102")):
            own = f"127.0.0.1:{hand.ports.broker + at}"
            self.addresses[name] = f"127.0.0.1:{hand.ports.broker + 4 + at}"
            hand.change(
                name,
                listeners=f"CLIENTS://{self.addresses[name]},PLAINTEXT://{own}",
                listener_security_protocol_map="CLIENTS:SASL_PLAINTEXT",
                **{
                    "inter.broker.listener.name": "PLAINTEXT",
                    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                    "listener.name.clients.plain.sasl.jaas.config": JAAS,
                    "listener.name.clients.plain.connections.max.reauth.ms": "2000",
                },
            )
        hand.start("controller-1", *self.addresses)
        self.bootstrap = ",".join(self.addresses.values())
        self.plaintext = f"127.0.0.1:{hand.ports.broker}"

    def prepare(self) -> None:
        create = ("topics", "create", "t", "--partitions", "2", "--replication-factor", "2")
        eventually(
            lambda: run_kvorum(*create, "-b", self.plaintext).returncode == 0,
            "the topic is made over the listener of the brokers",
        )
        admin = AdminClient({"bootstrap.servers": self.plaintext})
        for number, salt in ((1, b"salt"), (2, b"another salt")):
            info = ScramCredentialInfo(ScramMechanism(number), 4_096)
            change = UserScramCredentialUpsertion("alice", info, b"pencil", salt)
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(DEADLINE_S)

    def librdkafka(self, mechanism: str, password: str, **more: object) -> dict[str, object]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": password,
            "log_level": 0,
            "error_cb": lambda error: None,
            **more,
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    hand = HandMade(tmp_path_factory.mktemp("sasl"), controllers=1, brokers=2)
    try:
        secured = Secured(hand)
        secured.prepare()
        yield secured
    finally:
        hand.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_produces_and_consumes(secured: Secured, mechanism: str) -> None:
    producer = Producer(secured.librdkafka(mechanism, PASSWORDS[mechanism]))
    for number in range(20):
        producer.produce("t", f"{mechanism} {number}".encode())
    assert producer.flush(DEADLINE_S) == 0
    consumer = Consumer(
        secured.librdkafka(
            mechanism,
            PASSWORDS[mechanism],
            **{"group.id": mechanism, "auto.offset.reset": "earliest"},
        )
    )
    consumer.subscribe(["t"])
    found: set[bytes] = set()
    while len(found) < 20:
        message = consumer.poll(DEADLINE_S)
        assert message is not None and message.error() is None, message
        if message.value().startswith(f"{mechanism} ".encode()):
            found.add(message.value())
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_with_a_wrong_password_is_told_so(secured: Secured, mechanism: str) -> None:
    errors: list[KafkaError] = []
    producer = Producer(secured.librdkafka(mechanism, "wrong", error_cb=errors.append))
    eventually(lambda: producer.poll(0.1) is not None and bool(errors), "the client has an error")
    assert errors[0].code() == KafkaError._AUTHENTICATION
    said = "Invalid username or password" if mechanism == "PLAIN" else "invalid credentials"
    assert said in errors[0].str()


def test_a_client_without_sasl_and_one_with_an_unknown_mechanism_get_nothing(
    secured: Secured,
) -> None:
    with pytest.raises(Exception, match=r"_TRANSPORT|transport|timed out|_TIMED_OUT"):
        AdminClient({"bootstrap.servers": secured.bootstrap, "log_level": 0}).list_topics(timeout=3)
    errors: list[KafkaError] = []
    settings = secured.librdkafka("SCRAM-SHA-1", "pencil", error_cb=errors.append)
    producer = Producer(settings)
    eventually(lambda: producer.poll(0.1) is not None and bool(errors), "the client has an error")
    assert "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512" in errors[0].str()


KAFKA_PYTHON = """
import logging, sys
logging.basicConfig(level=logging.WARNING)
from kafka import KafkaProducer
bootstrap, mechanism, password = sys.argv[1:]
producer = KafkaProducer(
    bootstrap_servers=bootstrap.split(","), security_protocol="SASL_PLAINTEXT",
    sasl_mechanism=mechanism, sasl_plain_username="alice", sasl_plain_password=password,
    bootstrap_timeout_ms=5_000,
)
print(producer.send("t", b"kafka-python").get(30).offset)
"""


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in_and_is_refused(secured: Secured, mechanism: str) -> None:
    def produced(password: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", KAFKA_PYTHON, secured.bootstrap, mechanism, password],
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE_S,
            check=False,
        )

    done = produced(PASSWORDS[mechanism])
    assert done.returncode == 0 and int(done.stdout) >= 0, done.stderr
    refused = produced("wrong")
    assert refused.returncode != 0
    assert "Authentication failed" in refused.stderr, refused.stderr


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_logs_in(secured: Secured, mechanism: str) -> None:
    settings = {
        "bootstrap_servers": secured.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORDS[mechanism],
    }

    async def run() -> None:
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait("t", b"aiokafka")
        async with AIOKafkaConsumer("t", **settings, auto_offset_reset="earliest") as consumer:
            async with asyncio.timeout(DEADLINE_S):
                while (await consumer.getone()).value != b"aiokafka":
                    pass

    asyncio.run(run())


@needs_java
@pytest.mark.java
@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule"),
        ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule"),
    ],
)
def test_kafkas_own_tools_log_in_and_are_refused(
    secured: Secured, tmp_path, mechanism: str, module: str
) -> None:
    def listed(password: str) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "client.properties"
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\n"
            f"sasl.mechanism={mechanism}\n"
            f'sasl.jaas.config={module} required username="alice" password="{password}";\n'
        )
        command = java(
            "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", secured.bootstrap,
            "--command-config", str(file), "--list",
        )  # fmt: skip
        return subprocess.run(
            command, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )

    done = listed(PASSWORDS[mechanism])
    assert done.returncode == 0 and "t" in done.stdout.split(), done.stderr
    refused = listed("wrong")
    assert refused.returncode != 0
    assert "SaslAuthenticationException" in refused.stdout + refused.stderr


def test_a_session_of_two_seconds_is_renewed_under_the_client(secured: Secured) -> None:
    """With connections.max.reauth.ms=2000 for PLAIN, librdkafka authenticates again and loses
    nothing.
    """
    failed: list[object] = []
    producer = Producer(secured.librdkafka("PLAIN", PASSWORDS["PLAIN"], error_cb=failed.append))
    until_s = time.monotonic() + 5
    sent = 0
    while time.monotonic() < until_s:
        producer.produce("t", b"renewed", on_delivery=lambda e, _: e and failed.append(e))
        producer.poll(0.05)
        sent += 1
    assert producer.flush(DEADLINE_S) == 0
    assert sent > 20 and not failed


def test_garbage_and_requests_before_the_login_close_the_connection(secured: Secured) -> None:
    host, port = secured.addresses["broker-101"].split(":")

    def exchange(frame: bytes) -> bytes:
        with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as sock:
            sock.sendall(struct.pack(">i", len(frame)) + frame)
            return sock.recv(65_536)

    client_id = struct.pack(">h", -1)
    metadata = struct.pack(">hhi", 3, 1, 7) + client_id + struct.pack(">i", -1)
    assert exchange(metadata) == b""
    assert exchange(b"\xff" * 64) == b""
    # Larger than a client may send before its login: the broker refuses it by its size alone.
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as sock:
        sock.sendall(struct.pack(">i", 1 << 20))
        assert sock.recv(1) == b""
    # Everybody may ask which versions are served.
    versions = struct.pack(">hhi", 18, 0, 7) + client_id
    assert len(exchange(versions)) > 100


def test_a_quota_of_a_user_binds_that_user_alone(secured: Secured) -> None:
    quota = ("configs", "alter", "--entity", "user", "--name", "bob", "-b", secured.plaintext)
    done = run_kvorum(*quota, "--set", "producer_byte_rate=1000")
    assert done.returncode == 0, done.stderr

    def throttled_ms(user: str, password: str) -> float:
        found: list[float] = []
        told = {"stats_cb": lambda text: found.extend(_throttles(text))}
        settings = {"statistics.interval.ms": 100, "sasl.username": user, **told}
        producer = Producer(secured.librdkafka("PLAIN", password, **settings))
        for _ in range(20):
            producer.produce("t", b"x" * 1_000)
            producer.flush(DEADLINE_S)
            producer.poll(0.1)
            if any(found):
                break
        return max(found, default=0)

    assert throttled_ms("bob", "other") > 0
    assert throttled_ms("alice", PASSWORDS["PLAIN"]) == 0


def _throttles(statistics: str) -> list[float]:
    """Greatest throttle time (ms) of each broker in librdkafka's statistics."""
    brokers = json.loads(statistics)["brokers"].values()
    return [broker["throttle"]["max"] for broker in brokers]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kvorums_own_commands_log_in_and_are_refused(
    secured: Secured, tmp_path: Path, mechanism: str
) -> None:
    def run(*arguments: str, password: str = PASSWORDS[mechanism]) -> Any:
        kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        file = tmp_path / "client.properties"
        file.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config=org.apache.kafka.common.security.{kind}LoginModule required \\\n"
            f'  username="alice" password="{password}";\n'
        )
        return run_kvorum(*arguments, "-b", secured.bootstrap, "--command-config", str(file))

    done = run("topics", "list")
    assert done.returncode == 0 and "t" in done.stdout, done.stderr
    done = run("produce", "t", f"by {mechanism}")
    assert done.returncode == 0, done.stderr
    assert f"by {mechanism}" in run("consume", "t").stdout.splitlines()
    refused = run("topics", "list", password="wrong")
    assert (refused.returncode, refused.stdout) == (5, "")
    assert "refused user alice: SASL_AUTHENTICATION_FAILED" in refused.stderr
    assert "wrong" not in refused.stderr
