"""Control records, byte by byte (KIP-595) and there and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.raft.model.voters import VOTERS_MAX, Voter, VoterSet
from kvorum.raft.node.control_records import (
    LeaderChange,
    leader_change_batch,
    parse_voters,
    voters_batch,
)
from kvorum.raft.node.replica_log import spans_of
from kvorum.runtime.errors import InvariantViolated, WireError
from kvorum.storage.format.batch import iter_headers, iter_records
from tests.test_raft.driver import voter, voter_set

VOTERS_KEY = bytes.fromhex("00000006")
hosts = st.text(st.characters(codec="utf-8"), max_size=30)
voter_sets = st.lists(
    st.builds(
        Voter,
        st.integers(-(1 << 31), (1 << 31) - 1),
        st.binary(min_size=16, max_size=16),
        hosts,
        st.integers(0, 65535),
    ),
    max_size=6,
    unique_by=lambda one: one.node_id,
).map(VoterSet.of)


def records_of(batch):
    """(header, [(key, value), ...]) of the one batch."""
    ((position, header),) = iter_headers(batch)
    return header, [(bytes(r.key), bytes(r.value)) for r in iter_records(batch, position, header)]


def value_of(voters):
    _, [(_, value)] = records_of(voters_batch(voters, base_offset=0, epoch=1, timestamp_ms=0))
    return value


def test_leader_change_of_static_voters_is_what_apache_kafka_writes():
    change = LeaderChange(3, VoterSet.static([1, 2, 3]), (1, 3))
    batch = leader_change_batch(change, base_offset=0, epoch=1, timestamp_ms=5)
    header, records = records_of(batch)
    assert (header.base_offset, header.leader_epoch, header.attributes) == (0, 1, 0x20)
    assert header.producer_id == -1
    value = "0000 00000003 04 00000001 00 00000002 00 00000003 00 03 00000001 00 00000003 00 00"
    assert records == [(bytes.fromhex("00000002"), bytes.fromhex(value.replace(" ", "")))]


def test_leader_change_of_dynamic_voters_leaves_their_disks_to_the_voters_record():
    batch = leader_change_batch(
        LeaderChange(1, voter_set(1), (1,)), base_offset=0, epoch=1, timestamp_ms=0
    )
    _, [(_, value)] = records_of(batch)
    assert value == bytes.fromhex("0000000000010200000001000200000001" + "0000")


def test_an_opening_batch_with_voters_holds_three_records():
    change = LeaderChange(1, voter_set(1), (1,))
    batch = leader_change_batch(change, base_offset=7, epoch=2, timestamp_ms=0, has_voter_set=True)
    _, records = records_of(batch)
    assert [key.hex() for key, _ in records] == ["00000002", "00000005", "00000006"]
    assert records[1][1].hex() == "0000000100"
    (span,) = spans_of(bytes(batch))
    assert (span.base_offset, span.last_offset, span.epoch) == (7, 9, 2)
    assert (span.voters, span.voters_offset) == (voter_set(1), 9)


def test_a_voters_record_byte_by_byte():
    one = Voter(5, bytes(range(16)), "h", 9093)
    expected = (
        "0000 02"  # version, one voter
        "00000005 000102030405060708090a0b0c0d0e0f"
        "02 0b434f4e54524f4c4c4552 0268 2385 00"  # one endpoint: CONTROLLER, h, 9093
        "0000 0001 00"  # kraft.version 0 to 1
        "00 00"
    )
    assert value_of(VoterSet.of([one])) == bytes.fromhex(expected.replace(" ", ""))


@given(voter_sets)
def test_voters_there_and_back(voters):
    assert parse_voters(VOTERS_KEY, value_of(voters)) == voters


@given(voter_sets)
def test_every_truncation_is_refused(voters):
    value = value_of(voters)
    for end in range(len(value)):
        with pytest.raises(WireError):
            parse_voters(VOTERS_KEY, value[:end])


def test_other_control_records_are_no_voters():
    for key in ("00000002", "00000005", "", "0006"):
        assert parse_voters(bytes.fromhex(key), b"") is None


@pytest.mark.parametrize(
    ("position", "byte"),
    [(1, 1), (2, 0), (-1, 1), (-2, 1)],
    ids=["version", "count", "tags of the record", "tags of the voter"],
)
def test_what_this_build_does_not_know_is_refused(position, byte):
    value = bytearray(value_of(voter_set(1)))
    value[position] = byte
    with pytest.raises(WireError):
        parse_voters(VOTERS_KEY, bytes(value))


def test_a_host_that_is_no_text_is_refused():
    value = value_of(voter_set(1))
    with pytest.raises(WireError):
        parse_voters(VOTERS_KEY, value.replace(b"host1", b"\xff\xfe\xfd\xfc\xfb"))


def test_more_voters_than_a_count_byte_holds_are_a_bug():
    full = VoterSet.of(voter(i % 200) for i in range(VOTERS_MAX))
    assert parse_voters(VOTERS_KEY, value_of(full)) == full
    with pytest.raises(InvariantViolated):
        value_of(full.with_voter(voter(199)))


def test_spans_of_a_log_tell_where_the_voters_stand():
    batches = voters_batch(voter_set(1), base_offset=3, epoch=1, timestamp_ms=0)
    batches += voters_batch(voter_set(1, 2), base_offset=4, epoch=2, timestamp_ms=0)
    found = [(s.voters_offset, s.voters) for s in spans_of(bytes(batches))]
    assert found == [(3, voter_set(1)), (4, voter_set(1, 2))]


# Found in review.


def test_a_record_that_names_a_voter_twice_is_a_broken_protocol():
    value = value_of(voter_set(1, 2))
    first = value[3 : 3 + (len(value) - 4) // 2]
    with pytest.raises(WireError):
        parse_voters(VOTERS_KEY, value[:3] + first + first + b"\x00")


def test_bytes_behind_the_record_are_refused():
    with pytest.raises(WireError):
        parse_voters(VOTERS_KEY, value_of(voter_set(1)) + b"\x00")
