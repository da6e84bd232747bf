"""docs/compat.md says what the code says."""

from __future__ import annotations

import json
import re

from kvorum.broker.api.registry import SERVED
from kvorum.chaos.live.systems.kafka_jars import VERSION
from tests.clients.compat import (
    BEGIN,
    DOCUMENT,
    END,
    KAFKA_VERSIONS,
    NOT_SERVED,
    ROOT,
    UNADVERTISED,
    api_names,
    with_generated,
)


def test_the_tables_of_compat_md_are_up_to_date():
    document = DOCUMENT.read_text(encoding="utf-8")
    assert document.count(BEGIN) == document.count(END) == 1
    assert with_generated(document) == document, "run: python -m tests.clients.compat"


def test_every_served_api_has_a_name():
    names = api_names()
    assert [key for key, _, _ in SERVED.advertised() if key not in names] == []
    assert names[0] == "Produce"
    assert names[2] == "ListOffsets"
    # The APIs whose requests have parts called TopicRequest.
    assert names[61] == "DescribeProducers"
    assert names[75] == "DescribeTopicPartitions"
    assert len(set(names.values())) == len(names)


def test_every_api_of_kafkas_has_a_row():
    document = DOCUMENT.read_text(encoding="utf-8")
    missing = [
        (key, name) for key, name in api_names().items() if f"\n| {key} | {name} |" not in document
    ]
    assert missing == []


def test_an_api_that_is_advertised_has_no_reason_for_being_absent():
    assert [key for key, _, _ in SERVED.advertised() if key in UNADVERTISED] == []


def test_every_api_that_is_not_served_has_a_reason():
    kept = json.loads(KAFKA_VERSIONS.read_text(encoding="utf-8"))
    served = {key for key, _, _ in SERVED.advertised()}
    assert {key for key, _, _ in kept["apis"]} - served == set(NOT_SERVED)


def test_the_reference_is_the_version_whose_jars_are_fetched():
    kept = json.loads(KAFKA_VERSIONS.read_text(encoding="utf-8"))
    pom = (ROOT / "bench" / "pom.xml").read_text(encoding="utf-8")
    assert f"<kafka.version>{VERSION}</kafka.version>" in pom
    assert kept["version"] == VERSION
    assert f"| Apache Kafka {VERSION} |" in DOCUMENT.read_text(encoding="utf-8")


def test_the_links_of_compat_md_lead_somewhere():
    document = DOCUMENT.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document)
    assert links
    assert [link for link in links if not (DOCUMENT.parent / link).exists()] == []
