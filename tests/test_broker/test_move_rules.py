"""The rules of moves between the data directories of a broker, and the steps against a model."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.broker.log_dirs.core.move_rules import (
    Action,
    Asked,
    FoundFuture,
    continued,
    decide,
    future_name,
    promoted,
    replica_of_future,
)
from kvorum.broker.log_dirs.core.move_steps import (
    LAST_BYTES_MAX,
    AdvanceStart,
    Assign,
    Copy,
    Flush,
    MoveFacts,
    Restart,
    SaveStart,
    Step,
    Swap,
    TakeProducers,
    Truncate,
    Wait,
    common_end,
    next_step,
)
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.files.leader_epochs import LeaderEpochCache

ID = b"i" * 16

# --- requests -------------------------------------------------------------------------------------

HERE = Asked(name="t-0", destination="b", current="a")


@pytest.mark.parametrize(
    ("change", "error", "action"),
    [
        ({}, ErrorCode.NONE, Action.START),
        ({"future": "b"}, ErrorCode.NONE, Action.NOTHING),
        ({"future": "c"}, ErrorCode.NONE, Action.START),
        ({"destination": "a"}, ErrorCode.NONE, Action.NOTHING),
        ({"destination": "a", "future": "b"}, ErrorCode.NONE, Action.CANCEL),
        ({"current": None}, ErrorCode.REPLICA_NOT_AVAILABLE, Action.PREFER),
        (
            {"current": None, "is_in_metadata": False},
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            Action.PREFER,
        ),
        ({"is_offline": True}, ErrorCode.KAFKA_STORAGE_ERROR, Action.NOTHING),
        ({"is_destination_offline": True}, ErrorCode.KAFKA_STORAGE_ERROR, Action.NOTHING),
        ({"is_cordoned": True}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, Action.NOTHING),
        (
            {"is_cordoned": True, "destination": "a"},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            Action.NOTHING,
        ),
        ({"destination": None}, ErrorCode.LOG_DIR_NOT_FOUND, Action.NOTHING),
        ({"name": "x" * 213 + "-0"}, ErrorCode.NONE, Action.START),
        ({"name": "x" * 214 + "-0"}, ErrorCode.INVALID_TOPIC_EXCEPTION, Action.NOTHING),
        (
            {"name": "x" * 249 + "-0", "destination": None},
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            Action.NOTHING,
        ),
    ],
)
def test_the_answer_of_a_request_is_kafkas(change, error, action) -> None:
    assert decide(dataclasses.replace(HERE, **change)) == (error, action)


def test_the_folder_of_a_future_replica_has_kafkas_name() -> None:
    unique = "0123456789abcdef" * 2
    name = future_name("my.topic-with-dashes-12", unique)
    assert name == f"my.topic-with-dashes-12.{unique}-future"
    assert replica_of_future(name) == "my.topic-with-dashes-12"
    assert len(future_name("x" * 213 + "-0", unique)) == 255


@pytest.mark.parametrize(
    "name",
    ["t-0", "t-0-future", "t-0.abc-future", "t-0." + "0" * 32 + "-delete", "." + "0" * 32 +
     "-future", "t." + "0" * 32 + "-future"],
)  # fmt: skip
def test_other_folders_are_no_future_replicas(name: str) -> None:
    assert replica_of_future(name) is None


# --- the start ------------------------------------------------------------------------------------


def found(log_dir: int, topic_id: bytes | None = ID) -> FoundFuture:
    return FoundFuture(log_dir=log_dir, folder=f"f{log_dir}", topic_id=topic_id)


@pytest.mark.parametrize(
    ("futures", "current", "told", "chosen"),
    [
        ([found(1)], 0, 0, 1),
        ([found(1), found(2)], 0, 2, 2),
        ([found(1), found(2)], 0, 0, 1),
        ([found(0)], 0, 0, None),  # in the directory of the replica itself
        ([found(1, b"j" * 16)], 0, 0, None),  # of an earlier topic
        ([found(1, None)], 0, 0, None),
        ([], 0, 0, None),
    ],
)
def test_a_start_goes_on_with_one_move(futures, current, told, chosen) -> None:
    result = continued(futures, topic_id=ID, current=current, told=told)
    assert (None if result is None else result.log_dir) == chosen


@pytest.mark.parametrize(
    ("told", "currents", "put_aside", "is_promoted"),
    [
        (1, [], [0], True),  # the power failure undid the rename of the future replica alone
        (1, [0], [], False),  # the swap had not begun
        (1, [1], [0], False),  # the swap was complete
        (0, [], [0], False),  # the metadata names another directory
        (None, [], [0], False),
        (1, [], [], False),  # someone removed the replica: the future one may lack records
    ],
)
def test_a_start_promotes_a_future_replica_only_after_half_a_swap(
    told, currents, put_aside, is_promoted
) -> None:
    result = promoted(
        [found(1), found(1, b"j" * 16)],
        topic_id=ID, told=told, currents=currents, put_aside=put_aside,
    )  # fmt: skip
    assert (result is not None) is is_promoted


# --- steps ----------------------------------------------------------------------------------------

READY = MoveFacts(
    start_offset=10, end_offset=100, durable_end_offset=90,
    future_start_offset=10, future_end_offset=95, future_durable_end_offset=90,
    lag_bytes=500, has_producers=True, is_identity_durable=True, saved_start_offset=10,
    is_told=True, is_busy=False,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "step"),
    [
        ({}, Swap()),
        ({"is_busy": True}, Wait()),
        ({"is_told": False}, Copy()),
        ({"is_told": False, "lag_bytes": 0, "future_end_offset": 100}, Assign()),
        ({"saved_start_offset": 9}, SaveStart()),
        ({"durable_end_offset": 91}, Flush()),
        ({"is_identity_durable": False}, Flush()),
        ({"has_producers": False}, TakeProducers()),
        ({"lag_bytes": LAST_BYTES_MAX + 1}, Copy()),
        ({"future_start_offset": 9}, AdvanceStart(10)),
        ({"future_end_offset": 101}, Truncate(100)),
        ({"cut_offset": 50}, Truncate(50)),
        ({"cut_offset": 96}, Swap()),
        ({"cut_offset": 0}, Restart(10)),
        ({"future_end_offset": 9, "future_start_offset": 0}, Restart(10)),
        ({"future_start_offset": 11}, Restart(10)),
    ],
)
def test_the_next_step_of_a_move(change, step) -> None:
    assert next_step(dataclasses.replace(READY, **change)) == step


EPOCHS = st.lists(st.integers(0, 3), max_size=12)


@given(common=EPOCHS, ours=EPOCHS, theirs=EPOCHS)
def test_two_logs_are_equal_up_to_their_last_common_epoch(common, ours, theirs) -> None:
    """Offset by offset, each log has the epoch of its leader; after the common part they differ."""

    def log_of(rest: list[int], first_epoch: int) -> list[int]:
        epochs = sorted(common)
        for step in rest:
            epochs.append((epochs[-1] if epochs else 0) + step)
        # No epoch has two leaders: behind the common part each log has epochs of its own.
        return epochs[: len(common)] + [2 * e + first_epoch for e in epochs[len(common) :]]

    a, b = log_of(ours, 100), log_of(theirs, 101)

    def cache_of(epochs: list[int]) -> LeaderEpochCache:
        cache = LeaderEpochCache()
        for offset, epoch in enumerate(epochs):
            cache.assign(epoch, offset)
        return cache

    assert common_end(cache_of(a), len(a), cache_of(b), len(b)) == len(common)


# --- a model of the whole move --------------------------------------------------------------------


@dataclasses.dataclass
class ModelLog:
    """Records by offset, from `start`; those below `durable` are fsynced."""

    start: int = 0
    durable: int = 0
    records: dict[int, int] = dataclasses.field(default_factory=dict)

    @property
    def end(self) -> int:
        return max(self.records, default=self.start - 1) + 1

    def cut(self, offset: int) -> None:
        self.records = {o: v for o, v in self.records.items() if o < offset}
        if offset <= self.start:
            self.start = offset
        self.durable = min(self.durable, offset)

    def advance(self, offset: int) -> None:
        self.start = offset
        self.records = {o: v for o, v in self.records.items() if o >= offset}

    def restart(self, offset: int) -> None:
        self.records, self.start, self.durable = {}, offset, offset

    def readable(self) -> dict[int, int]:
        return {o: v for o, v in self.records.items() if o >= self.start}


class ModelMove:
    """A broker with one move. Records weigh 100,000 bytes, so three of them are copied at last."""

    def __init__(self) -> None:
        self.current, self.future = ModelLog(), ModelLog()
        self.next_value = 0
        self.cut: int | None = None
        self.told = self.promised = self.busy = self.identity = self.producers = False
        self.saved = 0
        self.is_swapped = False

    def facts(self) -> MoveFacts:
        cut, self.cut = self.cut, None
        current, future = self.current, self.future
        lag = max(current.end - max(future.end, current.start), 0)
        return MoveFacts(
            start_offset=current.start, end_offset=current.end, durable_end_offset=current.durable,
            future_start_offset=future.start, future_end_offset=future.end,
            future_durable_end_offset=future.durable, lag_bytes=lag * 100_000,
            has_producers=self.producers, is_identity_durable=self.identity,
            saved_start_offset=self.saved, is_told=self.told, is_busy=self.busy, cut_offset=cut,
        )  # fmt: skip

    def take(self, between: list[tuple[str, int]]) -> Step:
        """One step; `between`: what happens to the current log while its thread works."""
        step = next_step(self.facts())
        current, future = self.current, self.future
        match step:
            case Truncate(offset):
                future.cut(offset)
                self.producers = False
            case Restart(offset):
                future.restart(offset)
                self.producers = False
            case AdvanceStart(offset):
                future.advance(offset)
            case Copy():
                data = [(o, v) for o, v in sorted(current.records.items()) if o >= future.end][:2]
                for event in between:
                    self.happen(event)
                between = []
                future.records.update(data)
            case TakeProducers():
                self.copy_rest()
                self.producers = True
            case Flush():
                end = future.end
                for event in between:
                    self.happen(event)
                between = []
                future.durable, self.identity = end, True
            case SaveStart():
                self.saved = current.start
            case Assign():
                self.promised = True
            case Swap():
                self.copy_rest()
                self.is_swapped = True
        for event in between:
            if not self.is_swapped:
                self.happen(event)
        return step

    def copy_rest(self) -> None:
        rest = {o: v for o, v in self.current.records.items() if o >= self.future.end}
        assert len(rest) * 100_000 <= LAST_BYTES_MAX, "the loop copies little"
        self.future.records.update(rest)

    def happen(self, event: tuple[str, int]) -> None:
        kind, number = event
        current = self.current
        if kind == "append":
            for _ in range(number):
                current.records[current.end] = self.next_value
                self.next_value += 1
        elif kind == "truncate" and current.end - number >= current.start:
            current.cut(current.end - number)
            self.note_cut(current.end)
        elif kind == "restart":
            current.restart(current.end + number)
            self.note_cut(0)
        elif kind == "advance":
            current.advance(min(current.start + number, current.end))
        elif kind == "flush":
            current.durable = current.end
        elif kind == "told":
            self.told = self.promised
        elif kind == "busy":
            self.busy = not self.busy

    def note_cut(self, offset: int) -> None:
        self.cut = offset if self.cut is None else min(self.cut, offset)


EVENT = st.tuples(
    st.sampled_from(
        ["append", "append", "truncate", "restart", "advance", "flush", "told", "busy"]
    ),
    st.integers(1, 4),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.lists(EVENT, max_size=3), max_size=40))
def test_a_move_swaps_equal_logs_whatever_happens_to_the_current_one(story) -> None:
    move = ModelMove()
    for between in story:
        if move.is_swapped:
            break
        move.take(between)
    # From now on nothing is in its way.
    move.busy = False
    for _ in range(200):
        if move.is_swapped:
            break
        move.take([("told", 1)])
    assert move.is_swapped
    assert move.future.readable() == move.current.readable()
    assert (move.future.start, move.future.end) == (move.current.start, move.current.end)
    assert move.future.durable >= move.current.durable
    assert move.saved == move.current.start
    assert move.told and move.identity and move.producers


def test_the_model_notices_a_move_that_does_not_look_at_truncations() -> None:
    """The check above, fed with a bad history."""
    move = ModelMove()
    move.happen(("append", 4))
    while not isinstance(move.take([]), Assign):
        pass
    move.happen(("truncate", 3))
    move.cut = None  # nobody tells the move
    move.happen(("append", 3))
    while not move.is_swapped:
        move.take([("told", 1)])
    assert move.future.readable() != move.current.readable()
