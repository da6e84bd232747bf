"""Tagged fields of newer clients are skipped in any place (KIP-482)."""

from __future__ import annotations

import random

import pytest

from kvorum.broker.api.registry import SERVED
from kvorum.runtime.errors import WireError
from kvorum.wire.kio_codec import encode_request, message_class, read_request
from kvorum.wire.length_check import SKIPS, without_unknown_tags
from tests.live.request_fuzz import RequestFuzz

FLEXIBLE = [
    (api.name, api.max_version)
    for key, _, _ in SERVED.advertised()
    if (api := SERVED.get(key)) is not None and api.max_version >= api.first_flexible
]
UNKNOWN = b"\xbb\x06\x03abc"
"""Tag 827, three bytes."""


def with_tag_at_the_end(body: bytes) -> bytes:
    """The body with an unknown tag in the message's own tag section, which comes last. body: one
    without tags there."""
    assert body[-1] == 0
    return body[:-1] + b"\x01" + UNKNOWN


@pytest.mark.parametrize(("name", "version"), FLEXIBLE)
def test_every_request_may_bring_a_tag_of_a_newer_client(name: str, version: int) -> None:
    fuzz = RequestFuzz(1)
    cls = message_class(name, version, "request")
    for _ in range(20):
        values = {**fuzz._entity(cls)}
        body = bytes(encode_request(name, version, values))
        # Known tags stay as they are, whatever their values.
        assert without_unknown_tags(cls, body) == body
        if body[-1] == 0 and not any(
            "tag" in f.metadata for f in cls.__dataclass_fields__.values()
        ):
            assert without_unknown_tags(cls, with_tag_at_the_end(body)) == body


def test_a_tag_deep_inside_is_passed_over_too() -> None:
    values = {
        "topics": [{
            "name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [],
            "configs": [],
        }],
        "timeout": 1000, "validate_only": False,
    }  # fmt: skip
    body = bytes(encode_request("create_topics", 7, values))
    # name, count, factor, two empty arrays; then the topic's own tags.
    at = body.index(b"t", 1) + 1 + 4 + 2 + 2
    assert body[at] == 0
    tagged = body[:at] + b"\x02" + UNKNOWN + b"\xbc\x06\x00" + body[at + 1 :]
    assert read_request("create_topics", 7, memoryview(tagged)).topics[0].name == "t"


def test_a_known_tag_is_as_long_as_what_is_left_of_it() -> None:
    replica = {"replica_id": 7, "replica_epoch": 9}
    values = {"max_wait": 0, "min_bytes": 0, "max_bytes": 0, "isolation_level": 0, "session_id": 0,
              "session_epoch": 0, "topics": [], "forgotten_topics_data": [], "rack_id": "",
              "replica_state": replica}  # fmt: skip
    body = bytes(encode_request("fetch", 17, values))
    # One tagged field ends the message: tag 1, 13 bytes, of which the last counts its own tags.
    assert body[-16:-13] == b"\x01\x01\x0d" and body[-1] == 0
    longer = 13 + len(UNKNOWN)
    tagged = body[:-14] + bytes([longer]) + with_tag_at_the_end(body)[-longer:]
    cls = message_class("fetch", 17, "request")
    assert without_unknown_tags(cls, tagged) == body
    assert read_request("fetch", 17, memoryview(tagged)).replica_state.replica_epoch == 9


def test_damage_is_still_damage() -> None:
    cls = message_class("create_topics", 7, "request")
    body = bytes(encode_request("create_topics", 7, {
        "topics": [], "timeout": 1000, "validate_only": False,
    }))  # fmt: skip
    tagged = with_tag_at_the_end(body)
    for end in range(len(tagged)):
        with pytest.raises(WireError):
            without_unknown_tags(cls, tagged[:end])
    rng = random.Random(3)
    for _ in range(2_000):
        changed = bytearray(tagged)
        changed[rng.randrange(len(changed))] = rng.randrange(256)
        try:
            read_request("create_topics", 7, memoryview(bytes(changed)))
        except WireError:
            continue


def test_every_type_of_kafkas_schemas_has_a_size_or_a_length() -> None:
    for name, version in FLEXIBLE:
        SKIPS.of(message_class(name, version, "request"))
