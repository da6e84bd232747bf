from __future__ import annotations

import threading

import pytest

from kvorum.chaos.experiment.history import HistoryWriter, read_history, records_of
from kvorum.chaos.workloads.records import decode, encode
from kvorum.runtime.errors import CorruptData


def test_history_reads_back_what_was_written(tmp_path):
    path = str(tmp_path / "history.jsonl")
    with HistoryWriter(path) as history:
        invoked_ms = history.produce_invoked("producer-1", 2, 7)
        history.produce_acknowledged("producer-1", 2, 7, 41, invoked_ms)
        history.append(
            process="consumer-1", type="ok", f="consume", partition=2, value=[7, 8], offset=[41, 43]
        )
        history.append(process="nemesis", type="info", f="fault-begin", value={"id": 0, "n": 'a"b'})
    events = list(read_history(path))
    assert [event.index for event in events] == [0, 1, 2, 3]
    assert [event.time_ms for event in events] == sorted(event.time_ms for event in events)
    assert (events[0].type, events[0].value, events[0].time_ms) == (
        "invoke",
        7,
        round(invoked_ms, 3),
    )
    assert list(records_of(events[1])) == [(7, 41)]
    assert 0 <= events[1].latency_ms <= events[1].time_ms
    assert list(records_of(events[2])) == [(7, 41), (8, 43)]
    assert events[3].value == {"id": 0, "n": 'a"b'}


def test_half_a_last_line_is_left_out(tmp_path):
    path = tmp_path / "history.jsonl"
    with HistoryWriter(str(path)) as history:
        history.produce_invoked("producer-1", 0, 0)
        history.produce_invoked("producer-1", 0, 1)
    path.write_bytes(path.read_bytes()[:-5])
    assert [event.value for event in read_history(str(path))] == [0]


@pytest.mark.parametrize("line", [b"nonsense\n", b'{"index": 0}\n', b"[]\n"])
def test_damaged_line_is_reported_with_its_place(tmp_path, line):
    path = tmp_path / "history.jsonl"
    with HistoryWriter(str(path)) as history:
        history.produce_invoked("producer-1", 0, 0)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(CorruptData) as damaged:
        list(read_history(str(path)))
    assert damaged.value.position == size


def test_threads_never_share_an_index_nor_go_back_in_time(tmp_path):
    path = str(tmp_path / "history.jsonl")
    with HistoryWriter(path) as history:

        def write(process: str) -> None:
            for value in range(500):
                history.produce_invoked(process, 0, value)

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
