"""Rules of `kvorum produce` and `consume` that need no cluster: partitions, forms, ranges."""

from __future__ import annotations

import itertools
import json
import os
import socket
from collections.abc import Mapping
from random import Random

import pytest

from kvorum.cli.common import CommandFailed
from kvorum.cli.kafka_client import KafkaConnection
from kvorum.cli.records import source
from kvorum.cli.records.offsets import Position, parse_range
from kvorum.cli.records.outgoing import NewRecord, OutgoingBatch, ProducerIdentity
from kvorum.cli.records.partitioning import STICKY_BYTES, Partitioner, murmur2
from kvorum.cli.records.source import LineSource
from kvorum.cli.records.text_input import BadRecord, Template
from kvorum.cli.records.text_output import formatter
from kvorum.cli.records.times import duration_ms, time_ms, time_text
from kvorum.cli.records.visible import DamagedBatch, Range, end_position, visible_records
from kvorum.runtime.errors import InvariantViolated
from kvorum.storage.format.batch import build_batch, iter_records, read_header, stamp
from kvorum.storage.format.compression import Codec
from kvorum.storage.format.markers import build_marker
from kvorum.storage.format.record_codec import Record
from tests.command import kvorum

# Of Kafka's UtilsTest, as signed numbers.
KAFKAS_HASHES: Mapping[bytes, int] = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_a_key_has_the_hash_that_kafka_gives_it():
    assert {key: murmur2(key) for key in KAFKAS_HASHES} == {
        key: value & 0x7FFFFFFF for key, value in KAFKAS_HASHES.items()
    }


def test_records_without_a_key_stay_until_a_batch_is_full_and_avoid_dead_partitions():
    partitioner = Partitioner({0: 1, 1: -1, 2: 2}, Random(1))
    half = STICKY_BYTES // 2
    chosen = [partitioner.partition(None, half) for _ in range(12)]
    pairs = [tuple(chosen[at : at + 2]) for at in range(0, 12, 2)]
    assert all(a == b for a, b in pairs)
    assert all(one != two for one, two in itertools.pairwise(pairs))
    assert set(chosen) == {0, 2}
    # A record with a key still goes to the key's partition, though it is dead.
    assert partitioner.partition(b"foobar", 1) == (-790332482 & 0x7FFFFFFF) % 3


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("has_headers", [False, True])
def test_a_batch_holds_its_records(codec, has_headers):
    headers = ((b"h", b"1"), (b"n", None)) if has_headers else ()
    records = [
        NewRecord(b"k%d" % n, None if n == 3 else b"v%d" % n, headers) for n in range(5)
    ]  # fmt: skip
    batch = OutgoingBatch(
        partition=0, records=records, timestamp_ms=9, base_sequence=7, deadline_s=0.0
    )
    data = bytes(batch.encode(ProducerIdentity(producer_id=5, producer_epoch=2), codec))
    header = read_header(data, 0)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, 7)
    assert (header.compression_code, header.record_count, header.last_offset_delta) == (codec, 5, 4)
    assert list(iter_records(data, 0, header)) == [
        Record(n, 9, record.key, record.value, headers) for n, record in enumerate(records)
    ]


def test_times_of_records_may_fall():
    records = [NewRecord(None, b"a", timestamp_ms=50), NewRecord(None, b"b", timestamp_ms=20)]
    batch = OutgoingBatch(
        partition=0, records=records, timestamp_ms=9, base_sequence=-1, deadline_s=0.0
    )
    data = bytes(batch.encode(ProducerIdentity(), Codec.NONE))
    header = read_header(data, 0)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (50, 50)
    assert [r.timestamp_ms for r in iter_records(data, 0, header)] == [50, 20]


def test_halves_keep_the_sequences_of_their_records():
    records = [NewRecord(None, b"%d" % n) for n in range(5)]
    last = (1 << 31) - 1
    batch = OutgoingBatch(
        partition=3, records=records, timestamp_ms=0, base_sequence=last, deadline_s=1.0
    )
    first, second = batch.halves()
    assert [*first.records, *second.records] == records
    assert (first.base_sequence, second.base_sequence) == (last, 1)


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

