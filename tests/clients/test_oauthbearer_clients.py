"""Users who log in with tokens: real clients, good tokens, and what each refused one sees."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import UnknownTopicOrPartitionError
from confluent_kafka import Consumer, KafkaError, Producer
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.live.by_hand import HandMade
from tests.live.cluster import run_kvorum
from tests.polling import DEADLINE_S, eventually
from tests.tokens import AUDIENCE, ISSUER, Issuer

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


class KeyServer:
    """The issuer's address: serves `text`, which a test may change."""

    def __init__(self, text: str) -> None:
        self.text = text
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = outer.text.encode()
                self.send_response(200 if body else 503)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing: the test's output is its own."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/keys"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Tokens:
    """One controller and one broker: listeners with OAUTHBEARER, by a file and by an address."""

    def __init__(self, hand: HandMade, folder: Path) -> None:
        self.hand = hand
        self.issuer = Issuer(time.time())
        self.file = folder / "keys.json"
        self.file.write_text(self.issuer.key_set())
        self.keys = KeyServer("")  # not there yet when the broker starts
        base = hand.ports.broker
        self.plaintext, self.by_file, self.by_address = (f"127.0.0.1:{base + n}" for n in (0, 4, 5))
        own = {
            f"listener.name.{name}.oauthbearer.sasl.oauthbearer.{key}": value
            for name in ("byfile", "byaddress")
            for key, value in (
                ("expected.audience", AUDIENCE), ("expected.issuer", ISSUER),
                ("jwks.endpoint.retry.backoff.max.ms", "200"),
            )
        }  # fmt: skip
        hand.change(
            "broker-101",
            listeners=f"PLAINTEXT://{self.plaintext},BYFILE://{self.by_file},"
            f"BYADDRESS://{self.by_address}",
            **own,
            **{
                "inter.broker.listener.name": "PLAINTEXT",
                "listener.security.protocol.map": "BYFILE:SASL_PLAINTEXT,BYADDRESS:SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "listener.name.byfile.oauthbearer.sasl.oauthbearer.jwks.endpoint.url":
                    f"file://{self.file}",
                "listener.name.byaddress.oauthbearer.sasl.oauthbearer.jwks.endpoint.url":
                    self.keys.url,
            },
        )  # fmt: skip
        hand.start("controller-1", "broker-101")
        eventually(
            lambda: run_kvorum("topics", "create", "t", "-b", self.plaintext).returncode == 0,
            "the topic is made",
        )

    def librdkafka(self, token: Callable[[], str], **more: object) -> dict[str, Any]:
        def login(_: str) -> tuple[str, float]:
            return token(), time.time() + 300

        return {
            "bootstrap.servers": self.by_file,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "OAUTHBEARER",
            "oauth_cb": login,
            "reconnect.backoff.max.ms": 200,
            **more,
        }

    def log(self) -> str:
        return (self.hand.folder / "broker-101.err").read_text()


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokens]:
    folder = tmp_path_factory.mktemp("tokens")
    hand = HandMade(folder, controllers=1, brokers=1)
    made = None
    try:
        made = Tokens(hand, folder)
        yield made
    finally:
        hand.close()
        if made is not None:
            made.keys.close()


