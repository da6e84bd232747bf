from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from kvorum.chaos.checks import run_checks
from kvorum.chaos.history import (
    Commit,
    HistoryWriter,
    Poll,
    Send,
    read_header,
    read_history,
)
from kvorum.chaos.workloads.record_values import decode, encode
from kvorum.runtime.errors import CorruptData


def send(history: HistoryWriter, value: int, process: str = "producer-1") -> float:
    ops = (Send("orders", 0, value),)
    return history.append(process=process, type="invoke", f="send", ops=ops)


def test_history_reads_back_what_was_written(tmp_path):
    path = str(tmp_path / "history.jsonl")
    poll = Poll("orders", 2, (41, 43), (7, 8))
    commit = Commit("orders", 2, 44)
    with HistoryWriter(path, run_id="r1", system="kvorum 1.0") as history:
        invoked_ms = send(history, 7)
        done = Send("orders", 0, 7, 41, "key")
        history.append(
            process="producer-1", type="ok", f="send", ops=(done,), invoked_ms=invoked_ms
        )
        history.append(process="copier-1", type="invoke", f="transaction", ops=(done,))
        history.append(
            process="copier-1",
            type="ok",
            f="transaction",
            ops=(poll, done, commit),
            transaction="copy-1",
            group="g",
            generation=3,
        )
        history.append(
            process="member-1", type="ok", f="assign", partitions=(("orders", 2),), group="g"
        )
        history.append(
            process="nemesis", type="info", f="fault-begin", details={"id": 0, "n": 'a"b'}
        )
    header = read_header(path)
    assert (header.history, header.run_id, header.system) == (2, "r1", "kvorum 1.0")
    events = list(read_history(path))
    assert [event.index for event in events] == list(range(6))
    assert [event.time_ms for event in events] == sorted(event.time_ms for event in events)
    assert (events[0].type, events[0].time_ms) == ("invoke", invoked_ms)
    assert events[0].ops == (Send("orders", 0, 7),)
    assert events[1].ops == (done,)
    assert events[1].invoked_ms == pytest.approx(invoked_ms)
    assert events[3].ops == (poll, done, commit)
    assert (events[3].transaction, events[3].group, events[3].generation) == ("copy-1", "g", 3)
    assert list(poll.records()) == [(7, 41), (8, 43)]
    assert events[4].partitions == (("orders", 2),)
    assert events[5].details == {"id": 0, "n": 'a"b'}


def test_half_a_last_line_is_left_out(tmp_path):
    path = tmp_path / "history.jsonl"
    with HistoryWriter(str(path)) as history:
        send(history, 0)
        send(history, 1)
    path.write_bytes(path.read_bytes()[:-5])
    assert [event.ops[0].value for event in read_history(str(path))] == [0]


def test_a_history_of_another_version_is_refused_with_the_way_out(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text('{"index":0,"time_ms":0.1,"wall_ms":1,"process":"p","type":"ok","f":"produce"}')
    for read in (read_header, lambda path: list(read_history(path))):
        with pytest.raises(CorruptData, match="of version 1, this Kvorum reads version 2; judge"):
            read(str(path))


@pytest.mark.parametrize("text", ["", "x\n", "[1]\n", '{"history":2}\n'])
def test_a_file_without_a_header_is_no_history(tmp_path, text):
    path = tmp_path / "history.jsonl"
    path.write_text(text)
    with pytest.raises(CorruptData):
        list(read_history(str(path)))


@pytest.mark.parametrize("line", [b"nonsense\n", b'{"index": 0}\n', b"[]\n"])
def test_damaged_line_is_reported_with_its_place(tmp_path, line):
    path = tmp_path / "history.jsonl"
    with HistoryWriter(str(path)) as history:
        send(history, 0)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(CorruptData) as damaged:
        list(read_history(str(path)))
    assert damaged.value.position == size


def lines_of_a_run(path: Path) -> list[bytes]:
    """A history's header, and two sends, a commit and a fault, each with its begin and its end."""
    fault = {"id": 4}
    with HistoryWriter(str(path)) as history:
        for value in (0, 1):
            done = {"ops": (Send("orders", 0, value, value),), "invoked_ms": send(history, value)}
            history.append(process="producer-1", type="ok", f="send", **done)
        ops = (Commit("orders", 0, 1),)
        begun_ms = history.append(process="member-1", type="invoke", f="commit", ops=ops)
        history.append(process="member-1", type="info", f="commit", ops=ops, invoked_ms=begun_ms)
        history.append(process="nemesis", type="info", f="fault-begin", details=fault)
        history.append(process="nemesis", type="info", f="fault-end", details=fault)
        # A member's assignment states how long it took, and nobody invoked it.
        history.append(process="member-1", type="ok", f="assign", group="g", invoked_ms=begun_ms)
    return path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize(
    ("gone", "is_renumbered", "reason"),
    [
        (3, False, "at line 4: event 3 follows where event 2 belongs"),
        (1, True, "at line 2: event 0, ok of a send, has no invocation"),
        (3, True, "at line 4: event 2, ok of a send, has no invocation"),
        (5, True, "at line 6: event 4, info of a commit, has no invocation"),
        (7, True, "at line 8: event 6, the end of a fault, has no fault-begin"),
    ],
)
def test_a_history_with_a_missing_line_is_damaged_at_that_place(
    tmp_path, gone, is_renumbered, reason
):
    path = tmp_path / "history.jsonl"
    lines = lines_of_a_run(path)
    assert len(list(read_history(str(path)))) == len(lines) - 1
    del lines[gone]
    if is_renumbered:
        events = [json.loads(line) for line in lines[1:]]
        lines[1:] = [json.dumps({**e, "index": n}).encode() + b"\n" for n, e in enumerate(events)]
    path.write_bytes(b"".join(lines))
    with pytest.raises(CorruptData, match=f"the history is damaged {reason}") as damaged:
        run_checks(str(path))
    assert damaged.value.position == len(b"".join(lines[:gone]))


def test_what_was_written_a_second_ago_survives_a_killed_run(tmp_path, monkeypatch):
    now_ns = 0
    monkeypatch.setattr("time.monotonic_ns", lambda: now_ns)
    path = str(tmp_path / "history.jsonl")
    with HistoryWriter(path) as history:
        for value in range(5):
            now_ns += 400_000_000
            send(history, value)
        assert len(list(read_history(path))) >= 3


def test_threads_never_share_an_index_nor_go_back_in_time(tmp_path):
    path = str(tmp_path / "history.jsonl")
    with HistoryWriter(path) as history:

        def write(process: str) -> None:
            for value in range(500):
                send(history, value, process)

        threads = [threading.Thread(target=write, args=(f"producer-{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events = list(read_history(path))
    assert [event.index for event in events] == list(range(2000))
    times = [event.time_ms for event in events]
    assert times == sorted(times)


def test_record_value_survives_padding():
    assert len(encode(123, 100)) == 100
    assert decode(encode(123, 100)) == 123
    assert decode(encode(123456789, 4)) == 123456789
    assert decode(None) == -1
    assert decode(b"somebody else's") == -1
