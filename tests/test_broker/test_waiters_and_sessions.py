"""Parked requests, deadlines, the end of a loop turn, and the session cache."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.config.topic_config import resolve
from kvorum.broker.fetch import leader_fetch
from kvorum.broker.fetch.fetch_sessions import EPOCH_MAX, EVICTION_IDLE_MS, FetchState, SessionCache
from kvorum.broker.fetch.leader_fetch import note_sent
from kvorum.broker.metadata_answers.topic_names import name_refusal
from kvorum.broker.network.frame_buffer import FIRST_BYTES, FrameBuffer
from kvorum.broker.purgatory.deadlines import Deadlines
from kvorum.broker.purgatory.loop_turn import LoopTurn
from kvorum.broker.purgatory.pending_produce import PendingProduce
from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.errors import ErrorCode, WireError
from kvorum.wire.fetch_codec import FetchedPartition, FetchPartition, FetchRequest, FetchTopic
from kvorum.wire.produce_codec import ProducedPartition
from tests.polling import until

PIECES_MAX = 5_000
"""Length of a stream: a longer one, byte by byte, would show no more but take seconds."""


class Item:
    def __init__(self, name: str, expired: list[str]) -> None:
        self.name = name
        self.expired = expired
        self.deadline_bucket = -1
        self.is_awake = False
        self.is_flush_due = False

    def expire(self) -> None:
        self.expired.append(self.name)

    wake = flush = expire


def fetch_request(
    replica_id: int = -1, *, session_id: int = 0, session_epoch: int = 0
) -> FetchRequest:
    return FetchRequest(replica_id, -1, 0, 1, 1, False, session_id, session_epoch, [], [])


def test_deadlines_expire_in_order_and_never_early() -> None:
    async def story() -> list[str]:
        expired: list[str] = []
        deadlines = Deadlines(monotonic_ms)
        now_ms = monotonic_ms()
        kept, removed = Item("removed", expired), Item("late", expired)
        deadlines.add(removed, now_ms + 60)
        deadlines.add(Item("early", expired), now_ms + 20)
        deadlines.add(kept, now_ms + 30)
        deadlines.remove(kept)
        await until(lambda: expired, "the first deadline expires")
        assert monotonic_ms() >= now_ms + 20
        await until(lambda: len(expired) == 2, "the second deadline expires")
        deadlines.close()
        return expired

    assert asyncio.run(story()) == ["early", "late"]


def expired_by(
    first: Callable[[Deadlines, Item], None],
) -> tuple[list[str], Deadlines]:
    """Names of expired items in order. `first` runs at the expiry of the first item, and acts on
    another item of the same deadline."""

    async def story() -> tuple[list[str], Deadlines]:
        now_ms = 0
        expired: list[str] = []
        ended = asyncio.Event()
        deadlines = Deadlines(lambda: now_ms)
        one, other, last = (Item(name, expired) for name in ("one", "other", "last"))
        one.expire = lambda: first(deadlines, other)  # type: ignore[method-assign]
        last.expire = ended.set  # type: ignore[method-assign]
        for item in (one, other):
            deadlines.add(item, 1)
        deadlines.add(last, 11)
        now_ms = 50
        await asyncio.wait_for(ended.wait(), 10)
        return expired, deadlines

    return asyncio.run(story())


def test_what_an_expiry_completes_does_not_expire() -> None:
    expired, deadlines = expired_by(Deadlines.remove)
    assert expired == []
    assert deadlines._buckets == {}


def test_what_an_expiry_parks_anew_expires_once() -> None:
    def put_off(deadlines: Deadlines, other: Item) -> None:
        deadlines.remove(other)
        deadlines.add(other, 1)

    expired, deadlines = expired_by(put_off)
    assert expired == ["other"]
    assert deadlines._buckets == {}


def test_the_end_of_a_turn_wakes_before_it_flushes_and_once_each() -> None:
    async def story() -> list[str]:
        done: list[str] = []
        turn = LoopTurn()
        turn.begin()
        sender, parked = Item("flush", done), Item("wake", done)
        turn.flush(sender)
        turn.wake(parked)
        turn.wake(parked)
        turn.run()
        assert done == ["wake", "flush"]
        woken = asyncio.Event()
        parked.wake = lambda: (done.append("wake"), woken.set())  # type: ignore[method-assign]
        turn.wake(parked)  # outside a callback: by itself at the end of the turn
        assert len(done) == 2
        await asyncio.wait_for(woken.wait(), 10)
        return done

    assert asyncio.run(story()) == ["wake", "flush", "wake"]


def pending() -> tuple[PendingProduce, list[list[ProducedPartition]]]:
    answers: list[list[ProducedPartition]] = []
    partitions = [ProducedPartition(0, 0, 5), ProducedPartition(1, 0, 6)]
    produce = PendingProduce(partitions, answers.append, Deadlines(monotonic_ms))
    produce.wait_for(0)
    produce.wait_for(1)
    return produce, answers


def test_a_produce_is_answered_when_its_last_partition_is_decided() -> None:
    produce, answers = pending()
    produce.complete(0, ErrorCode.NONE)
    produce.complete(0, ErrorCode.NONE)
    assert answers == []
    produce.complete(1, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert [p.error for p in answers[0]] == [0, 20]
    produce.complete(1, ErrorCode.NONE)
    assert len(answers) == 1


def test_an_expired_produce_times_out_only_what_is_open() -> None:
    produce, answers = pending()
    produce.complete(1, ErrorCode.NONE)
    produce.expire()
    assert [p.error for p in answers[0]] == [7, 0]
    assert produce.is_done


def test_session_epochs_count_up_and_wrap_to_one() -> None:
    cache = SessionCache(10, random.Random(1))
    state = FetchState(fetch_request(), is_by_id=False, now_ms=0)
    assert cache.add(state, 0)
    session = state.session_id

    def find(epoch: int, *, is_by_id: bool = False) -> object:
        request = fetch_request(session_id=session, session_epoch=epoch)
        return cache.find(request, is_by_id=is_by_id, now_ms=0)

    assert find(1) is state
    assert find(1) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert find(2, is_by_id=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    state.epoch = EPOCH_MAX
    assert find(EPOCH_MAX) is state
    assert find(1) is state
    assert cache.remove(session) is state
    assert find(2) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_follower_that_registered_anew_has_no_session() -> None:
    cache = SessionCache(10, random.Random(1))
    state = FetchState(fetch_request(2)._replace(replica_epoch=5), is_by_id=False, now_ms=0)
    assert cache.add(state, 0)
    request = fetch_request(2, session_id=state.session_id, session_epoch=1)
    found = cache.find(request._replace(replica_epoch=9), is_by_id=False, now_ms=0)
    assert found is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("replica_id", "fetch_offset", "known"),
    [(2, 0, 0), (2, 5, -1), (-1, 0, -1)],
    ids=["empty follower", "follower with records", "consumer"],
)
def test_only_an_empty_follower_is_known_to_know_nothing(
    replica_id: int, fetch_offset: int, known: int
) -> None:
    asked = FetchPartition(0, 0, fetch_offset, -1, 0, 100)
    request = fetch_request(replica_id)._replace(topics=[FetchTopic("t", bytes(16), [asked])])
    state = FetchState(request, is_by_id=False, now_ms=0)
    (watched,) = state.update(request)
    assert (watched.sent_high_watermark, watched.sent_log_start_offset) == (known, known)


def test_an_answer_that_says_where_histories_part_tells_no_watermark() -> None:
    # Seed 2385 of the simulated partitions: a follower uses only the diverging epoch of such an
    # answer. The leader counted its high watermark as sent, and sent it again only with the next
    # record.
    asked = FetchPartition(0, 0, 98, 13, 0, 100)
    request = fetch_request(2)._replace(topics=[FetchTopic("t", bytes(16), [asked])])
    state = FetchState(request, is_by_id=False, now_ms=0)
    (watched,) = state.update(request)
    told = FetchedPartition(0, 0, 97, 97, 0)
    for answer, sent in ((told, 97), (told._replace(high_watermark=98, diverging=(13, 98)), -1)):
        note_sent(None, state, [(watched, answer)])  # type: ignore[arg-type]
        assert watched.sent_high_watermark == sent
    assert watched in state.dirty


@pytest.mark.parametrize(
    ("again", "known"),
    [
        ({"fetch_offset": 6}, 5),
        ({"log_start_offset": 1}, 5),
        ({}, -1),
        ({"fetch_offset": 4}, -1),
        ({"fetch_offset": 6, "current_leader_epoch": 3}, -1),
        ({"fetch_offset": 0}, 0),
    ],
    ids=["goes on", "its start moved", "the same", "back", "in another epoch", "empty now"],
)
def test_what_a_follower_was_told_counts_while_it_goes_on_from_there(
    again: dict[str, int], known: int
) -> None:
    # Seed 2582 of the simulated partitions: the follower drops the answer to a fetch of an earlier
    # epoch, so that answer does not count as received.
    asked = FetchPartition(0, 2, 5, 2, 0, 100)
    request = fetch_request(2)._replace(topics=[FetchTopic("t", bytes(16), [asked])])
    state = FetchState(request, is_by_id=False, now_ms=0)
    (watched,) = state.update(request)
    note_sent(None, state, [(watched, FetchedPartition(0, 0, 5, 5, 0))])  # type: ignore[arg-type]
    topic = FetchTopic("t", bytes(16), [asked._replace(**again)])
    list(state.update(request._replace(topics=[topic])))
    assert watched.sent_high_watermark == known


def test_a_full_cache_gives_way_to_followers_and_to_newcomers_after_idleness() -> None:
    cache = SessionCache(1, random.Random(1))
    first = FetchState(fetch_request(), is_by_id=False, now_ms=0)
    assert cache.add(first, 0)
    second = FetchState(fetch_request(), is_by_id=False, now_ms=0)
    assert not cache.add(second, EVICTION_IDLE_MS)
    first.parked = object()  # type: ignore[assignment]
    assert not cache.add(second, EVICTION_IDLE_MS + 1), "its fetch would be woken by nothing"
    first.parked = None
    assert cache.add(second, EVICTION_IDLE_MS + 1)
    follower = FetchState(fetch_request(2), is_by_id=False, now_ms=0)
    assert cache.add(follower, 0)
    assert not cache.add(first, 0), "a follower is not pushed out"
    assert len(cache) == 1


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(10, 3000) | st.just(FIRST_BYTES * 3), min_size=1, max_size=12),
    chunk=st.integers(1, 40_000),
    first_bytes=st.sampled_from([64, 4096, FIRST_BYTES]),
    is_saving=st.booleans(),
)
def test_frames_come_out_as_they_went_in_however_the_bytes_arrive(
    sizes: list[int], chunk: int, first_bytes: int, is_saving: bool
) -> None:
    frames = [bytes([n % 251]) * size for n, size in enumerate(sizes)]
    stream = b"".join(len(f).to_bytes(4, "big") + f for f in frames)
    chunk = max(chunk, len(stream) // PIECES_MAX)
    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)
    buffer = FrameBuffer(1 << 20, first_bytes)
    got: list[bytes] = []
    sent = 0
    while len(got) < len(frames):
        if sent < len(stream):
            with contextlib.suppress(BlockingIOError):
                sent += left.send(stream[sent : sent + chunk])
        try:
            buffer.receive(right)
        except BlockingIOError:
            continue
        while (frame := buffer.next_frame()) is not None:
            got.append(bytes(buffer.view[frame[0] : frame[1]]))
        if is_saving:
            buffer.shrink(first_bytes)
    left.close()
    right.close()
    assert got == frames
    buffer.shrink(first_bytes)
    assert len(buffer.view) == first_bytes


def test_a_frame_above_the_limit_is_a_wire_error() -> None:
    left, right = socket.socketpair()
    buffer = FrameBuffer(1000)
    left.sendall((1001).to_bytes(4, "big"))
    buffer.receive(right)
    with pytest.raises(WireError):
        buffer.next_frame()
    left.close()
    right.close()


def test_topic_configs_fall_back_to_the_brokers_when_unsound() -> None:
    config = BrokerConfig(log_retention_ms=77)
    assert resolve(config, {"retention.ms": "5"}).log.retention_ms == 5
    assert resolve(config, {"retention.ms": "many"}).log.retention_ms == 77
    assert resolve(config, {}).log.flush_messages is None


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "ä", "x" * 250])
def test_illegal_topic_names(name: str) -> None:
    assert name_refusal(name) is not None
    assert name_refusal("legal.Name_1-x") is None


def test_no_timer_is_left_for_requests_that_were_answered_in_time() -> None:
    class Last(Item):
        def expire(self) -> None:
            has_expired.set()

    has_expired = asyncio.Event()

    async def story() -> None:
        deadlines = Deadlines(monotonic_ms)
        deadlines.add(Last("last", []), monotonic_ms() + 1)
        for at in range(50):
            item = Item("answered", [])
            deadlines.add(item, monotonic_ms() + 60_000 + 20 * at)
            deadlines.remove(item)
        async with asyncio.timeout(10):
            await has_expired.wait()
        await asyncio.sleep(0)
        assert deadlines._timer is None
        deadlines.close()

    asyncio.run(story())


class OneOfTwo:
    """A watched partition whose directory fails while an earlier one of the fetch is answered."""

    replica = SimpleNamespace(is_offline=True, core=None)
    asked = SimpleNamespace(partition_id=3)


def test_what_was_found_before_a_disk_failed_is_not_the_answer():
    watched = OneOfTwo()
    found: dict = {watched: None}
    told = leader_fetch._answer(None, watched, 1_000, found, is_first=True)  # type: ignore[arg-type]
    assert told is not None
    assert told.error == ErrorCode.KAFKA_STORAGE_ERROR
