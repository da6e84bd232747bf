from hypothesis import given
from hypothesis import strategies as st

from kvorum.raft.model.quorum import committed_offset, is_lost, majority


def test_majority_of_small_sets():
    assert [majority(n) for n in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]


@given(st.lists(st.integers(-1, 50), min_size=1, max_size=7))
def test_committed_offset_is_the_greatest_that_a_majority_reached(ends):
    slow = max(x for x in ends if sum(end >= x for end in ends) >= majority(len(ends)))
    assert committed_offset(ends) == slow


def test_a_silent_voter_holds_the_offset_back():
    assert committed_offset([10, -1, -1]) == -1
    assert committed_offset([10, 7, -1]) == 7


@given(st.integers(1, 7), st.sets(st.integers(1, 7)))
def test_a_round_is_lost_once_the_others_cannot_make_a_majority(voters, rejected):
    rejected = {r for r in rejected if r <= voters}
    can_still_grant = voters - len(rejected)
    assert is_lost(voters, rejected) == (can_still_grant < majority(voters))
