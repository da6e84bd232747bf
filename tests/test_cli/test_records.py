"""Rules of `kvorum produce` and `consume` that need no cluster: forms, ranges, options."""

from __future__ import annotations

import json
import os
import socket

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from kvorum.cli.records import source
from kvorum.cli.records.positions import parse_range
from kvorum.cli.records.source import LineSource
from kvorum.cli.records.text_input import BadRecord, NewRecord, Template
from kvorum.cli.records.text_output import formatter
from kvorum.cli.records.times import duration_ms, time_ms, time_text
from kvorum.client import connection as kafka_client
from kvorum.client.cluster.offsets import Position
from kvorum.client.connection import BrokerGone, KafkaConnection
from kvorum.client.failures import CommandFailed
from tests.command import kvorum

# --- ranges and times ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "first", "end"),
    [
        ("start", Position(kind="start"), None),
        ("END", Position(kind="end"), None),
        ("17", Position(kind="offset", number=17), None),
        ("-5", Position(kind="end", number=-5), None),
        ("+5", Position(kind="start", number=5), None),
        ("3:9", Position(kind="offset", number=3), Position(kind="offset", number=9)),
        (":end", Position(kind="start"), Position(kind="end")),
        ("3:", Position(kind="offset", number=3), None),
        ("@1700000000000", Position(kind="time", number=1_700_000_000_000), None),
        ("@1700000000", Position(kind="time", number=1_700_000_000_000), None),
        ("@1970-01-01T00:00:01", Position(kind="time", number=1000), None),
        (
            "@1970-01-01T00:00:01:@1970-01-01T02:00:02+02:00",
            Position(kind="time", number=1000),
            Position(kind="time", number=2000),
        ),
        ("@-1h:end", Position(kind="time", number=6_400_000), Position(kind="end")),
    ],
)
def test_a_range_of_offsets_is_read(text, first, end):
    assert parse_range(text, now_ms=10_000_000) == (first, end)


@pytest.mark.parametrize("text", ["9:5", "-1:-2", "+3:+2", "@2000000000:@1700000000", "end:-1"])
def test_a_range_that_runs_backward_is_refused(text):
    with pytest.raises(ValueError, match="runs backward"):
        parse_range(text, now_ms=0)
    with pytest.raises(ValueError, match="in front of it"):
        parse_range("5:start", now_ms=0)


@pytest.mark.parametrize("text", ["5:5", "9:-1", "-5:3", "+9:end", "@1700000000:end", "9:+1"])
def test_a_range_whose_order_only_a_partition_tells_is_read(text):
    assert parse_range(text, now_ms=0)[1] is not None


@pytest.mark.parametrize("text", ["", "soon", "1.5", "@", "@yesterday", "@-1", "9" * 30, "1:x"])
def test_what_is_no_range_is_refused_with_what_to_write(text):
    with pytest.raises(ValueError, match="write"):
        parse_range(text, now_ms=0)


@pytest.mark.parametrize(
    ("text", "value_ms"),
    [
        ("90m", 5_400_000),
        ("1h30m", 5_400_000),
        ("P1DT2H", 93_600_000),
        ("PT0.5S", 500),
        ("7d", 604_800_000),
    ],
)
def test_a_duration_is_read_in_both_forms(text, value_ms):
    assert duration_ms(text) == value_ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "5", "1w", "-1h"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="no duration"):
        duration_ms(text)


def test_times_are_in_utc_without_a_zone():
    assert time_ms("2026-01-31") == time_ms("2026-01-31T00:00:00Z")
    assert time_text(time_ms("2026-01-31T12:00:00.250")) == "2026-01-31T12:00:00.250Z"
    assert time_text(-1) == "-"


# --- forms -----------------------------------------------------------------------------------


def message(key: bytes | None, value: bytes | None, *headers: tuple[str, bytes | None]) -> Message:
    return Message(
        topic="t", partition=3, offset=7, key=key, value=value, headers=[*headers],
        timestamp=(TIMESTAMP_CREATE_TIME, 1234),
    )  # fmt: skip


