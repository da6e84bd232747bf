"""TLS: real clients on encrypted listeners, with and without certificates of their own."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import subprocess
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kvorum.launch.config.access import STANDARD_AUTHORIZER
from tests.certificates import Authority
from tests.clients.java_tools import java, needs_java
from tests.live.by_hand import HandMade
from tests.live.cluster import run_kvorum
from tests.polling import DEADLINE_S, eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="secret" user_bob="bobs";'
)
LARGE = b"x" * 900_000


class Encrypted:
    """One controller and one broker: SSL (client certificates asked for), SASL_SSL, PLAINTEXT."""

    def __init__(self, hand: HandMade, folder: Path) -> None:
        self.hand = hand
        self.authority = Authority(folder / "ca")
        self.stranger = Authority(folder / "stranger")
        self.server = self.authority.server("server.pem")
        base = hand.ports.broker
        self.plaintext, self.tls, self.sasl = (f"127.0.0.1:{base + n}" for n in (0, 4, 5))
        self.expired = f"127.0.0.1:{base + 6}"
        hand.change(
            "broker-101",
            listeners=f"PLAINTEXT://{self.plaintext},SSL://{self.tls},LOGIN://{self.sasl},"
            f"EXPIRED://{self.expired}",
            **{
                "inter.broker.listener.name": "PLAINTEXT",
                "listener.security.protocol.map": "EXPIRED:SSL,LOGIN:SASL_SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.server),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.authority.file),
                "listener.name.ssl.ssl.client.auth": "required",
                "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/L,DEFAULT",
                "listener.name.expired.ssl.keystore.location": str(
                    self.authority.server("expired.pem", is_expired=True)
                ),
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.login.plain.sasl.jaas.config": JAAS,
                # Everybody but bob may do everything.
                "authorizer.class.name": STANDARD_AUTHORIZER,
                "super.users": "User:ANONYMOUS;User:alice;User:carol;User:operator",
            },
        )
        hand.start("controller-1", "broker-101")

    def librdkafka(self, address: str, **more: object) -> dict[str, object]:
        return {
            "bootstrap.servers": address,
            "security.protocol": "ssl",
            "ssl.ca.location": str(self.authority.file),
            "log_level": 0,
            "error_cb": lambda error: None,
            **more,
        }

    def with_certificate(self, common_name: str = "Alice", **more: object) -> dict[str, object]:
        file = str(self.authority.client(common_name))
        own = {"ssl.certificate.location": file, "ssl.key.location": file}
        return self.librdkafka(self.tls, **own, **more)

    def with_password(self, **more: object) -> dict[str, object]:
        return self.librdkafka(
            self.sasl,
            **{"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
            **{"sasl.username": "alice", "sasl.password": "secret"},
            **more,
        )


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    folder = tmp_path_factory.mktemp("tls")
    hand = HandMade(folder, controllers=1, brokers=1)
    try:
        encrypted = Encrypted(hand, folder)
        create = ("topics", "create", "t", "--partitions", "1", "-b", encrypted.plaintext)
        eventually(lambda: run_kvorum(*create).returncode == 0, "the topic is made")
        yield encrypted
    finally:
        hand.close()


def records(settings: dict[str, object], topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        settings
        | {"group.id": topic, "auto.offset.reset": "earliest", "fetch.max.bytes": 60_000_000}
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < count:
        message = consumer.poll(DEADLINE_S)
        assert message is not None and message.error() is None, message
        found.append(message.value())
    consumer.close()
    return found


@pytest.mark.parametrize("kind", ["with_certificate", "with_password"])
def test_records_pass_through_small_and_large(encrypted: Encrypted, kind: str) -> None:
    """Large records are read from the log's files; with TLS the broker cannot use sendfile for
    them.
    """
    settings = getattr(encrypted, kind)()
    admin = AdminClient(settings)
    for done in admin.create_topics([NewTopic(kind, 1, 1)]).values():
        done.result(DEADLINE_S)
    producer = Producer(settings)
    sent = [b"small %d" % n for n in range(200)] + [bytes([n]) * 900_000 for n in range(40)]
    for value in sent:
        producer.produce(kind, value)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    assert records(settings, kind, len(sent)) == sent


def first_error(settings: dict[str, object]) -> KafkaError:
    errors: list[KafkaError] = []
    producer = Producer(settings | {"error_cb": errors.append})

    def has_failed() -> bool:
        producer.poll(0.1)
        return any(error.code() != KafkaError._ALL_BROKERS_DOWN for error in errors)

    eventually(has_failed, "the client has an error")
    return next(error for error in errors if error.code() != KafkaError._ALL_BROKERS_DOWN)


def test_a_client_without_a_certificate_or_with_a_strangers_is_refused(
    encrypted: Encrypted,
) -> None:
    error = first_error(encrypted.librdkafka(encrypted.tls))
    assert error.code() in (KafkaError._SSL, KafkaError._TRANSPORT), error
    file = str(encrypted.stranger.client("Mallory"))
    own = {"ssl.certificate.location": file, "ssl.key.location": file}
    error = first_error(encrypted.librdkafka(encrypted.tls, **own))
    assert error.code() in (KafkaError._SSL, KafkaError._TRANSPORT), error


def test_a_client_refuses_an_unknown_ca_and_an_expired_certificate(encrypted: Encrypted) -> None:
    unknown = {"ssl.ca.location": str(encrypted.stranger.file)}
    error = first_error(encrypted.librdkafka(encrypted.expired, **unknown))
    # Which of the two librdkafka reports depends on the state of the connection.
    refused = (KafkaError._SSL, KafkaError._TRANSPORT)
    assert error.code() in refused and "certificate verify failed" in error.str()
    assert first_error(encrypted.librdkafka(encrypted.expired)).code() in refused
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        served(encrypted.expired, encrypted.authority.file)


def test_the_certificates_name_is_the_user_of_quotas(encrypted: Encrypted) -> None:
    quota = ("configs", "alter", "--entity", "user", "-b", encrypted.plaintext)
    done = run_kvorum(*quota, "--name", "carol", "--set", "producer_byte_rate=1000")
    assert done.returncode == 0, done.stderr
    throttled: list[int] = []
    producer = Producer(
        encrypted.with_certificate(
            "Carol", throttle_cb=lambda event: throttled.append(event.throttle_time)
        )
    )

    def is_throttled() -> bool:
        producer.produce("t", b"x" * 1_000)
        producer.flush(DEADLINE_S)
        producer.poll(0.05)
        return bool(throttled)

    eventually(is_throttled, "the client is told to wait")


@needs_java
@pytest.mark.java
def test_kafkas_own_tools_over_tls(encrypted: Encrypted, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={encrypted.authority.file}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="secret";\n'
    )
    command = java(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", encrypted.sasl,
        "--command-config", str(file), "--list",
    )  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False
    )
    assert done.returncode == 0 and "t" in done.stdout.split(), done.stdout + done.stderr


def test_certificates_rotate_under_load_without_a_lost_record(encrypted: Encrypted) -> None:
    settings = encrypted.with_password(**{"acks": "all", "linger.ms": 1})
    failed: list[object] = []
    sent = 0
    stop = threading.Event()

    def produce() -> None:
        nonlocal sent
        producer = Producer(settings)
        while not stop.is_set():
            producer.produce("t", b"%d" % sent, on_delivery=lambda e, _: e and failed.append(e))
            producer.poll(0.005)
            sent += 1
        assert producer.flush(DEADLINE_S) == 0

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        before = served(encrypted.sasl, encrypted.authority.file)
        encrypted.server.write_text("half a file")
        log = encrypted.hand.folder / "broker-101.err"
        refused = "the certificates of before stay in use"
        eventually(lambda: refused in log.read_text(), "the bad file is seen, and not used")
        assert served(encrypted.sasl, encrypted.authority.file) == before
        encrypted.authority.server("server.pem")
        eventually(
            lambda: served(encrypted.sasl, encrypted.authority.file) != before,
            "new clients get the new certificate",
        )
    finally:
        stop.set()
        thread.join(DEADLINE_S)
    assert sent > 100 and not failed


def served(address: str, authority: Path) -> bytes:
    """The certificate that a new client gets."""
    host, port = address.split(":")
    context = ssl.create_default_context(cafile=str(authority))
    with (
        socket.create_connection((host, int(port)), timeout=DEADLINE_S) as sock,
        context.wrap_socket(sock, server_hostname=host) as tls,
    ):
        found = tls.getpeercert(binary_form=True)
        assert found is not None
        return found


def test_old_versions_and_plain_bytes_and_silence_disturb_nobody(encrypted: Encrypted) -> None:
    host, port = encrypted.sasl.split(":")
    address = (host, int(port))
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with warnings.catch_warnings(action="ignore"):
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(OSError), socket.create_connection(address, timeout=DEADLINE_S) as sock:
        old.wrap_socket(sock)
    with socket.create_connection(address, timeout=DEADLINE_S) as sock:
        sock.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
        # The broker may send an alert before it closes the connection.
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(1_024):
                pass
    silent = [socket.create_connection(address, timeout=DEADLINE_S) for _ in range(300)]
    try:
        for sock in silent[::2]:
            sock.sendall(b"\x16\x03\x01\x02\x00\x01")  # half of a hello
        producer = Producer(encrypted.with_password())
        producer.produce("t", b"beside them")
        assert producer.flush(DEADLINE_S) == 0
    finally:
        for sock in silent:
            sock.close()


def test_tls_bytes_on_a_plaintext_listener_close_the_connection(encrypted: Encrypted) -> None:
    host, port = encrypted.plaintext.split(":")
    context = ssl.create_default_context(cafile=str(encrypted.authority.file))
    with (
        pytest.raises(OSError),
        socket.create_connection((host, int(port)), timeout=DEADLINE_S) as sock,
    ):
        context.wrap_socket(sock, server_hostname=host)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ssl.keystore.location": "/nowhere.pem"}, "/nowhere.pem: No such file"),
        ({"ssl.keystore.location": "{ca}"}, "no certificate and key in"),
        ({"ssl.truststore.location": "{key}.part"}, "no certificates in"),
    ],
)
def test_a_broker_without_usable_certificates_refuses_to_start(
    encrypted: Encrypted, tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    hand = HandMade(tmp_path, controllers=1, brokers=1)
    try:
        places = {"ca": encrypted.authority.file, "key": encrypted.server}
        hand.change(
            "broker-101",
            listeners=f"SSL://127.0.0.1:{hand.ports.broker},PLAINTEXT://127.0.0.1:"
            f"{hand.ports.broker + 1}",
            **{
                "ssl.keystore.type": "PEM",
                "ssl.truststore.type": "PEM",
                "ssl.keystore.location": str(encrypted.server),
                **{name: value.format(**places) for name, value in changes.items()},
            },
        )
        assert said in hand.refusal("broker-101")
    finally:
        hand.close()


def test_kvorums_own_commands_over_tls(encrypted: Encrypted, tmp_path: Path) -> None:
    def run(authority: Authority) -> Any:
        certificate = encrypted.authority.client("Operator")
        file = tmp_path / "client.properties"
        file.write_text(
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
            f"ssl.truststore.location={authority.file}\nssl.keystore.location={certificate}\n"
        )
        return run_kvorum("topics", "list", "-b", encrypted.tls, "--command-config", str(file))

    done = run(encrypted.authority)
    assert done.returncode == 0 and "t" in done.stdout, done.stderr
    refused = run(encrypted.stranger)
    assert refused.returncode == 3 and "certificate is not accepted" in refused.stderr
