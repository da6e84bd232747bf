"""The rules by which a node is ready, and their pages."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from kvorum.launch.metrics.health import LEADER_SILENCE_MS_MAX, STUCK_MS_MAX, Facts, checks
from kvorum.launch.metrics.health_pages import ready
from kvorum.launch.metrics.raft_view import has_lost_leader
from kvorum.launch.metrics.server import HttpRequest
from tests.test_raft.driver import Driven

FOLLOWER = Facts(
    role="follower", leader_id=1, epoch=7, leader_age_ms=10,
    applied_offset=50, high_watermark=50, stuck_ms=0,
)  # fmt: skip
BROKER = FOLLOWER._replace(role="observer", is_fenced=False, directories=2, offline_directories=1)


def failed(facts: Facts) -> list[str]:
    return [check.name for check in checks(facts) if not check.is_passed]


@pytest.mark.parametrize(
    ("facts", "names"),
    [
        (FOLLOWER, []),
        (FOLLOWER._replace(role="leader", leader_age_ms=None), []),
        (FOLLOWER._replace(leader_age_ms=LEADER_SILENCE_MS_MAX), []),
        (FOLLOWER._replace(leader_age_ms=LEADER_SILENCE_MS_MAX + 1), ["quorum"]),
        (FOLLOWER._replace(leader_age_ms=None), ["quorum"]),
        (FOLLOWER._replace(role="candidate", leader_id=-1, leader_age_ms=6_000), ["quorum"]),
        # An election shortly after the last contact with a leader.
        (FOLLOWER._replace(role="candidate", leader_id=-1, leader_age_ms=200), []),
        # A node that has just started has been without a leader for 0 ms.
        (FOLLOWER._replace(leader_id=-1, leader_age_ms=0, applied_offset=0, high_watermark=-1),
         ["metadata"]),
        (FOLLOWER._replace(applied_offset=40, stuck_ms=STUCK_MS_MAX), []),
        (FOLLOWER._replace(applied_offset=40, stuck_ms=STUCK_MS_MAX + 1), ["metadata"]),
        (FOLLOWER._replace(stuck_ms=STUCK_MS_MAX + 1), []),
        (BROKER, []),
        (BROKER._replace(is_fenced=True), ["unfenced"]),
        (BROKER._replace(offline_directories=2), ["log_dirs"]),
        (BROKER._replace(is_fenced=True, leader_age_ms=None), ["unfenced", "quorum"]),
    ],
)  # fmt: skip
def test_a_node_is_ready_if_every_condition_is_met(facts: Facts, names: list[str]) -> None:
    assert failed(facts) == names


def test_a_node_that_is_not_ready_names_the_reasons_alone() -> None:
    facts = BROKER._replace(leader_age_ms=9_000)
    answer = ready(HttpRequest(frozenset(), False), facts)
    assert answer.status == "503 Service Unavailable"
    assert answer.body.decode() == (
        "[-] quorum: role=observer epoch=7 leader=1; a leader was heard of 9000 ms ago, more than "
        "5000 ms\nnot ready\n"
    )


def test_verbose_names_every_condition_with_its_value() -> None:
    answer = ready(HttpRequest(frozenset({"verbose"}), False), BROKER)
    assert answer.status == "200 OK"
    assert answer.body.decode() == (
        "[+] unfenced: yes\n"
        "[+] quorum: role=observer epoch=7 leader=1; a leader was heard of 10 ms ago\n"
        "[+] metadata: applied=50 committed=50\n"
        "[+] log_dirs: 1 of 2 in use\n"
        "ready\n"
    )


def test_json_has_the_same() -> None:
    answer = ready(HttpRequest(frozenset(), True), BROKER._replace(is_fenced=True))
    body = json.loads(answer.body)
    assert answer.status == "503 Service Unavailable"
    assert body["status"] == "not ready"
    assert {name: check["ok"] for name, check in body["checks"].items()} == {
        "unfenced": False, "quorum": True, "metadata": True, "log_dirs": True,
    }  # fmt: skip


def test_a_certificate_that_ends_soon_is_a_warning_and_the_node_stays_ready() -> None:
    text = "the certificate CN=broker-101 in /etc/node.pem ends on 2026-12-01 10:00 UTC"
    facts = BROKER._replace(certificates=2, certificate_warnings=(text,))
    answer = ready(HttpRequest(frozenset(), False), facts)
    assert (answer.status, answer.body.decode()) == ("200 OK", f"[!] certificates: {text}\nready\n")
    said = json.loads(ready(HttpRequest(frozenset(), True), facts).body)
    assert said["status"] == "ready"
    assert said["checks"]["certificates"] == {"ok": True, "value": text, "warning": True}


def test_certificates_without_a_near_end_are_shown_only_if_asked_for() -> None:
    facts = BROKER._replace(certificates=2)
    assert ready(HttpRequest(frozenset(), False), facts).body == b"ready\n"
    verbose = ready(HttpRequest(frozenset({"verbose"}), False), facts).body.decode()
    assert "[+] certificates: none ends soon\n" in verbose
    without = ready(HttpRequest(frozenset({"verbose"}), False), BROKER).body.decode()
    assert "certificates" not in without


def test_a_leader_that_is_only_heard_of_counts_once_it_answers():
    # Bad sequence: 1. Two of three controllers die. 2. The third, without a leader, names the dead
    # one to a broker that fetches. 3. The broker follows it by name, and was ready for a moment.
    broker = Driven(node_id=101).follow(leader=2)
    node = SimpleNamespace(core=broker.core)
    assert has_lost_leader(node)
    broker.fetched(leader=2)
    assert not has_lost_leader(node)
