"""The report on a quorum without a leader, made from the answers of any nodes."""

from kvorum.metadata.inspect import quorum_report as report
from kvorum.rpc import admin_pb2 as pb

ADDRESSES = {1: "one:1", 2: "two:2", 3: "three:3"}


def described(node_id, leader_id=-1, *, epoch=7, leaderless_ms=0, voters=(1, 2, 3), nodes=()):
    return pb.DescribeQuorumReply(
        node_id=node_id,
        leader_id=leader_id,
        leader_epoch=epoch,
        leaderless_ms=leaderless_ms,
        voters=[pb.QuorumReplica(node_id=i) for i in voters],
        nodes=[pb.QuorumNode(node_id=i, host=host, port=port) for i, host, port in nodes],
    )


def test_leader_is_who_says_so_in_the_newest_epoch():
    leader = described(2, 2, epoch=8)
    assert report.leader_of([described(1, 1), leader, described(3, 2, epoch=8)]) is leader
    assert report.leader_of([described(1, 1, epoch=7), described(3, epoch=8)]) is None
    assert report.leader_of([]) is None


def test_a_leader_that_no_majority_fetches_from_does_not_count():
    leader = described(1, 1, voters=(1, 2, 3, 4, 5))
    now_ms = 1_700_000_000_000
    ages_ms = {1: 0, 2: report.FETCH_AGE_MAX_MS, 3: report.FETCH_AGE_MAX_MS + 1, 4: 9_000}
    for voter in leader.voters:
        age_ms = ages_ms.get(voter.node_id)
        voter.last_fetch_timestamp_ms = -1 if age_ms is None else now_ms - age_ms
    assert report.leader_of([leader]) is None
    assert report.leader_id_of([leader]) == -1
    leader.voters[2].last_fetch_timestamp_ms += 1
    assert report.leader_of([leader]) is leader


def test_followers_of_the_newest_epoch_vouch_for_a_leader_that_is_silent():
    assert report.leader_id_of([described(2, 1), described(3, 1)]) == 1
    assert report.leader_id_of([described(2, 1, epoch=7), described(3, epoch=8)]) == -1
    assert report.leader_id_of([]) == -1


def test_an_outage_is_no_leader_for_longer_than_an_election_for_everybody():
    old, young = described(2, leaderless_ms=5_000), described(3, leaderless_ms=50)
    assert report.is_outage([old])
    assert not report.is_outage([old, young])
    assert not report.is_outage([])


def test_the_sentence_names_voters_epoch_and_what_is_needed():
    assert report.describe_outage([described(3)], ADDRESSES) == (
        "no quorum: 1 of 3 voters reachable (3), missing 1 at one:1, 2 at two:2; epoch 7; need 2"
    )


def test_bootstrap_servers_that_do_not_answer_are_named_by_address_and_not_as_voters():
    text = report.describe_outage([], {-2: "one:1", -3: "[::2]:2"})
    assert text == "no quorum: no controller answers at one:1, [::2]:2, the bootstrap servers"
    assert report.is_sentence(text)


def test_with_enough_voters_in_reach_it_is_no_leader_and_not_no_quorum():
    text = report.describe_outage([described(3, epoch=8), described(2)], ADDRESSES)
    assert text.startswith(
        "no leader: 2 of 3 voters reachable (2, 3), missing 1 at one:1; epoch 8; need 2, "
    )
    assert report.is_sentence(text)


def test_without_any_answer_the_askers_own_knowledge_serves():
    assert report.describe_outage([], ADDRESSES, 5) == (
        "no quorum: 0 of 3 voters reachable, missing 1 at one:1, 2 at two:2, 3 at three:3; "
        "epoch 5; need 2"
    )
    assert "epoch unknown" in report.describe_outage([], ADDRESSES)


def test_a_reason_that_is_not_a_missing_node_is_part_of_the_sentence():
    refused = "DescribeQuorum is refused to User:broker-101"
    down = "failed to connect to two:2: [Errno 111] Connection refused"
    everywhere = report.describe_outage([], ADDRESSES, 5, dict.fromkeys(ADDRESSES, refused))
    assert everywhere.endswith(f"epoch 5; need 2; {refused}")
    some = report.describe_outage([], ADDRESSES, 5, {1: refused, 2: down, 3: refused})
    assert some.endswith(f"need 2; 1, 3: {refused}")
    assert report.describe_outage([], ADDRESSES, 5, {2: down}).endswith("need 2")
    unknown = "failed to connect to one:1: Name or service not known"
    text = report.describe_outage([], {-2: "one:1", -3: "two:2"}, -1, {-2: unknown, -3: down})
    assert text.endswith(f"the bootstrap servers; {unknown}")


def test_voters_are_those_of_the_newest_epoch_and_addresses_come_from_all():
    grown = described(4, epoch=9, voters=(3, 4, 5, 6, 7), nodes=[(5, "five", 55), (3, "third", 33)])
    grown.voters[3].address = "six:66"
    assert report.describe_outage([described(1), grown], ADDRESSES) == (
        "no quorum: 1 of 5 voters reachable (4), missing 3 at third:33, 5 at five:55, "
        "6 at six:66, 7; epoch 9; need 3"
    )


def test_the_age_can_be_taken_off_again():
    sentence = report.describe_outage([described(3)], {1: "10.0.0.1:9", 2: "b.example.org:9"})
    for age_ms, words in ((12_345, "last heard from a leader 12.3 s ago"), (None, "not heard")):
        text = report.with_age(sentence, "Broker 101", age_ms)
        assert words in text
        assert report.is_sentence(text)
        assert report.without_age(text) == sentence
    assert not report.is_sentence("no active controller within 5 ms")


def test_another_disk_in_a_voters_place_is_not_counted_and_named():
    ours, theirs, new = bytes([1] * 16), bytes([2] * 16), bytes([3] * 16)
    alive = described(2, voters=())
    alive.directory_id = ours
    alive.voters.add(node_id=1, directory_id=theirs)
    alive.voters.add(node_id=2, directory_id=ours)
    wiped = described(1, epoch=9, voters=())
    wiped.directory_id = new
    assert report.describe_outage([wiped, alive], {1: "one:1"}) == (
        "no quorum: 1 of 2 voters reachable (2), missing 1 at one:1 (another disk answers there: "
        "this one has no vote); epoch 7; need 2"
    )


def test_nodes_that_know_no_voters_say_so():
    text = report.describe_outage([described(1, voters=())], {})
    assert text.startswith("no quorum: no voter is known to 1, new to the quorum or on a new disk")
    assert report.is_sentence(text)
