"""The quorum-state file: the state that a node must keep, or it could vote twice."""

import json

import pytest

from kvorum.raft.model.effects import PersistVoteState
from kvorum.raft.model.values import VoteState
from kvorum.raft.node.vote_store import FILE_NAME, VoteStore
from kvorum.runtime.errors import CorruptData
from kvorum.runtime.ids import uuid_text
from tests.test_raft.driver import disk_of
from tests.test_raft.places import FOLDER, Place, crash_everywhere


@pytest.mark.parametrize("version", [0, 1])
def test_a_state_is_read_back(version):
    state = VoteState(7, 2, 3, disk_of(3) if version else bytes(16))
    for is_dynamic in (False, True):
        place = Place(is_dynamic=is_dynamic)
        VoteStore(place.disk, FOLDER, version=version).save(state)
        place.restart()
        assert place.replica_log.vote_store.load() == state
        assert place.replica_log.vote_store.stored_version() == version


def test_a_static_state_file_is_version_0_and_a_dynamic_one_version_1():
    for is_dynamic in (False, True):
        place = Place(is_dynamic=is_dynamic)
        place.do(PersistVoteState(VoteState(4, -1, 2, disk_of(2))))
        fields = json.loads(place.disk.read_bytes(f"{FOLDER}/{FILE_NAME}"))
        assert fields["data_version"] == int(is_dynamic)
        expected = uuid_text(disk_of(2)) if is_dynamic else None
        assert fields.get("votedDirectoryId") == expected


def test_a_state_file_as_apache_kafka_writes_it_is_read():
    place = Place()
    place.disk.write_atomic(
        f"{FOLDER}/{FILE_NAME}",
        b'{"clusterId":"","leaderId":3,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0}',
    )
    assert place.replica_log.vote_store.load() == VoteState(1, 3, -1)
    place.disk.write_atomic(
        f"{FOLDER}/{FILE_NAME}",
        b'{"leaderId":1,"leaderEpoch":5,"votedId":-1,'
        b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
    )
    assert place.replica_log.vote_store.load() == VoteState(5, 1, -1)


def test_every_truncation_of_a_state_file_is_refused():
    place = Place(is_dynamic=True)
    place.do(PersistVoteState(VoteState(4, -1, 2, disk_of(2))))
    whole = place.disk.read_bytes(f"{FOLDER}/{FILE_NAME}")
    for end in range(len(whole)):
        place.disk.write_atomic(f"{FOLDER}/{FILE_NAME}", whole[:end])
        with pytest.raises(CorruptData):
            place.replica_log.vote_store.load()


@pytest.mark.parametrize(
    "text",
    [
        b'{"leaderId":1,"leaderEpoch":5,"votedId":-1,"data_version":2}',
        b'{"leaderId":1,"leaderEpoch":5,"votedId":-1}',
        b'{"leaderId":1,"leaderEpoch":5,"votedId":-1,"data_version":1}',
        b'{"leaderId":null,"leaderEpoch":5,"votedId":-1,"data_version":0}',
        b"[]",
        b"null",
        b"\xff\xfe",
    ],
    ids=["newer", "no version", "no directory", "null", "list", "nothing", "no text"],
)
def test_a_state_file_that_is_none_is_refused(text):
    place = Place()
    place.disk.write_atomic(f"{FOLDER}/{FILE_NAME}", text)
    with pytest.raises(CorruptData):
        place.replica_log.vote_store.load()


def test_a_crash_while_a_vote_is_saved_leaves_the_old_one_or_the_new():
    before, after = VoteState(4, -1, 2), VoteState(5, -1, 3)

    def prepare(seed):
        place = Place(seed)
        place.do(PersistVoteState(before))
        return place

    for place in crash_everywhere(prepare, lambda place: place.do(PersistVoteState(after))):
        place.restart()
        assert place.replica_log.vote_store.load() in (before, after)
