"""Every client family logs in, and is refused, as by Apache Kafka; see logins/cases.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.clients.families import FAMILIES, Family
from tests.clients.logins.cases import (
    CASES,
    CLIENTS,
    LISTENERS,
    Papers,
    access_properties,
    outcomes,
    recorded,
)
from tests.clients.logins.prepare import prepare
from tests.live.by_hand import HandMade
from tests.live.cluster import run_kvorum
from tests.polling import eventually

OF_KCAT = {"PLAIN", "mutual TLS"}
"""Kafka 4 refuses the SCRAM of librdkafka before 2.6, such as kcat's here: it sends its nonce twice
(CVE-2024-56128)."""

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


@pytest.fixture(scope="module")
def running(secured: Secured) -> Iterator[Mapping[str, Future[dict[str, Any]]]]:
    """The programs of all families, which run side by side: most of the time they wait."""
    with ThreadPoolExecutor() as threads:
        yield {
            family.name: threads.submit(
                outcomes, family, secured.papers, secured.ports, secured.folder
            )
            for family in CLIENTS
            if not family.missing()
        }


@pytest.mark.parametrize("family", CLIENTS, ids=lambda family: family.name)
def test_a_family_sees_of_kvorum_what_it_sees_of_kafka(
    family: Family, running: Mapping[str, Future[dict[str, Any]]]
) -> None:
    if reason := family.missing():
        pytest.skip(f"{family.name}: {reason}")
    found = running[family.name].result()
    expected = recorded()[family.name]
    differing = {
        name: {"kvorum": outcome, "kafka": expected[name]}
        for name, outcome in found.items()
        if outcome != expected[name]
    }
    assert differing == {}
    read = {name for name, outcome in found.items() if outcome == "read"}
    assert read == {name for name, outcome in expected.items() if outcome == "read"}


def test_every_family_logs_in_by_every_mechanism_and_gets_nothing_otherwise() -> None:
    good = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "SCRAM over TLS",
            "mutual TLS"}  # fmt: skip
    names = {case.name for case in CASES}
    assert good < names
    for family in FAMILIES:
        of_family = recorded()[family.name]
        assert {name for name, outcome in of_family.items() if outcome == "read"} == good
        assert of_family.keys() == names
    of_kcat = recorded()["kcat"]
    assert {name for name, outcome in of_kcat.items() if outcome == "read"} == OF_KCAT
