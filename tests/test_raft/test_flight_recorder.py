"""The flight recorder: its contents, and that a replay finds the first different effect."""

import json
import random
from collections import deque
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvorum.raft.core import leadership
from kvorum.raft.core.raft_core import RaftCore
from kvorum.raft.model.effects import Effect, TimelineEntry, TruncateLog
from kvorum.raft.model.events import Event, Propose, RequestFailed, Resign, ResponseReceived
from kvorum.raft.model.messages import FetchResponse
from kvorum.raft.model.values import BatchSpan, OffsetAndEpoch
from kvorum.raft.node import flight_recorder
from kvorum.raft.node.flight_codec import (
    BYTES_KEPT_MAX,
    ElidedBytes,
    UndecodableValue,
    decode,
    dumps,
    encode,
    encode_attributes,
)
from kvorum.raft.node.flight_recorder import (
    DUMPS_MAX,
    FlightRecorder,
    FlightRecordError,
    replay,
    restore,
)
from kvorum.runtime.clock import SystemClock
from kvorum.runtime.errors import ErrorCode, InvariantViolated
from kvorum.runtime.memory_disk import MemoryDisk
from tests.test_raft.driver import Driven

RECORDS = b"r" * 1_000


class Recorded(Driven):
    """A driven core with its recorder."""

    def __init__(self, *arguments, limits=None, **named):
        super().__init__(*arguments, **named)
        self.recorder = FlightRecorder(self.core, **(limits or {}))

    def step(self, event):
        try:
            effects = super().step(event)
        except InvariantViolated as error:
            self.recorder.note_failure(self.now_ms, event, error)
            raise
        self.recorder.note(self.now_ms, event, effects)
        return effects

    def lines(self):
        return list(self.recorder.lines(reason="a test"))

    def fetched_records(self, size_bytes=1_000, **fields):
        offset, epoch = self.core.log.end_offset, self.core.epoch
        self.step(
            ResponseReceived(
                2,
                self.core.role.correlation_id,
                FetchResponse(
                    epoch=epoch,
                    leader_id=2,
                    spans=(BatchSpan(offset, offset, epoch),),
                    records=b"r" * size_bytes,
                    **fields,
                ),
            )
        )
        self.flush()


def a_life(**named):
    """Elections won and lost, appends, a truncation, resignation, a new leader."""
    node = Recorded(**named)
    node.become_leader()
    for _ in range(5):
        node.propose(2)
        node.fetch_request(2, node.core.log.end_offset, node.core.epoch)
        node.flush()
        node.wait(10)
    node.propose(3)
    node.begin_epoch(node.core.epoch + 1, 2)
    node.wait(0)
    node.flush()
    node.wait(node.config.retry_backoff_ms)
    node.fetched(diverging=OffsetAndEpoch(node.core.log.end_offset - 3, node.core.epoch - 1))
    assert node.take(TruncateLog)
    for _ in range(5):
        node.fetched_records(high_watermark=node.core.high_watermark)
    node.step(RequestFailed(2, node.core.role.correlation_id))
    while node.role != "Candidate":
        node.pass_deadline()
        node.answer_votes(3)
    node.answer_votes(3)
    assert node.role == "Leader"
    node.step(Resign())
    return node


def test_a_life_replays_without_difference():
    node = a_life()
    outcome = replay(node.lines())
    assert outcome.first_difference is None
    assert outcome.is_whole
    assert outcome.events == len(node.recorder) > 25
    assert (outcome.node_id, outcome.reason) == (1, "a test")


@pytest.mark.parametrize("seed", range(5))
def test_a_replay_may_begin_in_the_middle(seed):
    node = a_life(seed=seed, limits={"events_max": 16})
    lines = node.lines()
    assert sum("checkpoint" in json.loads(line) for line in lines) > 3
    outcome = replay(lines)
    assert outcome.first_difference is None
    assert outcome.events == len(node.recorder) <= 16


def test_a_large_checkpoint_is_taken_less_often_and_the_ring_holds_more(monkeypatch):
    usual = [json.loads(line) for line in a_life(limits={"events_max": 16}).lines()]
    monkeypatch.setattr(flight_recorder, "CHECKPOINT_USUAL_BYTES", 0)
    node = a_life(limits={"events_max": 16})
    large = [json.loads(line) for line in node.lines()]
    assert sum("checkpoint" in line for line in large) < sum("checkpoint" in line for line in usual)
    assert len(node.recorder) > 16
    assert replay(node.lines()).first_difference is None


