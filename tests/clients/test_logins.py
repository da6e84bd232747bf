"""Every client family logs in, and is refused, as by Apache Kafka; see logins/cases.py."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients.families import FAMILIES, Family
from tests.clients.logins.by_librdkafka import settings as librdkafka_settings
from tests.clients.logins.cases import (
    CASES,
    LISTENERS,
    OPEN,
    Papers,
    access_properties,
    outcomes,
    recorded,
)
from tests.clients.logins.prepare import prepare
from tests.live.by_hand import HandMade
from tests.live.cluster import run_kvorum
from tests.polling import DEADLINE_S, eventually

UNHEEDED = {(family, "a forged token") for family in ("aiokafka", "kafka-python", "kafkajs")}
"""These clients take the refusal of a token for a success and go on. Kafka answers their next
request with ILLEGAL_SASL_STATE and closes; Kvorum closes."""

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


@dataclass(frozen=True)
class Secured:
    papers: Papers
    ports: list[int]
    folder: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("logins")
    access = [f"{key}={value}" for key, value in access_properties().items()]
    hand = HandMade(
        folder, controllers=1, brokers=1, settings=(*access, "offsets.topic.num.partitions=1")
    )
    try:
        papers = Papers(folder)
        ports = [hand.ports.broker + at for at in range(len(LISTENERS))]
        hand.change("broker-101", **papers.broker_properties(ports))
        hand.start("controller-1", "broker-101")
        eventually(
            lambda: run_kvorum("topics", "list", "-b", hand.bootstrap).returncode == 0,
            "the broker answers",
        )
        prepare(hand.bootstrap)
        yield Secured(papers, ports, folder)
    finally:
        hand.close()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_sees_of_kvorum_what_it_sees_of_kafka(family: Family, secured: Secured) -> None:
    if reason := family.missing():
        pytest.skip(f"{family.name}: {reason}")
    questions = [secured.papers.question(case, secured.ports) for case in CASES]
    found = outcomes(family, questions, secured.folder)
    expected = recorded()[family.name]
    differing = {
        name: {"kvorum": outcome, "kafka": expected[name]}
        for name, outcome in found.items()
        if outcome != expected[name] and (family.name, name) not in UNHEEDED
    }
    assert differing == {}
    read = {name for name, outcome in found.items() if outcome == "read"}
    assert read == {name for name, outcome in expected.items() if outcome == "read"}


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_logs_in_over_tls_and_is_refused(secured: Secured) -> None:
    case = next(case for case in CASES if case.name == "SCRAM over TLS")
    settings = librdkafka_settings(secured.papers.question(case, secured.ports))

    def kcat(*arguments: str, stdin: str = "", **changed: str) -> subprocess.CompletedProcess[str]:
        own = settings | {"sasl.password": changed.get("password", settings["sasl.password"])}
        options = [text for name, value in own.items() for text in ("-X", f"{name}={value}")]
        return subprocess.run(
            ["kcat", "-b", own["bootstrap.servers"], *options, *arguments],
            input=stdin, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip

    produced = kcat("-P", "-t", OPEN, "-H", "from=kcat", stdin="of kcat\n")
    assert produced.returncode == 0, produced.stderr
    consumed = kcat("-C", "-t", OPEN, "-o", "beginning", "-e", "-q")
    assert "of kcat" in consumed.stdout.splitlines(), consumed.stderr
    refused = kcat("-L", "-m", "3", password="wrong")
    assert refused.returncode != 0
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in refused.stderr


def test_every_family_logs_in_by_every_mechanism_and_gets_nothing_otherwise() -> None:
    good = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "SCRAM over TLS",
            "mutual TLS"}  # fmt: skip
    names = {case.name for case in CASES}
    assert good < names
    for family in FAMILIES:
        of_family = recorded()[family.name]
        assert {name for name, outcome in of_family.items() if outcome == "read"} == good
        assert of_family.keys() == names
