"""A connection's receive buffer costs the bytes that have come, not those announced."""

from __future__ import annotations

import mmap
from collections.abc import Iterator

import pytest

from kvorum.broker.network.frame_buffer import (
    EAGER_BYTES_MAX,
    FIRST_BYTES,
    KEEP_BYTES_MAX,
    FrameBuffer,
)

FRAME_BYTES_MAX = 100 * 1024 * 1024
PIECE_BYTES = 50_000


class Pieces:
    """A socket that hands out `data`, at most PIECE_BYTES at a time."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)

    def recv_into(self, view: memoryview) -> int:
        if not self._data:
            raise BlockingIOError
        piece = self._data[: min(len(view), PIECE_BYTES)]
        view[: len(piece)] = piece
        self._data = self._data[len(piece) :]
        return len(piece)


def announced(frame_bytes: int) -> bytes:
    return frame_bytes.to_bytes(4, "big")


def frame(mark: int, frame_bytes: int) -> bytes:
    return announced(frame_bytes) + bytes([mark]) * frame_bytes


def frames_of(buffer: FrameBuffer, data: bytes) -> Iterator[bytes]:
    """The frames in `data`, each copied as soon as it is whole."""
    pieces = Pieces(data)
    while True:
        try:
            buffer.receive(pieces)  # type: ignore[arg-type]
        except BlockingIOError:
            return
        while (found := buffer.next_frame()) is not None:
            yield bytes(buffer.view[found[0] : found[1]])


@pytest.mark.parametrize("sent_bytes", [0, 1000, 100_000, 1_500_000, 9_000_000])
def test_a_frame_that_never_comes_costs_twice_what_came(sent_bytes: int) -> None:
    buffer = FrameBuffer(FRAME_BYTES_MAX)
    data = announced(FRAME_BYTES_MAX) + bytes(sent_bytes)
    assert list(frames_of(buffer, data)) == []
    assert len(buffer.view) <= max(2 * len(data), FIRST_BYTES)


def test_large_frames_are_whole_however_the_buffer_grew() -> None:
    buffer = FrameBuffer(FRAME_BYTES_MAX)
    sizes = [10, EAGER_BYTES_MAX, 30, 2_500_000, 7_000_001, 10, 5_000_000, 12_000_000]
    sent = [frame(mark, size) for mark, size in enumerate(sizes, start=1)]
    assert [announced(len(f)) + f for f in frames_of(buffer, b"".join(sent))] == sent
    assert len(buffer.view) <= 2 * max(sizes)


def test_a_view_that_somebody_kept_does_not_keep_the_buffer_from_growing() -> None:
    buffer = FrameBuffer(FRAME_BYTES_MAX)
    assert len(list(frames_of(buffer, frame(1, 2_000_000)))) == 1
    kept = buffer.view[:10]
    grown = frame(2, 9_000_000)
    assert list(frames_of(buffer, grown)) == [grown[4:]]
    assert len(kept) == 10


def test_a_large_buffer_serves_a_row_of_large_frames_and_is_given_back_after_small_ones() -> None:
    buffer = FrameBuffer(FRAME_BYTES_MAX)
    for _ in range(2):
        assert len(list(frames_of(buffer, frame(1, 2 * KEEP_BYTES_MAX)))) == 1
        # An empty read must not make the buffer shrink.
        assert list(frames_of(buffer, b"")) == []
        assert len(buffer.view) > KEEP_BYTES_MAX
    for _ in range(3):
        assert len(list(frames_of(buffer, frame(2, 100)))) == 1
    assert len(buffer.view) == FIRST_BYTES


def test_want_of_memory_ends_the_connection_and_not_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_left(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", type("mmap", (), {"__new__": none_left}))
    buffer = FrameBuffer(FRAME_BYTES_MAX)
    with pytest.raises(ConnectionAbortedError, match="no memory for"):
        list(frames_of(buffer, frame(1, 2_000_000)))