RECORD = message(b"k", b"v\xff", ("h", b"1"), ("n", None))


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (r"%t %p %o %k %v %h %T\n", b"t 3 7 k v\xff h=1,n=null 1234\n"),
        (r"%s %S %K %V %H %d %%\t\x41\\", b"v\xff 2 1 2 2 1234 %\tA\\"),
        (r"%v\n", b"v\xff\n"),
        ("plain %o", b"plain 7"),
    ],
)
def test_a_format_string_prints_a_record(form, text):
    assert formatter(form, b"null")(RECORD) == text


def test_a_null_is_shown_as_the_text_for_it():
    tombstone = message(None, None)
    assert formatter(r"%k|%v|%K|%V\n", b"NIL")(tombstone) == b"NIL|NIL|-1|-1\n"
    assert formatter(r"%v\n", b"")(tombstone) == b"\n"


@pytest.mark.parametrize("form", ["%q", r"\q", "%v%", "%v\\"])
def test_an_unknown_token_is_refused(form):
    with pytest.raises(ValueError, match=r"unknown|nothing"):
        formatter(form, b"")


def test_json_lines_are_read_back_as_they_were_written():
    line = formatter("json", b"")(RECORD)
    row = json.loads(line)
    assert (row["key"], row["value_base64"], row["offset"]) == ("k", "dv8=", 7)
    assert "value" not in row
    again = Template().from_json(line)
    assert again == NewRecord(b"k", b"v\xff", ((b"h", b"1"), (b"n", None)), 3, 1234)


def test_json_takes_other_values_as_their_text_and_headers_as_an_object():
    line = '{"value": {"a": [1, "ü"]}, "headers": {"h": "x", "n": null}, "timestamp": "1970-01-02"}'
    record = Template(key=b"k", headers=((b"all", b"1"),)).from_json(line.encode())
    assert record.value == '{"a":[1,"ü"]}'.encode()
    assert record.headers == ((b"all", b"1"), (b"h", b"x"), (b"n", None))
    assert (record.key, record.timestamp_ms) == (b"k", 86_400_000)
    assert Template().from_json(b'{"key": "k"}').value is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "no JSON"),
        (b"[1]", "no JSON object"),
        (b'{"valeu": 1}', "unknown key 'valeu'"),
        (b'{"value": "a", "value_base64": "YQ=="}', "both given"),
        (b'{"value_base64": "*"}', "no base64"),
        (b'{"value_base64": 3}', "no base64"),
        (b'{"value": "\\ud800"}', "surrogate"),
        (b'{"partition": -1}', "no number of a partition"),
        (b'{"partition": true}', "no number of a partition"),
        (b'{"timestamp": "soon"}', "no time"),
        (b'{"timestamp": 1.5}', "no time"),
        (b'{"headers": "h=1"}', "no list"),
        (b'{"headers": [{"value": "1"}]}', "no key"),
    ],
)
def test_bad_json_is_refused_with_its_reason(line, words):
    with pytest.raises(BadRecord, match=words):
        Template().from_json(line)


def test_lines_are_split_at_the_separator_and_may_be_tombstones():
    template = Template(key_separator=b":", empty_is_null=True)
    assert template.from_text(b"k:v:w") == NewRecord(b"k", b"v:w")
    assert template.from_text(b"k:") == NewRecord(b"k", None)
    assert Template().from_text(b"") == NewRecord(None, b"")
    with pytest.raises(BadRecord, match="no key separator ':'"):
        template.from_text(b"kv")


# --- lines -----------------------------------------------------------------------------------


