import asyncio

import pytest

from kvorum.chaos.sim.kernel.async_disk import SimTask
from kvorum.runtime.errors import CorruptData, InvariantViolated
from kvorum.snapshots.format import SnapshotId
from kvorum.snapshots.store import SnapshotNotFound
from kvorum.snapshots.transfer import SnapshotReceiver
from tests.test_snapshots.places import (
    NEW,
    OLD,
    PAYLOADS,
    crash_before_call,
    memory_place,
    newest_good,
    os_place,
    pauses_of,
)

CHUNK_BYTES = 40
FINAL = "00000000000000000007-0000000002.checkpoint"


@pytest.fixture
def leader():
    place = memory_place()
    place.run(place.store.write(NEW, PAYLOADS))
    return place


def chunk(leader, position, count=CHUNK_BYTES):
    return leader.run(leader.store.read_chunk(NEW.id, position, count))


def fetch(leader, place, receiver, stop_at=None):
    while True:
        data, total = chunk(leader, receiver.position)
        place.run(receiver.append(receiver.position, data))
        if receiver.position == total or (stop_at is not None and receiver.position >= stop_at):
            return


def test_chunk_by_chunk_the_same_bytes_arrive(leader, place):
    receiver = SnapshotReceiver(place.store, NEW.id)
    fetch(leader, place, receiver)
    assert place.names() == [FINAL + ".part"]
    assert place.run(receiver.finish()) == NEW
    assert place.names() == [FINAL]
    assert place.bytes_of(place.store.path(NEW.id)) == leader.bytes_of(leader.store.path(NEW.id))


def test_a_transfer_goes_on_where_it_stood_from_another_leader(leader, place):
    receiver = SnapshotReceiver(place.store, NEW.id)
    fetch(leader, place, receiver, stop_at=2 * CHUNK_BYTES)
    assert receiver.position == 2 * CHUNK_BYTES
    other = memory_place(seed=1)
    other.run(other.store.write(NEW, PAYLOADS))
    fetch(other, place, receiver)
    assert place.run(receiver.finish()) == NEW


def test_a_chunk_out_of_turn_is_a_programming_error(leader, place):
    receiver = SnapshotReceiver(place.store, NEW.id)
    fetch(leader, place, receiver, stop_at=CHUNK_BYTES)
    for position in (0, CHUNK_BYTES - 1, CHUNK_BYTES + 1):
        with pytest.raises(InvariantViolated, match="expected at 40"):
            place.run(receiver.append(position, b"x"))


def test_every_damaged_byte_is_refused_and_leaves_nothing(leader):
    place = memory_place()
    good = leader.bytes_of(leader.store.path(NEW.id))
    receiver = SnapshotReceiver(place.store, NEW.id)
    for at in range(len(good)):
        place.run(receiver.append(0, good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :]))
        with pytest.raises(CorruptData, match=r"\.part at byte"):
            place.run(receiver.finish())
        assert place.names() == [] and receiver.position == 0
    fetch(leader, place, receiver)
    assert place.run(receiver.finish()) == NEW


def test_an_end_that_came_too_early_is_refused(leader, place):
    receiver = SnapshotReceiver(place.store, NEW.id)
    fetch(leader, place, receiver, stop_at=CHUNK_BYTES)
    with pytest.raises(CorruptData):
        place.run(receiver.finish())
    assert place.names() == []


def test_another_snapshot_than_asked_for_is_refused(leader, place):
    receiver = SnapshotReceiver(place.store, OLD.id)
    place.run(receiver.append(0, leader.bytes_of(leader.store.path(NEW.id))))
    with pytest.raises(CorruptData, match="fetched as 00000000000000000003-0000000001"):
        place.run(receiver.finish())
    assert place.names() == []


def test_abandon_leaves_nothing_and_begins_again(leader, place):
    receiver = SnapshotReceiver(place.store, NEW.id)
    fetch(leader, place, receiver, stop_at=CHUNK_BYTES)
    place.run(receiver.abandon())
    assert place.names() == [] and receiver.position == 0
    fetch(leader, place, receiver)
    assert place.run(receiver.finish()) == NEW


def test_the_part_of_an_earlier_process_is_not_continued(leader, place):
    first = SnapshotReceiver(place.store, NEW.id)
    fetch(leader, place, first, stop_at=2 * CHUNK_BYTES)
    second = SnapshotReceiver(place.store, NEW.id)
    fetch(leader, place, second)
    assert place.run(second.finish()) == NEW


def test_the_bootstrap_checkpoint_is_not_fetched(place):
    with pytest.raises(SnapshotNotFound):
        SnapshotReceiver(place.store, SnapshotId(0, 0))


@pytest.mark.parametrize("operation", ["open", "write", "sync", "rename", "sync_dir"])
def test_a_failing_disk_leaves_nothing_visible_and_the_receiver_at_zero(leader, operation):
    place = memory_place()
    receiver = SnapshotReceiver(place.store, NEW.id)
    place.store.disk.disk.fail(operation)
    with pytest.raises(OSError, match="injected fault"):
        fetch(leader, place, receiver)
        place.run(receiver.finish())
    assert place.names() == [] and receiver.position == 0
    fetch(leader, place, receiver)
    assert place.run(receiver.finish()) == NEW


async def _receive(receiver, data):
    for position in range(0, len(data), CHUNK_BYTES):
        await receiver.append(position, data[position : position + CHUNK_BYTES])
    await receiver.finish()


def test_a_crash_before_any_disk_call_of_a_transfer_leaves_none_or_all(leader):
    data = leader.bytes_of(leader.store.path(NEW.id))
    place = memory_place()
    calls = pauses_of(_receive(SnapshotReceiver(place.store, NEW.id), data))
    for number in range(calls):
        for seed in range(4):
            place = memory_place(seed)
            crash_before_call(place, _receive(SnapshotReceiver(place.store, NEW.id), data), number)
            ids = place.run(place.store.list())
            assert newest_good(place) == (ids[-1] if ids else None, [])
            place.run(place.store.clean_up())
            assert len(place.names()) == len(ids)


def test_a_cancelled_append_begins_again(leader, tmp_path):
    place = os_place(tmp_path)
    receiver = SnapshotReceiver(place.store, NEW.id)
    fetch(leader, place, receiver, stop_at=CHUNK_BYTES)

    async def story():
        task = asyncio.ensure_future(receiver.append(CHUNK_BYTES, b"lost"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(story())
    assert receiver.position == 0
    fetch(leader, place, receiver)
    assert place.run(receiver.finish()) == NEW


def test_a_simulated_task_says_where_it_stands_and_how_it_ended():
    place = memory_place()
    task = SimTask(place.store.write(NEW, PAYLOADS))
    operations = []
    while task.step():
        operations.append(task.pause.operation)
    # fmt: off
    assert operations == ["open", "write", "write", "write", "write", "write", "sync",
                          "exists", "rename", "sync_dir"]
    # fmt: on
    assert (task.is_finished, task.result, task.error) == (True, NEW.id, None)
    assert task.step() is False
    task = SimTask(place.store.read_chunk(OLD.id, 0, 1))
    while task.step():
        pass
    assert isinstance(task.error, SnapshotNotFound) and task.result is None
    task = SimTask(place.store.write(OLD, PAYLOADS))
    task.step()
    place.store.disk.disk.crash()
    with pytest.raises(InvariantViolated, match="outlived a crash"):
        while task.step():
            pass
