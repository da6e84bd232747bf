"""The log of a node: text or JSON lines, and the level of each logger."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kvorum.launch.daemon.logs import set_up_logging
from kvorum.metadata.access.audit import AuditLog
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.log_levels import level_name
from tests.command import kvorum


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:], logging.root.level = handlers, level
    for name in ("kvorum.test", "kvorum.loud"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def lines_of(capsys, **properties):
    set_up_logging(
        properties={f"kvorum.logging.{name}": value for name, value in properties.items()},
        node="broker-101",
    )
    log = logging.getLogger("kvorum.test")
    log.info('broker=%d says "hello"\nand more', 101)
    log.debug("not shown by default")
    try:
        raise OSError("disk")
    except OSError:
        log.exception("failed")
    return capsys.readouterr().err.splitlines()


def test_text_is_a_line_of_time_level_logger_and_message(capsys):
    first = lines_of(capsys)[0].split(" ")
    assert first[1:3] == ["INFO", "kvorum.test"]


def test_json_is_an_object_a_line_also_for_messages_of_several_lines(capsys):
    told, failed = (json.loads(line) for line in lines_of(capsys, format="json"))
    assert told["time"].endswith("Z") and len(told["time"]) == len("2026-01-01T00:00:00.000Z")
    assert (told["level"], told["logger"], told["node"]) == ("INFO", "kvorum.test", "broker-101")
    assert told["message"] == 'broker=101 says "hello"\nand more'
    assert failed["level"] == "ERROR" and "OSError: disk" in failed["exception"]


def test_each_logger_has_its_level(capsys):
    levels = "root=ERROR, kvorum.test=DEBUG"
    lines = [json.loads(line)["message"] for line in lines_of(capsys, format="json", levels=levels)]
    assert lines[1] == "not shown by default"
    logging.getLogger("kvorum.loud").warning("below ERROR")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"format": "xml"}, "kvorum.logging.format='xml' must be text or json"),
        ({"levels": "kvorum.raft"}, "'kvorum.raft' has not the form LOGGER=LEVEL"),
        ({"levels": "kvorum.raft=LOUD"}, "one of DEBUG, ERROR, FATAL, INFO, TRACE, WARN"),
    ],
)
def test_a_bad_property_is_refused(capsys, properties, said):
    with pytest.raises(ConfigError) as refused:
        lines_of(capsys, **properties)
    assert said in str(refused.value)


def test_a_plan_refuses_it_before_anything_is_written(tmp_path):
    for command in (("dev", "--port", "0", "--data-dir"), ("init",)):
        code, _, err = kvorum(*command, tmp_path / "x", "--set", "kvorum.logging.format=xml")
        assert code == 2 and "kvorum.logging.format='xml' must be text or json" in err
        assert not [*tmp_path.glob("x/*")]


def test_a_node_refuses_it_before_it_starts(tmp_path):
    command = [sys.executable, "-m", "kvorum", "broker", "--log-format", "xml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2 and "'xml' is not one of 'text', 'json'" in done.stderr


def test_levels_have_kafkas_names():
    assert [level_name(n) for n in (0, 5, 10, 15, 20, 30, 40, 50)] == [
        "TRACE", "TRACE", "DEBUG", "DEBUG", "INFO", "WARN", "ERROR", "FATAL",
    ]  # fmt: skip


def test_the_audit_may_have_a_file_of_its_own(tmp_path):
    audit = logging.getLogger("kvorum.audit")
    before = (audit.handlers[:], audit.propagate)
    file = tmp_path / "audit.jsonl"
    try:
        set_up_logging(properties={"kvorum.audit.file": str(file)}, node="broker-101")
        AuditLog().note_login("alice", "10.0.0.7", "PLAIN", is_allowed=False, reason="wrong")
        AuditLog().note_login("alice", "10.0.0.7", "PLAIN", is_allowed=True)
        (line,) = map(json.loads, file.read_text().splitlines())
        assert list(line)[:3] == ["time", "node", "event"]
        assert (line["node"], line["principal"], line["allowed"], line["reason"]) == (
            "broker-101", "User:alice", False, "wrong",
        )  # fmt: skip
        with pytest.raises(ConfigError, match=r"kvorum.audit.file=/nowhere/a cannot be written"):
            set_up_logging(properties={"kvorum.audit.file": "/nowhere/a"})
    finally:
        for handler in audit.handlers:
            handler.close()
        audit.handlers[:], audit.propagate = before
