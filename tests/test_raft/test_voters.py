"""Voter sets, and which of them is in force at which offset, against a slow obvious model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.raft.model.voters import NO_VOTERS, Voter, VoterHistory, VoterSet
from kvorum.runtime.errors import InvariantViolated
from kvorum.runtime.ids import UUID_ZERO
from tests.test_raft.driver import disk_of, voter, voter_set

node_ids = st.sets(st.integers(1, 9), max_size=5)


def test_voters_stand_by_ascending_id():
    assert voter_set(3, 1, 2).ids == (1, 2, 3)


def test_two_voters_of_one_id_are_no_set():
    with pytest.raises(InvariantViolated):
        VoterSet.of([voter(1), voter(1, "b")])


def test_a_voter_is_an_id_and_a_disk():
    voters = voter_set(1, 2)
    assert voters.has(1, disk_of(1))
    assert not voters.has(1, disk_of(1, "b"))
    assert not voters.has(3, disk_of(3))


def test_a_static_voter_goes_by_its_id():
    assert VoterSet.static([1]).has(1, disk_of(1, "b"))


def test_a_replica_that_names_no_disk_is_no_dynamic_voter():
    assert not voter_set(1).has(1, UUID_ZERO)


@given(node_ids, st.integers(1, 9))
def test_adding_then_removing_gives_the_set_without(ids, node_id):
    voters = voter_set(*ids)
    added = voters.with_voter(voter(node_id, "b"))
    assert added.get(node_id) == voter(node_id, "b")
    assert set(added.ids) == ids | {node_id}
    assert added.without(node_id) == voters.without(node_id) == voter_set(*ids - {node_id})


def test_text_names_id_listener_and_disk():
    assert str(Voter(1)) == "1"
    assert str(voter(1)) == "1@host1:9001:AAAAAAAAAAAAAAAAAAABYQ"


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("truncate"), st.integers(0, 30)),
        st.tuples(st.just("trim"), st.integers(0, 30)),
    ),
    max_size=20,
)


@given(st.booleans(), steps)
def test_a_history_is_the_last_record_below_whatever_was_cut(has_bootstrap, commands):
    entries = [(-1, voter_set(9))] if has_bootstrap else []
    history = VoterHistory(entries)
    model = dict(entries)
    end_offset = start_offset = 0
    for number, (name, argument) in enumerate(commands, 1):
        if name == "append":
            end_offset += argument
            voters = voter_set(number % 9 + 1)
            history.append(end_offset - 1, voters)
            model[end_offset - 1] = voters
        elif name == "truncate":
            end_offset = max(min(end_offset, argument), start_offset)
            history.truncate(end_offset)
            model = {offset: v for offset, v in model.items() if offset < end_offset}
        else:
            start_offset = max(start_offset, min(argument, end_offset))
            history.trim(start_offset)
        for asked in range(start_offset, end_offset + 1):
            below = [offset for offset in model if offset < asked]
            expected = model[max(below)] if below else NO_VOTERS
            assert history.at(asked) == expected
        expected = model[max(model)] if model else NO_VOTERS
        assert (history.last, history.last_offset) == (expected, max(model, default=-1))
        assert sum(offset < start_offset for offset, _ in history.entries) <= 1


def test_an_append_must_lie_beyond_the_last():
    history = VoterHistory([(4, voter_set(1))])
    with pytest.raises(InvariantViolated):
        history.append(4, voter_set(1, 2))


def test_a_node_whose_id_votes_with_another_disk_is_told_the_way():
    voters = voter_set(1, 2)
    assert voters.complaint_of(2, disk_of(2)) is None
    assert voters.complaint_of(9, disk_of(9)) is None
    told = voters.complaint_of(2, disk_of(2, "b"))
    assert told is not None
    assert "follows without a vote" in told
    assert "remove-voter --id 2, then add-voter --id 2" in told
