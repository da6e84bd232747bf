"""The view that brokers give one user, and the metadata log for those who may read it."""

from __future__ import annotations

import pytest

from kvorum.client.failures import (
    EXIT_NO_QUORUM,
    EXIT_NOT_AUTHORIZED,
    EXIT_UNREACHABLE,
    CommandFailed,
)
from kvorum.console import broker_source
from kvorum.console.broker_source import BrokerSource, FallbackSource, SessionSource
from kvorum.metadata.image.acl import AclOperation
from tests.test_console.samples import StandingSource

TOPIC = {
    "topic": "orders", "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ",
    "partitions": [
        {"partition": 0, "leader": 101, "leader_epoch": 3, "replicas": [101, 102], "isr": [101]}
    ],
}  # fmt: skip
BROKER = {"broker_id": 101, "host": "h", "port": 9092, "rack": None, "is_fenced": False}
REFUSED = CommandFailed("CLUSTER_AUTHORIZATION_FAILED", EXIT_NOT_AUTHORIZED)


class FakeBackend:
    """A broker. quorum: its answer about the quorum; an error is raised. opened: connections so
    far."""

    opened = 0
    quorum_error: CommandFailed = REFUSED
    operations = 0

    def __init__(self, *_: object) -> None:
        type(self).opened += 1
        self.is_closed = False

    def topics(self, _):
        assert not self.is_closed
        return [TOPIC]

    def brokers(self):
        return [BROKER]

    def quorum(self):
        raise type(self).quorum_error

    def cluster_operations(self):
        return type(self).operations

    def close(self):
        self.is_closed = True


@pytest.fixture
def backend(monkeypatch):
    made = type("Made", (FakeBackend,), {"opened": 0})
    monkeypatch.setattr(broker_source, "BrokerBackend", made)
    return made


def source() -> BrokerSource:
    return BrokerSource([("b", 1)], 1.0)


def test_a_user_without_the_quorum_sees_topics_and_brokers_over_one_connection(backend):
    shown = source()
    sample = shown.read()
    assert "DESCRIBE on the cluster" in sample.no_quorum and sample.leader_id == -1
    following = "CLUSTER_ACTION on the cluster"
    assert sample.hidden == {
        "quorum": "DESCRIBE on the cluster", "elections": following, "min_isr": following,
    }  # fmt: skip
    partition = sample.image.topic("orders").partitions[0]
    assert (partition.leader, partition.isr) == (101, (101,))
    assert shown.broker_addresses() == [("h", 9092)]
    shown.read()
    assert backend.opened == 1
    with pytest.raises(CommandFailed, match="CLUSTER_ACTION"):
        _ = shown.history


def test_a_broker_that_goes_away_is_an_error_and_the_next_look_connects_again(backend):
    shown = source()
    backend.quorum_error = CommandFailed("gone", EXIT_UNREACHABLE)
    with pytest.raises(CommandFailed, match="gone"):
        shown.read()
    backend.quorum_error = CommandFailed("no leader: why", EXIT_NO_QUORUM)
    assert shown.read().no_quorum == "no leader: why"
    assert backend.opened == 2


class Followed(StandingSource):
    """The metadata log; it refuses reads when the test says so."""

    is_refusing = False

    def read(self):
        if self.is_refusing:
            raise REFUSED
        return super().read()


def test_a_user_whom_controllers_refuse_is_shown_what_brokers_answer(backend, monkeypatch):
    followed = Followed()
    both = FallbackSource(followed, source())
    assert both.read().no_quorum == "" and both.history is followed.history
    followed.is_refusing = True
    assert "DESCRIBE on the cluster" in both.read().no_quorum
    with pytest.raises(CommandFailed, match="CLUSTER_ACTION"):
        _ = both.history
    followed.is_refusing = False
    assert "DESCRIBE on the cluster" in both.read().no_quorum  # not tried again at once
    monkeypatch.setattr(broker_source, "ASK_AGAIN_S", 0.0)
    both._again_s = 0.0
    assert both.read().no_quorum == ""


def test_the_right_to_follow_is_asked_for_at_each_look_and_each_question(backend):
    both = SessionSource(Followed(), source())
    backend.operations = 1 << AclOperation.CLUSTER_ACTION
    assert both.read().no_quorum == ""
    assert both.history is not None
    backend.operations = 1 << AclOperation.DESCRIBE
    with pytest.raises(CommandFailed, match="CLUSTER_ACTION"):
        _ = both.history
    assert "DESCRIBE on the cluster" in both.read().no_quorum