def test_a_changed_rule_shows_at_the_first_line_that_it_touches(monkeypatch):
    lines = a_life().lines()
    changed = [n for n, line in enumerate(lines, 1) if '"Resign"' in line]

    def resign(core, now_ms, reason):
        core.emit(TimelineEntry("stays"))

    monkeypatch.setattr(leadership, "resign", resign)
    found = replay(lines).first_difference
    assert found is not None
    assert [found.line_number] == changed
    assert found.event == '{"$":"Resign"}'
    assert "resigned reason" in found.recorded[0]
    assert found.now == (dumps(encode(TimelineEntry("stays"))),)


def test_a_change_that_no_effect_shows_is_found_at_the_next_checkpoint(monkeypatch):
    lines = a_life(limits={"events_max": 16}).lines()
    second = [n for n, line in enumerate(lines, 1) if "checkpoint" in json.loads(line)][1]
    restored = RaftCore.step

    def step(self, event, now_ms):
        self.persisted_leader_id = 77
        return restored(self, event, now_ms)

    monkeypatch.setattr(RaftCore, "step", step)
    found = replay(lines).first_difference
    assert found is not None
    assert (found.line_number, found.event) == (second, "")
    assert "persisted_leader_id = 77" in found.now


def test_a_step_that_failed_fails_again_in_a_replay(monkeypatch):
    node = Recorded().follow(leader=2)
    with pytest.raises(InvariantViolated):
        node.step(Propose((b"",), (1,)))
    lines = node.lines()
    assert "only a leader appends" in json.loads(lines[-2])["raised"]
    assert replay(lines).first_difference is None

    monkeypatch.setattr(RaftCore, "step", lambda self, event, now_ms: [])
    found = replay([*lines[:2], lines[-2]]).first_difference
    assert found is not None
    assert found.recorded == ("InvariantViolated: only a leader appends",)


def test_ring_keeps_its_bound_of_events_and_the_newest_of_them():
    node = Recorded(limits={"events_max": 80})
    for number in range(1_000):
        node.step(RequestFailed(2, number))
        assert len(node.recorder) <= 80
    assert len(node.recorder) >= 70
    kept = [json.loads(line)["event"]["correlation_id"] for line in node.lines() if '"at"' in line]
    assert kept == list(range(1_000 - len(kept), 1_000))


def test_ring_keeps_its_bound_of_payload():
    node = Recorded(limits={"payload_bytes_max": 80_000}).follow()
    node.wait(0)
    for _ in range(300):
        node.fetched_records(size_bytes=1_000)
        assert node.recorder.payload_bytes <= 80_000
    assert node.recorder.payload_bytes >= 60_000
    assert replay(node.lines()).first_difference is None


def test_payload_is_written_as_length_and_checksum():
    node = Recorded().follow()
    node.wait(0)
    node.fetched_records()
    assert "7272" not in "".join(node.lines())
    form = encode(FetchResponse(epoch=1, records=RECORDS))
    assert form["records"] == {"$bytes": 1_000, "crc32c": encode(RECORDS)["crc32c"]}
    records = decode(form).records
    assert isinstance(records, ElidedBytes)
    assert len(records) == 1_000 and bool(records)
    assert encode(records) == form["records"]
    assert decode(encode(b"i" * BYTES_KEPT_MAX)) == b"i" * BYTES_KEPT_MAX


def test_a_checkpoint_does_not_follow_the_core():
    node = Recorded()
    first = node.lines()[1]
    node.become_leader()
    assert node.lines()[1] == first


def test_a_restored_core_goes_on_like_the_first():
    node = a_life()
    twin = restore(json.loads(dumps(encode_attributes(node.core))))
    assert twin.summary() == node.core.summary()
    assert twin.rng.getstate() == node.core.rng.getstate()
    deadline_ms = node.core.next_deadline_ms()
    assert twin.next_deadline_ms() == deadline_ms


def test_draws_of_others_from_the_nodes_generator_do_not_disturb_a_replay():
    shared = random.Random(1)
    node = Driven()
    node.core.rng = shared
    recorder = FlightRecorder(node.core)
    for _ in range(20):
        node.now_ms = node.core.next_deadline_ms()
        event = RequestFailed(9, 9)
        recorder.note(node.now_ms, event, node.step(event))
        shared.random()
    assert replay(recorder.lines()).first_difference is None


def test_lines_show_the_ring_as_it_was_when_asked():
    node = Recorded()
    lines = node.recorder.lines()
    node.become_leader()
    assert sum('"at"' in line for line in lines) == 0


