"""The first users of a cluster without any open listener for clients: `kvorum init --add-scram`."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from tests.live.by_hand import HandMade
from tests.live.cluster import run_kvorum
from tests.polling import DEADLINE_S, eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

PASSWORD = "of nobody else"


def test_a_first_user_logs_in_and_stays_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    scram = ["--add-scram", f"SCRAM-SHA-512=[name=alice,iterations=8192,password-file={file}]"]
    hand = HandMade(tmp_path, controllers=3, brokers=1, more=scram)
    base = hand.ports.broker
    clients = f"127.0.0.1:{base + 4}"
    try:
        hand.change(
            "broker-101",
            listeners=f"PLAINTEXT://127.0.0.1:{base},CLIENTS://{clients}",
            **{
                "inter.broker.listener.name": "PLAINTEXT",
                "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            },
        )
        controllers = [f"controller-{number}" for number in (1, 2, 3)]
        hand.start(*controllers, "broker-101")
        errors: list[KafkaError] = []
        admin = AdminClient(
            {
                "bootstrap.servers": clients,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "alice",
                "sasl.password": PASSWORD,
                "error_cb": errors.append,
            }
        )
        eventually(lambda: 101 in admin.list_topics(timeout=DEADLINE_S).brokers, "alice is in")
        properties = tmp_path / "client.properties"

        def exit_code(password: str) -> int:
            properties.write_text(
                "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
                "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule "
                f'required username="alice" password="{password}";\n'
            )
            command = ("topics", "list", "-b", clients, "--command-config", str(properties))
            return run_kvorum(*command).returncode

        assert exit_code(PASSWORD) == 0
        assert exit_code("another") == 5
        for name in (*controllers, "broker-101"):
            hand.stop(name)
        hand.start(*controllers, "broker-101")
        eventually(lambda: exit_code(PASSWORD) == 0, "alice logs in after a restart")
        # The first active controller wrote the records; no later one writes them again.
        done = run_kvorum("metadata", "dump", "--bootstrap-controller", hand.bootstrap_controller)
        assert done.stdout.count('"ScramCredential"') == 1, done.stderr
    finally:
        hand.close()
