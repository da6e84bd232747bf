"""`kvorum health`: the data directories of the brokers."""

from __future__ import annotations

from kvorum.cli import broker_directories
from kvorum.cli.health import log_directories
from kvorum.client import connection
from tests.test_cli.fake_directories import FakeDirectories


class NoConnection:
    def __init__(self, *_):
        pass

    def close(self):
        pass


def found(monkeypatch, *fakes: FakeDirectories):
    monkeypatch.setattr(connection, "KafkaConnection", NoConnection)
    monkeypatch.setattr(broker_directories, "BrokerDirectories", lambda i, _: fakes[i])
    rows = [{"broker_id": i, "is_fenced": False, "host": "h", "port": 1} for i in range(len(fakes))]
    return log_directories([*rows, {"broker_id": 7, "is_fenced": True}], 1.0)


def test_an_offline_directory_without_replicas_is_named(monkeypatch):
    finding = found(monkeypatch, FakeDirectories({}), FakeDirectories({}, offline=("/b",)))
    assert not finding.is_healthy
    assert finding.detail == "3 of 4 online; offline: broker 1 /b (EIO)"


def test_a_broker_that_does_not_tell_is_named_and_not_counted(monkeypatch):
    finding = found(monkeypatch, FakeDirectories({}), FakeDirectories({}, outages=1))
    assert finding.is_healthy
    assert finding.detail == (
        "2 of 2 online; unknown: broker 1 (broker h:1 went away: Connection refused)"
    )
