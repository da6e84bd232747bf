"""Secrets in every output: a marker is the value of each secret, and no output may show it."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import pytest

from kvorum.cli.log import log
from kvorum.cli.metadata import metadata
from kvorum.cli.snapshot import snapshot
from kvorum.console.travel import Travel
from kvorum.metadata.configs.config_keys import BROKER_CONFIGS
from kvorum.metadata.configs.kafka_keys import kafka_keys
from kvorum.metadata.configs.secrets import is_password, record_to_dict, shown_config
from kvorum.metadata.events.feed import record_feed, snapshot_feed
from kvorum.metadata.events.model import Origin, Position
from kvorum.metadata.image.image import EMPTY_IMAGE, RESOURCE_BROKER, RESOURCE_TOPIC
from kvorum.metadata.image.records import HIDDEN, RECORD_CLASSES, Config, ScramCredential
from kvorum.metadata.inspect.node_directory import history_of_directory
from kvorum.metadata.inspect.shell import Shell
from kvorum.raft.node.flight_codec import dumps, encode
from kvorum.runtime.disk import OsDisk
from tests.command import kvorum
from tests.test_metadata.folders import replayed, write_log, write_snapshot

MARKER = "M4rker-of-a-secret"
BYTES = MARKER.encode()
NAMES = (
    "ssl.key.password",
    "sasl.jaas.config",
    "listener.name.clients.ssl.keystore.key",
    "listener.name.clients.plain.sasl.jaas.config",
    "password.of.a.plug-in",
    "delegation.token.secret.key",
)
RECORDS = [
    None,
    *(Config(RESOURCE_BROKER, "", name, f"{MARKER} {at}") for at, name in enumerate(NAMES)),
    Config(RESOURCE_BROKER, "101", "ssl.key.password", MARKER),
    Config(RESOURCE_TOPIC, "orders", "secret.of.tomorrow", MARKER),
    Config(RESOURCE_TOPIC, "orders", "retention.ms", "60000"),
    ScramCredential("alice", 1, 4_096, BYTES, BYTES, BYTES),
    ScramCredential("alice", 2, 4_096, BYTES, BYTES, BYTES),
    Config(RESOURCE_BROKER, "", "ssl.key.password", f"{MARKER} again"),
]
SHOWN = ("alice", "retention.ms", "60000", "ssl.key.password")
"""Text that is no secret, and so proves that an output is about these records."""


def found_in(text: str | bytes) -> list[str]:
    """The forms of the marker that are in an output."""
    data = text.encode() if isinstance(text, str) else text
    forms = {
        "text": BYTES,
        "hex": BYTES.hex().encode(),
        # Without the last letters, which depend on the bytes that follow.
        "base64": base64.b64encode(BYTES)[:16],
        "escaped": json.dumps(MARKER)[1:-1].encode(),
    }
    return [name for name, form in forms.items() if form in data]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("node")
    folder = str(path / "__cluster_metadata-0")
    write_log(OsDisk(), RECORDS, folder=folder).close()
    write_snapshot(OsDisk(), replayed(RECORDS, len(RECORDS)), folder=folder)
    return path


def outputs_of_metadata(node: Path, out: Path) -> dict[str, list[list[object]]]:
    """Command lines of `kvorum metadata`, by command."""
    source = ["--directory", node]
    return {
        "cat": [["cat", "/", *source]],
        "diff": [["diff", "1", str(len(RECORDS)), *source], ["diff", "7", "10", *source]],
        "dump": [["dump", *source]],
        "export": [
            ["export", "--out", out / form, "--format", form, *source]
            for form in ("jsonl", "parquet")
        ],
        "find": [
            ["find", "**", *source],
            ["find", "**", "--value", MARKER, *source],
        ],
        "ls": [["ls", "/configs/broker/<default>", *source]],
        "tree": [
            ["tree", *source],
            ["tree", "-o", "json", *source],
            ["tree", "-o", "yaml", *source],
        ],
    }


def test_no_command_of_the_metadata_shows_a_secret(node: Path, tmp_path: Path) -> None:
    lines = outputs_of_metadata(node, tmp_path)
    # A snapshot is made for nodes: it holds the secrets, and only its owner may read the file.
    assert set(lines) == set(metadata.commands) - {"shell", "snapshot"}
    for of_command in lines.values():
        for arguments in of_command:
            code, out, error = kvorum("metadata", *arguments)
            assert code in (0, 1), (arguments, error)
            if MARKER not in arguments:
                assert any(word in out for word in SHOWN) or "export" in arguments, arguments
            assert found_in(out + error) == [], arguments
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 10
    for path in written:
        assert found_in(path.read_bytes()) == [], path
        assert path.stat().st_mode & 0o077 == 0, path


def test_the_shell_shows_no_secret(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_shell = Shell(lambda: history_of_directory(OsDisk(), str(node)))
    commands = [line.split()[0] for line in of_shell.run("help")]
    arguments = {
        "ls": "/configs/broker/<default>", "cat": "/configs", "tree": "/", "find": "**",
        "diff": f"1 {len(RECORDS)}", "at": str(len(RECORDS)), "cd": "/",
    }  # fmt: skip
    assert set(arguments) <= set(commands)
    lines = [f"{name} {arguments.get(name, '')}" for name in commands if name != "exit"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join([*lines, "exit"]) + "\n"))
    _, out, error = kvorum("metadata", "shell", "--directory", node)
    assert "ssl.key.password" in out
    assert found_in(out + error) == []


def test_tools_for_files_show_no_secret(node: Path) -> None:
    assert set(snapshot.commands) == {"inspect"}
    assert set(log.commands) == {"dump", "verify"}
    folder = node / "__cluster_metadata-0"
    checkpoint = next(folder.glob("*.checkpoint"))
    segments = sorted(folder.glob("*.log"))
    for arguments in (
        ["snapshot", "inspect", checkpoint, "--records"],
        ["snapshot", "inspect", checkpoint, "--records", "-o", "json"],
        ["log", "dump", *segments, "--print-data-log"],
        ["log", "dump", *segments, "--deep-iteration"],
        ["log", "verify", folder],
    ):
        code, out, error = kvorum(*arguments)
        assert code == 0, error
        assert found_in(out + error) == [], arguments
        if "--records" in arguments or "--print-data-log" in arguments:
            assert "alice" in out
            assert HIDDEN in out


def test_a_snapshot_for_nodes_is_for_its_owner_alone(node: Path, tmp_path: Path) -> None:
    out = tmp_path / "snapshots"
    code, _, error = kvorum("metadata", "snapshot", "--out", out, "--directory", node)
    assert code == 0, error
    assert out.stat().st_mode & 0o777 == 0o700
    (file,) = out.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert found_in(file.read_bytes()) == ["text", "escaped"]  # the marker can be found


def test_events_and_the_console_show_no_secret(node: Path) -> None:
    history = history_of_directory(OsDisk(), str(node))
    travel = Travel()
    end = str(len(RECORDS))
    shown = [
        travel.tree(history, {"path": path})
        for path in ("/", "/configs/broker/<default>", "/configs/topic/orders",
                     "/scram_credentials/alice/1")
    ]  # fmt: skip
    shown += [travel.difference(history, {"from": "1", "to": end})]
    assert HIDDEN in repr(shown)
    assert found_in(repr(shown)) == []
    image = history.image_at()
    origin = Origin(offset=len(RECORDS) - 1, epoch=1, timestamp_ms=0)
    of_things = snapshot_feed(image, Position(origin=origin, index=0, count=10))
    of_records = record_feed(EMPTY_IMAGE, history.entries())
    events = [event for _, event in (*of_things, *of_records)]
    assert len(events) > len(NAMES)
    assert found_in(repr(events)) == []


def test_text_of_a_record_or_of_an_image_has_no_secret(node: Path) -> None:
    history = history_of_directory(OsDisk(), str(node))
    for record in RECORDS[1:]:
        assert found_in(repr(record)) == []
    entries = list(history.entries())
    assert found_in(repr([entry.fields for entry in entries])) == []
    assert found_in(repr([entry.record for entry in entries])) == []
    assert found_in(dumps(encode(history.records))) == []


def test_each_kind_of_record_says_what_it_hides() -> None:
    # Whoever adds a record with bytes that are no uuid, or with text that may be a password, must
    # decide here if it is a secret.
    secret = {cls.__name__: getattr(cls, "SECRETS", ()) for cls in RECORD_CLASSES}
    assert {name for name, fields in secret.items() if fields} >= {"ScramCredential"}
    for record in RECORDS[1:]:
        assert found_in(repr(record_to_dict(record))) == []


@pytest.mark.parametrize("name", sorted({*BROKER_CONFIGS, *kafka_keys()}))
def test_passwords_are_the_keys_of_the_type_password(name: str) -> None:
    key = BROKER_CONFIGS.get(name) or kafka_keys()[name]
    assert is_password(name) == key.is_sensitive
    assert is_password(f"listener.name.any.{name}") == key.is_sensitive
    assert is_password(f"listener.name.any.scram-sha-256.{name}") == key.is_sensitive
    shown = shown_config(RESOURCE_BROKER, name, MARKER)
    assert shown == (HIDDEN if key.is_sensitive else MARKER)
    if ("password" in name and not name.startswith("password.encoder.")) or "secret" in name:
        assert key.is_sensitive, "its name says that it is one"
