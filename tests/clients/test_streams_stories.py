"""Stories of Streams groups in raw requests: Kvorum answers what Apache Kafka answers."""

from __future__ import annotations

import pytest

from tests.clients.streams_stories import OUTCOMES, SETTINGS, told
from tests.live.cluster import Cluster

pytestmark = [pytest.mark.live]


AGAIN = {
    "taking-turns: a still has all: 0 epoch 2": " active {'0': [0]}",
}
"""Where Kvorum tells a member its tasks again, as an answer may have been lost, and Kafka not."""


def test_streams_groups_answer_what_they_answer_on_kafka(tmp_path):
    settings = tuple(f"{name}={value}" for name, value in SETTINGS.items())
    with Cluster(tmp_path, controllers=1, brokers=1, settings=settings) as cluster:
        lines = told(cluster.ports.broker)
    expected = OUTCOMES.read_text(encoding="utf-8").splitlines()
    assert AGAIN.keys() <= set(expected)
    assert lines == [line + AGAIN.get(line, "") for line in expected]