RECORD = Record(7, 1234, b"k", b"v\xff", ((b"h", b"1"), (b"n", None)))


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
    assert formatter(form, b"null")("t", 3, RECORD) == text


def test_a_null_is_shown_as_the_text_for_it():
    tombstone = Record(0, 0, None, None)
    assert formatter(r"%k|%v|%K|%V\n", b"NIL")("t", 0, tombstone) == b"NIL|NIL|-1|-1\n"
    assert formatter(r"%v\n", b"")("t", 0, tombstone) == b"\n"


@pytest.mark.parametrize("form", ["%q", r"\q", "%v%", "%v\\"])
def test_an_unknown_token_is_refused(form):
    with pytest.raises(ValueError, match=r"unknown|nothing"):
        formatter(form, b"")


def test_json_lines_are_read_back_as_they_were_written():
    line = formatter("json", b"")("t", 3, RECORD)
    row = json.loads(line)
    assert (row["key"], row["value_base64"], row["offset"]) == ("k", "dv8=", 7)
    assert "value" not in row
    again = Template().from_json(line)
    assert again == NewRecord(RECORD.key, RECORD.value, RECORD.headers, 3, 1234)


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


# --- what a consumer sees --------------------------------------------------------------------


def batch(first: int, *values: bytes, producer_id: int = -1) -> bytes:
    made = build_batch(
        [(None, value) for value in values],
        timestamp_ms=0,
        base_offset=first,
        producer_id=producer_id,
        is_transactional=producer_id >= 0,
    )
    return bytes(made)


def marker(offset: int, *, is_commit: bool, producer_id: int) -> bytes:
    made = build_marker(
        is_commit=is_commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0,
        timestamp_ms=0,
    )  # fmt: skip
    stamp(made, 0, base_offset=offset, leader_epoch=0)
    return bytes(made)


LOG = b"".join(
    [
        batch(0, b"plain"),
        batch(1, b"bad-1", b"bad-2", producer_id=5),
        batch(3, b"good-1", producer_id=6),
        marker(4, is_commit=False, producer_id=5),
        batch(5, b"again-good", producer_id=5),
        marker(6, is_commit=True, producer_id=6),
        marker(7, is_commit=True, producer_id=5),
    ]
)


def seen(wanted: Range, aborted: list[tuple[int, int]] | None) -> list[bytes | None]:
    return [record.value for record in visible_records(LOG, wanted, aborted)]


def test_aborted_records_are_hidden_and_the_producers_next_ones_are_not():
    assert seen(Range(first=0), [(5, 1)]) == [b"plain", b"good-1", b"again-good"]
    everything = [b"plain", b"bad-1", b"bad-2", b"good-1", b"again-good"]
    assert seen(Range(first=0), None) == everything
    assert end_position(LOG, 0) == 8


def test_only_the_range_is_seen_and_a_torn_batch_is_not():
    assert seen(Range(first=2, end=5), None) == [b"bad-2", b"good-1"]
    torn = LOG[:-10]
    assert end_position(torn, 0) == 7
    assert len(list(visible_records(torn, Range(first=0), None))) == 5


def test_a_damaged_batch_is_named():
    damaged = bytearray(LOG)
    damaged[len(batch(0, b"plain")) - 1] ^= 1
    with pytest.raises(DamagedBatch, match="offset 0 fails its checksum"):
        list(visible_records(bytes(damaged), Range(first=0), None))


def test_a_question_before_the_answer_to_the_last_one_is_a_bug():
    # Otherwise the client would read the answer to the fetch as the answer to its next request, a
    # heartbeat.
    topics = {"topics": [], "allow_auto_topic_creation": False,
              "include_topic_authorized_operations": False}  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = KafkaConnection([server.getsockname()[:2]], 1.0)
        connection.post("metadata", 3, 12, topics, flexible=True)
        with pytest.raises(InvariantViolated, match="not been collected"):
            connection.ask("metadata", 3, 12, topics, flexible=True)
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