def test_dump_is_durable_and_old_ones_go():
    disk = MemoryDisk(random.Random(1))
    disk.make_dirs("/data")
    disk.sync_dir("/")
    for number in range(DUMPS_MAX + 3):
        name = f"/data/flight-{number:013d}.jsonl"
        disk.write_atomic(name, b"old")
    path = a_life().recorder.dump_to("/data", "invariant violated: x", disk=disk)
    disk.crash()
    lines = disk.read_bytes(path).decode().splitlines()
    assert replay(lines).reason == "invariant violated: x"
    names = disk.list_dir("/data")
    assert len(names) == DUMPS_MAX
    assert names[-1] == path.rpartition("/")[2]


class SetBack(SystemClock):
    """A clock that says 5 s after the epoch."""

    def wall_ms(self) -> int:
        return 5_000


def test_a_dump_has_the_time_of_the_nodes_own_clock_and_stays_although_it_is_set_back():
    disk = MemoryDisk(random.Random(1))
    disk.make_dirs("/data")
    for number in range(DUMPS_MAX):
        disk.write_atomic(f"/data/flight-{6_000 + number}.jsonl", b"newer")
    recorder = FlightRecorder(Recorded().core, clock=SetBack())
    path = recorder.dump_to("/data", "a test", disk=disk)
    assert path == "/data/flight-5000.jsonl"
    header = json.loads(disk.read_bytes(path).decode().splitlines()[0])
    assert header["wall_ms"] == 5_000
    assert len(disk.list_dir("/data")) == DUMPS_MAX


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda lines: [], "line 1: the record is empty"),
        (lambda lines: ["{}", *lines[1:]], "line 1: not the first line of a flight record"),
        (
            lambda lines: [lines[0].replace('"flight":1', '"flight":2'), *lines[1:]],
            "line 1: format 2 is newer than this version of kvorum, which reads up to 1",
        ),
        (lambda lines: [*lines[:4], lines[4][:-9], *lines[5:]], "line 5: damaged, not JSON"),
        (lambda lines: [*lines[:4], "[]"], "line 5: damaged, not an object"),
        (lambda lines: [*lines[:4], '{"at":1}'], "line 5: damaged, neither event nor checkpoint"),
        (lambda lines: [lines[0], lines[2]], "line 2: damaged, an event comes before"),
        (lambda lines: [*lines, lines[2]], "damaged, it follows the last line"),
        (lambda lines: [*lines[:-2], lines[-1]], "events were written"),
        (
            lambda lines: [*lines[:2], lines[2].replace('"Tick"', '"Tock"')],
            "line 3: no class 'Tock' in this version",
        ),
        (
            lambda lines: [lines[0], lines[1].replace('"$hex"', '"$hux"')],
            "line 2: ",
        ),
    ],
)
def test_a_damaged_record_is_refused_with_the_line_and_the_reason(spoil, words):
    lines = Recorded().become_leader().lines()
    lines[1] = lines[1].replace('"checkpoint":{', '"checkpoint":{"extra":{"$hex":"00"},')
    with pytest.raises(FlightRecordError, match=words):
        replay(spoil(lines))


def test_a_record_cut_short_replays_as_far_as_it_goes():
    lines = a_life().lines()
    outcome = replay(lines[:-3])
    assert outcome.first_difference is None
    assert not outcome.is_whole
    assert outcome.events == replay(lines).events - 2


@pytest.mark.parametrize(
    "form",
    [
        {"$": "os.system"},
        {"$": "kvorum.cli.main.LazyGroup"},
        {"$enum": "ErrorCode.NO_SUCH"},
        {"$enum": "Tick.x"},
        {"$hex": "zz"},
        {"$bytes": "x"},
        {"$random": [3, "", None]},
        {"$dict": [[1]]},
        {"$set": [{"$list": []}]},
        {"$nothing": 1},
        {"$": "ErrorCode"},
        {"$": "OffsetAndEpoch", "offset": 1},
        {"$": "OffsetAndEpoch", "offset": 1, "epoch": 2, "more": 3},
    ],
)
def test_what_no_recorder_wrote_is_refused(form):
    with pytest.raises(UndecodableValue):
        decode(form)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -5,
        "ä",
        (),
        (1, (2,)),
        [1, [2]],
        {3, 1, 2},
        frozenset({"b", "a"}),
        {1: "x", (2, 3): [4]},
        deque([1, 2], maxlen=5),
        b"\x00\xff",
        ErrorCode.FENCED_LEADER_EPOCH,
        OffsetAndEpoch(1, 2),
    ],
)
def test_values_come_back_as_they_were(value):
    form = json.loads(dumps(encode(value)))
    back = decode(form)
    assert back == value
    assert type(back) is type(value)
    assert encode(back) == form


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of([st.from_type(kind) for kind in get_args(Event) + get_args(Effect)]))
def test_any_event_or_effect_encodes_to_the_same_text_after_decoding(value):
    form = json.loads(dumps(encode(value)))
    assert encode(decode(form)) == form
