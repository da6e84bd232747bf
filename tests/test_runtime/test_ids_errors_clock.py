"""Identifiers, the kinds of error, and the clocks."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.runtime.clock import monotonic_ms, wall_ms
from kvorum.runtime.errors import (
    CorruptData,
    ErrorCode,
    InvariantViolated,
    KvorumError,
    Rejected,
    WireError,
    invariant,
    required,
)
from kvorum.runtime.ids import METADATA_TOPIC_ID, UUID_ZERO, new_uuid, uuid_from_text, uuid_text


@given(st.binary(min_size=16, max_size=16))
def test_uuid_text_round_trips_in_22_characters(value):
    text = uuid_text(value)
    assert len(text) == 22 and uuid_from_text(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "short", "A" * 21, "A" * 23, "A" * 21 + "=", "ä" * 22, "A" * 21 + "+", "A" * 21 + "B"],
)
def test_text_that_is_no_uuid_is_refused_by_name(text):
    with pytest.raises(ValueError, match="not a uuid") as error:
        uuid_from_text(text)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize("size", [0, 15, 17])
def test_only_16_bytes_have_a_text(size):
    with pytest.raises(ValueError, match="a uuid has 16 bytes"):
        uuid_text(bytes(size))


def test_kafka_texts_are_known():
    assert uuid_text(UUID_ZERO) == "A" * 22
    assert uuid_text(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"


def test_new_ids_come_from_the_seed_and_are_never_reserved_or_options():
    assert new_uuid(random.Random(4)) == new_uuid(random.Random(4))

    class Script(random.Random):
        values = [UUID_ZERO, METADATA_TOPIC_ID, b"\xf8" + bytes(15), b"\x10" * 16]

        def randbytes(self, n):
            return self.values.pop(0)

    assert uuid_text(b"\xf8" + bytes(15)).startswith("-")
    assert new_uuid(Script()) == b"\x10" * 16


def test_invariant_holds_or_raises_even_without_asserts():
    invariant(True, "never seen")
    with pytest.raises(InvariantViolated, match="broken"):
        invariant(False, "broken")
    script = "from kvorum.runtime.errors import invariant; invariant(0, 'still')"
    done = subprocess.run(
        [sys.executable, "-O", "-c", script],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "InvariantViolated: still" in done.stderr


def test_required_gives_the_value_or_raises():
    assert required(0, "zero is a value") == 0
    with pytest.raises(InvariantViolated, match="gone"):
        required(None, "gone")


def test_kinds_of_error_are_told_apart():
    assert not issubclass(WireError, CorruptData) and issubclass(WireError, KvorumError)
    error = CorruptData("a.log", 17, "crc differs")
    assert str(error) == "a.log at byte 17: crc differs"
    assert (error.path, error.position, error.reason) == ("a.log", 17, "crc differs")
    assert Rejected(ErrorCode.NOT_CONTROLLER) == Rejected(ErrorCode.NOT_CONTROLLER, "")


def test_error_codes_are_those_of_kafka():
    errors = pytest.importorskip("kio.schema.errors").ErrorCode
    known = {code.value: code.name for code in errors}
    # Those of Kafka 4.4, which kio has not yet.
    known |= {
        134: "group_deletion_failed",
        135: "streams_topology_description_update_failed",
        136: "controller_id_not_registered",
    }
    for code in ErrorCode:
        assert known[code.value] == code.name.lower(), code


def test_clocks_count_milliseconds():
    before = monotonic_ms()
    assert monotonic_ms() >= before
    assert 1_600_000_000_000 < wall_ms() < 10_000_000_000_000
