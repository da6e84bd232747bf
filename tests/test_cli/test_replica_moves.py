"""`kvorum brokers move-replicas`: what it says of each replica, and its wait."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from kvorum.cli import replica_moves
from tests.command import kvorum
from tests.test_cli.fake_directories import FakeDirectories

M = ("m", 0)


def move(monkeypatch, fake: FakeDirectories, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(replica_moves, "_asked", lambda broker_id, options: fake)
    monkeypatch.setattr(replica_moves, "POLL_S", 0)
    return kvorum("brokers", "move-replicas", "101", *arguments)


def results(out: str) -> list[str]:
    return [row["result"] for row in json.loads(out)]


@pytest.mark.parametrize("named", [("m:0", "--to", "/a"), ("--from", "/a", "--to", "/a")])
def test_a_replica_in_the_target_is_there_already(monkeypatch, named):
    fake = FakeDirectories({M: "/a"})
    code, out, _ = move(monkeypatch, fake, *named)
    assert code == 0 and "there already" in out and "moving" not in out
    fake = FakeDirectories({M: "/a"}, {M: "/b"})
    assert results(move(monkeypatch, fake, *named, "-o", "json", "--dry-run")[1]) == [
        "there already, its move ends"
    ]
    assert fake.wanted == []
    assert results(move(monkeypatch, fake, *named, "-o", "json")[1]) == [
        "there already, its move ends"
    ]
    assert fake.wanted == [{M: "/a"}]


def test_a_wait_goes_on_through_a_restart_of_the_broker(monkeypatch):
    class Restarting(FakeDirectories):
        def alter(self, wanted):
            self.place, self.outages = dict(wanted), 3
            return super().alter(wanted)

    words = ("m:0", "--to", "/b", "--wait")
    code, out, err = move(monkeypatch, Restarting({M: "/a"}), *words)
    assert (code, out.split()[-3:]) == (0, ["moved", "/a", "/b"])
    assert err == (
        "kvorum: broker h:1 went away: Connection refused; its moves go on when it is back: "
        "waiting for it\n"
    )


def test_a_timeout_that_was_given_ends_the_wait(monkeypatch):
    class Lost(FakeDirectories):
        def alter(self, wanted):
            self.outages = 99
            return super().alter(wanted)

    fake = Lost({M: "/a"})
    clock = SimpleNamespace(monotonic=iter(range(99)).__next__, sleep=lambda _: None)
    monkeypatch.setattr(replica_moves, "time", clock)
    code, _, err = move(monkeypatch, fake, "m:0", "--to", "/b", "--wait", "--timeout", "5")
    assert (code, fake.outages) == (3, 94)
    assert err.endswith("went away: Connection refused\n")


def test_a_move_that_ended_short_of_its_target_names_the_lack_of_room(monkeypatch):
    code, _, err = move(monkeypatch, FakeDirectories({M: "/a"}), "m:0", "--to", "/b", "--wait")
    assert code == 1
    assert "no room in the target, another move or a failed disk" in err
