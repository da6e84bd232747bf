"""The data directories that a file of `kvorum partitions reassign` names."""

from __future__ import annotations

import pytest

from kvorum.cli.reassigned_directories import ReassignedDirectories, name_of
from kvorum.client.failures import CommandFailed
from tests.test_cli.fake_directories import FakeDirectories

T, U = ("t", 0), ("u", 0)


def planned(
    log_dirs: dict[tuple[str, int, int], str], **brokers: FakeDirectories
) -> ReassignedDirectories:
    return ReassignedDirectories(log_dirs, lambda broker_id: brokers[f"b{broker_id}"])


def test_a_broker_is_told_before_the_reassignment_where_to_create_a_replica():
    old, new = FakeDirectories({T: "/a"}), FakeDirectories({})
    found = planned({(*T, 1): "/b", (*T, 2): "/b"}, b1=old, b2=new)
    assert found.announce({T: (1,)}) == {(*T, 1): "/a"}
    assert (old.wanted, new.wanted) == ([{}], [{T: "/b"}])
    rows = found.begin([T])
    assert (old.wanted[-1], new.wanted[-1]) == ({T: "/b"}, {T: "/b"})
    assert [(row["broker_id"], row["error"], row["result"]) for row in rows] == [
        (1, "NONE", "moving"),
        (2, "NONE", "to be created"),
    ]


def test_replicas_of_a_refused_reassignment_stay_where_they_are():
    broker = FakeDirectories({T: "/a", U: "/a"})
    rows = planned({(*T, 1): "/b", (*U, 1): "/a"}, b1=broker).begin([U])
    assert broker.wanted == [{U: "/a"}]
    assert [row["result"] for row in rows] == ["there already"]


def test_a_directory_that_the_broker_does_not_have_begins_nothing():
    broker = FakeDirectories({T: "/a"}, offline=("/b",))
    for path in ("/b", "/c"):
        with pytest.raises(CommandFailed, match=f"directory {path}.*nothing was begun"):
            planned({(*T, 1): path}, b1=broker).announce({T: (1,)})
    assert broker.wanted == []


def test_a_directory_that_the_broker_refuses_begins_nothing(monkeypatch):
    broker = FakeDirectories({})
    monkeypatch.setattr(
        broker, "alter", lambda wanted: dict.fromkeys(wanted, "INVALID_REPLICA_ASSIGNMENT")
    )
    with pytest.raises(CommandFailed, match="INVALID_REPLICA_ASSIGNMENT; nothing was begun"):
        planned({(*T, 1): "/b"}, b1=broker).announce({T: (2,)})


@pytest.mark.parametrize(
    ("broker", "ongoing", "state"),
    [
        (FakeDirectories({T: "/b"}), [], "complete"),
        (FakeDirectories({T: "/a"}, {T: "/b"}), [], "in progress"),
        (FakeDirectories({T: "/a"}), [], "failed"),
        (FakeDirectories({T: "/a"}), [T], "failed"),
        (FakeDirectories({T: "/b"}, {T: "/a"}), [], "failed"),
        (FakeDirectories({}), [], "failed"),
        (FakeDirectories({}), [T], "in progress"),
        (FakeDirectories({}, outages=1), [], "unknown"),
    ],
)
def test_the_state_of_a_replica(broker, ongoing, state):
    (row,) = planned({(*T, 1): "/b"}, b1=broker).verify(ongoing)
    assert (row["state"], name_of(row)) == (state, "t-0 at broker 1")


def test_cancel_ends_the_moves_and_passes_over_a_broker_that_is_down(capsys):
    moving, down = FakeDirectories({T: "/a", U: "/b"}, {T: "/b"}), FakeDirectories({}, outages=1)
    rows = planned({(*T, 1): "/b", (*U, 1): "/b", (*U, 2): "/b"}, b1=moving, b2=down).cancel()
    assert moving.wanted == [{T: "/a"}]
    assert [(row["topic"], row["log_dir"]) for row in rows] == [("t", "/a")]
    assert "broker 2: no move between its directories is ended" in capsys.readouterr().err
