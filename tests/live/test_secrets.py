"""Real nodes with passwords: files for the owner alone, and no password in anything they show."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.live.by_hand import HandMade
from tests.live.cluster import Cluster, run_kvorum
from tests.polling import DEADLINE_S, eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

MARKER = "M4rker-of-a-secret"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_alice="{MARKER}" user_bob="{MARKER}-of-bob";'
)


@pytest.fixture(scope="module")
def hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandMade]:
    hand = HandMade(tmp_path_factory.mktemp("secrets"), controllers=1, brokers=1)
    base = hand.ports.broker
    hand.change(
        "broker-101",
        listeners=f"PLAINTEXT://127.0.0.1:{base},CLIENTS://127.0.0.1:{base + 4}",
        **{
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.clients.plain.sasl.jaas.config": JAAS,
            "metrics.listener": f"HTTP://127.0.0.1:{base + 5}",
            "ssl.key.password": MARKER,
        },
    )
    hand.file("broker-101").chmod(0o644)
    try:
        hand.start("controller-1", "broker-101")
        eventually(
            lambda: run_kvorum("topics", "create", "t", "-b", hand.bootstrap).returncode == 0,
            "a topic is made",
        )
        yield hand
    finally:
        hand.close()


def log_of(hand: HandMade, name: str) -> str:
    return (hand.folder / f"{name}.err").read_text()


def wide_files(folder: Path) -> list[str]:
    found = [folder, *folder.rglob("*")]
    assert len(found) > 10
    return [
        f"{oct(path.stat().st_mode & 0o777)} {path}"
        for path in found
        if path.stat().st_mode & 0o777 != (0o700 if path.is_dir() else 0o600)
    ]


def test_a_start_tells_of_a_file_that_everybody_may_read(hand: HandMade) -> None:
    told = [
        line for line in log_of(hand, "broker-101").splitlines() if "every user may read" in line
    ]
    assert len(told) == 1
    assert str(hand.file("broker-101")) in told[0]
    assert "every user may read" not in log_of(hand, "controller-1")


def test_all_that_nodes_write_is_their_owners_alone(hand: HandMade) -> None:
    assert wide_files(hand.folder / "conf" / "data") == []


def test_no_password_is_in_a_log_a_page_or_an_answer(hand: HandMade) -> None:
    admin = AdminClient({"bootstrap.servers": hand.bootstrap})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096)
    change = UserScramCredentialUpsertion("carol", info, MARKER.encode(), MARKER.encode())
    for done in admin.alter_user_scram_credentials([change]).values():
        done.result(DEADLINE_S)
    secret = hand.folder / "password"
    secret.write_text(f"{JAAS}\n")
    of_broker = ("--entity", "broker", "--name", "101", "-b", hand.bootstrap)
    shown = []
    for value in ("--set-file", f"sasl.jaas.config={secret}"), ("--delete", "sasl.jaas.config"):
        done = run_kvorum("configs", "alter", *of_broker, *value)
        assert done.returncode == 0, done.stderr
        shown.append(done.stdout)
    resource = ConfigResource(ConfigResource.Type.BROKER, "101")
    (configs,) = [f.result(DEADLINE_S) for f in admin.describe_configs([resource]).values()]
    entry = configs["ssl.key.password"]
    assert entry.is_sensitive
    assert entry.value is None
    shown += [repr([(each.name, each.value, each.synonyms) for each in configs.values()])]
    for command in (
        ("configs", "describe", *of_broker, "--all"),
        ("metadata", "tree", "--bootstrap-controller", hand.bootstrap_controller),
        ("metadata", "dump", "--bootstrap-controller", hand.bootstrap_controller),
    ):
        done = run_kvorum(*command)
        assert done.returncode == 0, done.stderr
        shown.append(done.stdout + done.stderr)
    assert "carol" in shown[-1]
    address = f"http://127.0.0.1:{hand.ports.broker + 5}"
    for page in ("/metrics", "/livez", "/readyz", "/debug/raft"):
        with urllib.request.urlopen(address + page, timeout=DEADLINE_S) as answer:
            shown.append(answer.read().decode())
    shown += [log_of(hand, name) for name in ("controller-1", "broker-101")]
    assert all(shown)
    assert [text for text in shown if MARKER in text] == []


def test_no_process_shows_a_password_on_its_command_line(hand: HandMade) -> None:
    def command_lines() -> list[bytes]:
        lines = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                lines.append(Path(f"/proc/{pid}/cmdline").read_bytes())
            except OSError:
                continue  # it ended
        return lines

    lines = command_lines()
    assert [line for line in lines if b"broker" in line and b"kvorum" in line] != []
    assert [line for line in lines if MARKER.encode() in line] == []


def test_a_cluster_of_one_command_keeps_its_files_and_passwords(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.toml"
    secrets.write_text(f'"ssl.key.password" = "{MARKER}"\n')
    with Cluster(tmp_path, controllers=1, brokers=1, config=secrets) as cluster:
        assert wide_files(cluster.data_dir) == []
        written = [path for path in cluster.data_dir.rglob("*") if path.is_file()]
        assert [path for path in written if MARKER.encode() in path.read_bytes()] == []