def lines_of(data: bytes, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> list[bytes]:
    monkeypatch.setattr(source, "CHUNK_BYTES", chunk_bytes)
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as file:
        file.write(data)
    found = []
    with os.fdopen(reader, "rb") as file:
        lines = LineSource(file.fileno(), "pipe")
        while not lines.is_at_end:
            found += lines.read(None)
    return found


@pytest.mark.parametrize("chunk_bytes", [1, 3, 1000])
@pytest.mark.parametrize("data", [b"", b"\n", b"a", b"a\n", b"a\n\nbc\ndefgh\ni", b"\na\n"])
def test_lines_are_those_of_the_file_whatever_comes_at_once(monkeypatch, chunk_bytes, data):
    expected = data.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert lines_of(data, monkeypatch, chunk_bytes) == expected


def test_a_line_without_an_end_is_refused(monkeypatch):
    monkeypatch.setattr(source, "LINE_BYTES_MAX", 10)
    with pytest.raises(CommandFailed, match="more than 10 bytes"):
        lines_of(b"x" * 30, monkeypatch, 4)


# --- connections ----------------------------------------------------------------------------


def test_a_connection_whose_answer_did_not_come_is_not_used_again(monkeypatch):
    # Otherwise the late answer would be read as the answer to the next request.
    monkeypatch.setattr(kafka_client, "ANSWER_SLACK_S", 0.0)
    topics = {"topics": [], "allow_auto_topic_creation": False,
              "include_topic_authorized_operations": False}  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = KafkaConnection([server.getsockname()[:2]], 0.05)
        first, _ = server.accept()
        with first:
            with pytest.raises(BrokerGone, match="did not answer"):
                connection.ask("metadata", 3, 12, topics, flexible=True)
            assert first.recv(4) and b"".join(iter(lambda: first.recv(99), b""))
        with pytest.raises(BrokerGone, match="did not answer"):
            connection.ask("metadata", 3, 12, topics, flexible=True)
        second, _ = server.accept()
        second.close()
        connection.close()


# --- the command line ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["produce"], "Missing argument 'TOPIC'"),
        (["produce", "t", "v", "-i", __file__], "give values or --file"),
        (["produce", "t", "v", "--whole-file"], "--whole-file needs --file"),
        (["produce", "t", "-i", "/nowhere"], "does not exist"),
        (["produce", "t", "v", "-k", "k", "-K", ":"], "give --key or --key-separator"),
        (["produce", "t", "v", "-K", ""], "--key-separator is empty"),
        (["produce", "t", "v", "-f", "json", "-K", ":"], "JSON has its key"),
        (["produce", "t", "v", "-H", "novalue"], "'novalue' is not NAME=VALUE"),
        (["produce", "t", "v", "--timestamp", "soon"], "'soon' is no time"),
        (["produce", "t", "v", "--acks", "1", "--idempotence"], "needs --acks all"),
        (["produce", "t", "v", "-z", "brotli"], "'brotli' is not one of"),
        (["produce", "t", "v", "-p", "-1"], "-1 is not in the range"),
        (["consume"], "Missing argument 'TOPICS...'"),
        (["consume", "t", "-o", "json"], "give -f json"),
        (["consume", "t", "-o", "soon"], "'soon' is no offset"),
        (["consume", "t", "-o", "end"], "add --follow"),
        (["consume", "t", "-o", "1:2", "-F"], "--follow has no end"),
        (["consume", "t", "-g", "g", "-p", "1"], "a group assigns the partitions"),
        (["consume", "t", "-g", "g", "-o", "1:2"], "an end of --offset cannot be"),
        (["consume", "t", "-g", ""], "--group is empty"),
        (["consume", "t", "-f", "%q"], "%q is unknown"),
        (["consume", "t", "-f", "xml"], "is no text, no json and has no %"),
        (["consume", "t", "-f", "json", "--print-key"], "--print-key is for -f text"),
        (["consume", "t", "-n", "0"], "0 is not in the range"),
        (["consume", "t", "-o", "9:5", "-p", "1"], "'9:5' runs backward; write the earlier side"),
    ],
)
def test_bad_options_are_refused_before_anything_is_connected(arguments, words):
    code, out, err = kvorum(*arguments, "-b", "127.0.0.1:1")
    assert (code, out) == (2, "")
    assert words in " ".join(err.split())


@pytest.mark.parametrize("command", [["produce", "t", "v"], ["consume", "t"]])
def test_controllers_have_no_records_and_nobody_is_unreachable(command):
    code, _, err = kvorum(*command, "--bootstrap-controller", "127.0.0.1:1")
    assert code == 2 and "give --bootstrap-server" in err
    code, _, err = kvorum(*command, "-b", "127.0.0.1:1")
    assert code == 3 and err.startswith("kvorum: no broker reachable at 127.0.0.1:1")
