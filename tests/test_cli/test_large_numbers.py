"""Numbers too large for their field of the protocol are refused with a sentence."""

from __future__ import annotations

import pytest

from kvorum.cli.reassignment_file import read_assignment
from kvorum.client.failures import CommandFailed
from tests.live.cluster import run_kvorum

TOO_LARGE = "99999999999"


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "create", "t", "--partitions", TOO_LARGE),
        ("topics", "create", "t", "--replication-factor", "40000"),
        ("partitions", "add", "t", "--partitions", TOO_LARGE),
        ("brokers", "unregister", TOO_LARGE),
        ("features", "upgrade", "--feature", "metadata.version=99999"),
    ],
)
def test_too_large_a_number_is_a_usage_error(words):
    done = run_kvorum(*words, "-b", "127.0.0.1:1")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("partition", ["99999999999", "-1"])
def test_file_of_a_move_with_impossible_numbers_is_refused(partition):
    text = '{"version": 1, "partitions": [{"topic": "t", "partition": %s, "replicas": [1]}]}'
    with pytest.raises(CommandFailed, match="is not"):
        read_assignment(text % partition)
