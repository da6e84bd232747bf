"""A length in a request that exceeds the request itself is refused."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.broker.api.registry import SERVED
from kvorum.runtime.errors import WireError
from kvorum.wire.kio_codec import encode_request, message_class, read_request
from kvorum.wire.length_check import check_lengths
from tests.live.request_fuzz import RequestFuzz

ALL = [
    (api.name, version)
    for key, _, _ in SERVED.advertised()
    if (api := SERVED.get(key)) is not None
    for version in range(api.min_version, api.max_version + 1)
]


@pytest.mark.parametrize(("name", "version"), ALL)
def test_every_sound_request_passes(name: str, version: int) -> None:
    fuzz = RequestFuzz(2)
    cls = message_class(name, version, "request")
    for _ in range(10):
        check_lengths(cls, bytes(encode_request(name, version, fuzz._entity(cls))))


@pytest.mark.parametrize(
    ("name", "version", "body"),
    [
        # Arrays of 2^31 - 1 topics, in classic and compact form; kio would allocate memory for
        # them.
        ("metadata", 1, struct.pack(">i", (1 << 31) - 1)),
        ("metadata", 9, b"\xff\xff\xff\xff\x07"),
        ("delete_topics", 1, struct.pack(">i", 1 << 30) + bytes(8)),
        ("create_topics", 7, b"\xff\xff\xff\xff\x07" + bytes(6)),
        # The request ends inside a string, or inside a tagged field.
        ("find_coordinator", 0, struct.pack(">h", 32_000) + b"g"),
        ("find_coordinator", 3, b"\xff\xff\x03g\x00\x00"),
        ("update_features", 1, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_a_length_beyond_the_request_is_refused(name: str, version: int, body: bytes) -> None:
    with pytest.raises(WireError):
        read_request(name, version, memoryview(body))


@given(st.randoms(use_true_random=False), st.sampled_from(ALL))
def test_anything_is_read_or_refused(rng: random.Random, api: tuple[str, int]) -> None:
    name, version = api
    cls = message_class(name, version, "request")
    body = bytearray(encode_request(name, version, RequestFuzz(rng.getrandbits(30))._entity(cls)))
    for _ in range(rng.randint(0, 6)):
        if body:
            body[rng.randrange(len(body))] = rng.choice(
                (0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256))
            )
    try:
        read_request(name, version, memoryview(bytes(body[: rng.randint(0, len(body))])))
    except WireError:
        return