def send(settings: dict[str, Any]) -> list[KafkaError | None]:
    """The outcome of one record."""
    outcomes: list[KafkaError | None] = []
    producer = Producer(settings)
    producer.produce("t", b"value", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(DEADLINE_S)
    return outcomes


def first_error(settings: dict[str, Any]) -> str:
    errors: list[KafkaError] = []
    producer = Producer(settings | {"error_cb": errors.append})
    eventually(
        lambda: (
            producer.poll(0.05) is not None
            and any(e.code() == KafkaError._AUTHENTICATION for e in errors)
        ),
        "librdkafka is refused",
    )
    return next(e.str() for e in errors if e.code() == KafkaError._AUTHENTICATION)


@pytest.mark.parametrize(("key_id", "algorithm"), [("rsa-1", "PS256"), ("ec-1", "ES256")])
def test_librdkafka_logs_in_with_a_token(tokens: Tokens, key_id: str, algorithm: str) -> None:
    settings = tokens.librdkafka(lambda: tokens.issuer.token(key_id, algorithm))
    assert send(settings) == [None]
    consumer = Consumer(settings | {"group.id": key_id, "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    found = consumer.poll(DEADLINE_S)
    assert found is not None
    assert found.value() == b"value"
    consumer.close()


BAD: dict[str, tuple[Callable[[Issuer], str], str]] = {
    "audience": (lambda i: i.token(aud="another"), "audience (aud)"),
    "issuer": (lambda i: i.token(iss="https://example.com"), "issuer (iss)"),
    "expired": (lambda i: i.token(exp=int(i.now_s) - 3_600), "the token has expired"),
    "unknown": (lambda i: i.token(headers={"kid": "rsa-2"}), "has not the key (kid)"),
    "stranger": (
        lambda i: i.token(key=rsa.generate_private_key(public_exponent=65_537, key_size=2_048)),
        "the signature is not",
    ),
    "none": (lambda i: i.unsigned(), "the algorithm is none of"),
    "tampered": (lambda i: i.tampered(sub="admin"), "the signature is not"),
}


@pytest.mark.parametrize("kind", BAD)
def test_librdkafka_is_refused_in_kafkas_words(tokens: Tokens, kind: str) -> None:
    make, reason = BAD[kind]
    token = make(tokens.issuer)
    said = first_error(tokens.librdkafka(lambda: token))
    assert '{"status":"invalid_token"}' in said
    assert reason not in said  # that is for the operator
    eventually(lambda: reason in tokens.log(), "the broker's log says why")
    assert token not in tokens.log()


class Provider(AbstractTokenProvider):
    def __init__(self, value: str) -> None:
        self.value = value

    async def token(self) -> str:
        return self.value


def test_aiokafka_logs_in_and_is_refused(tokens: Tokens) -> None:
    async def run(token: str) -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=tokens.by_file,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(token),
            request_timeout_ms=3_000,
        )
        try:
            await producer.start()
            return int((await producer.send_and_wait("t", b"aiokafka")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(run(tokens.issuer.token())) >= 0
    # It takes the refusal for a success; its Metadata is answered ILLEGAL_SASL_STATE, as on Kafka.
    with pytest.raises(UnknownTopicOrPartitionError):
        asyncio.run(run(tokens.issuer.tampered(sub="admin")))


KAFKA_PYTHON = """
import sys
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider
class Provider(AbstractTokenProvider):
    def token(self):
        return sys.argv[2]
producer = KafkaProducer(
    bootstrap_servers=sys.argv[1], security_protocol="SASL_PLAINTEXT",
    sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=Provider(),
    bootstrap_timeout_ms=5_000,
)
print(producer.send("t", b"kafka-python").get(30).offset)
"""


def test_kafka_python_logs_in_and_is_refused(tokens: Tokens) -> None:
    def produced(token: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", KAFKA_PYTHON, tokens.by_file, token],
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE_S,
            check=False,
        )

    done = produced(tokens.issuer.token())
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 0
    before = tokens.log().count("the signature is not")
    refused = produced(tokens.issuer.tampered(sub="admin"))
    # This client never confirms the refusal, and says only that it could not connect.
    assert refused.returncode != 0
    assert tokens.log().count("the signature is not") > before


def test_kvorums_own_commands_log_in_with_a_token_and_are_refused(
    tokens: Tokens, tmp_path: Path
) -> None:
    file, token = tmp_path / "client.properties", tmp_path / "token.jwt"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
    )

    def run(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        token.write_text(text)
        return run_kvorum(*arguments, "-b", tokens.by_file, "--command-config", str(file))

    done = run(tokens.issuer.token(), "topics", "list")
    assert done.returncode == 0 and "t" in done.stdout.split(), done.stderr
    done = run(tokens.issuer.token(), "produce", "t", "with a token")
    assert done.returncode == 0, done.stderr
    done = run(tokens.issuer.token(), "consume", "t")
    assert "with a token" in done.stdout.splitlines(), done.stderr
    refused = run(tokens.issuer.tampered(sub="admin"), "topics", "list")
    assert (refused.returncode, refused.stdout) == (5, "")
    assert "SASL_AUTHENTICATION_FAILED" in refused.stderr


def test_a_client_logs_in_again_before_its_token_expires(tokens: Tokens) -> None:
    made: list[str] = []

    def token() -> str:
        # It ends well after the client has asked for the next one: a session that is within a
        # second of its end could not be renewed.
        now_s = int(time.time())
        made.append(tokens.issuer.token(iat=now_s, exp=now_s + 8))
        return made[-1]

    def login(_: str) -> tuple[str, float]:
        return token(), time.time() + 3

    errors: list[KafkaError] = []
    settings = tokens.librdkafka(token) | {"oauth_cb": login, "error_cb": errors.append}
    producer = Producer(settings)
    delivered: list[KafkaError | None] = []

    def is_again() -> bool:
        producer.produce("t", b"value", on_delivery=lambda error, _: delivered.append(error))
        producer.flush(DEADLINE_S)
        return len(made) > 4  # 2.4 s each: the first session is over by then

    eventually(is_again, "it has asked for further tokens")
    assert set(delivered) == {None}
    assert errors == []


def test_keys_from_an_address_come_late_and_change(tokens: Tokens) -> None:
    settings = tokens.librdkafka(tokens.issuer.token) | {"bootstrap.servers": tokens.by_address}
    assert "invalid_token" in first_error(settings)  # the address has answered nothing so far
    assert "no key set from" in tokens.log()
    tokens.keys.text = tokens.issuer.key_set()
    assert send(settings) == [None]
    # The issuer changes its key: the first token with it makes the broker look for it.
    newer = Issuer(time.time())
    newer.keys = {"rsa-9": newer.keys["rsa-1"]}
    tokens.keys.text = newer.key_set()
    assert send(settings | {"oauth_cb": lambda _: (newer.token("rsa-9"), time.time() + 300)}) == [
        None
    ]
