"""Addresses as text, and back."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from kvorum.broker.controller_channel.forwarding import _nodes
from kvorum.cli.voters import _add_request
from kvorum.runtime.text import address_text, split_address
from tests.tree import sources


@pytest.mark.parametrize(
    ("host", "port", "text"),
    [
        ("localhost", 9092, "localhost:9092"),
        ("10.0.0.1", 1, "10.0.0.1:1"),
        ("::1", 65535, "[::1]:65535"),
        ("fe80::1%eth0", 9092, "[fe80::1%eth0]:9092"),
    ],
)
def test_address_comes_back_from_its_text(host, port, text):
    assert address_text(host, port) == text
    assert split_address(text) == (host, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h",
        ":9092",
        "h:",
        "h:0",
        "h:65536",
        "h:9x",
        "[]:9092",
        "[::1:9092",
        "::1]:9092",
        "::1",
        "::1:9092",
    ],
)
def test_text_that_is_no_address_is_none(text):
    assert split_address(text) is None


def test_controllers_and_voters_of_ipv6_addresses_are_told_without_brackets():
    assert _nodes({2: "h:1", 1: "[::1]:9192"}) == ((1, "::1", 9192), (2, "h", 1))
    observer = SimpleNamespace(
        node_id=4, directory_id=b"d" * 16, address="[::1]:9192", last_fetch_timestamp_ms=1
    )
    leader = SimpleNamespace(voters=[], observers=[observer], cluster_id="c")
    voter = _add_request(leader, 4, False).voter
    assert (voter.host, voter.port) == ("::1", 9192)


def test_a_host_and_a_port_that_may_be_ipv6_are_joined_in_one_place_only():
    by_hand = re.compile(r"""\{[^{}]*host['"\]]*\}:|\[0\]\}:\{|%s:%d""")
    own = ("kvorum/chaos/", "bench/", "kvorum/runtime/text.py")
    found = [path for path, text in sources(with_tests=False) if by_hand.search(text)]
    assert [path for path in found if not path.startswith(own)] == []
