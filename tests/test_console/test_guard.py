"""The requests that the console answers: host names, tokens, origins."""

from __future__ import annotations

import pytest

from kvorum.console.core.guard import (
    Rules,
    check_change,
    check_host,
    check_token,
    is_loopback,
)

RULES = Rules(token="right", cookie="c", hosts=frozenset({"lab.example"}), allows_changes=True)
CHANGE = {
    "host": "127.0.0.1:9900",
    "origin": "http://127.0.0.1:9900",
    "content-type": "application/json; charset=utf-8",
    "sec-fetch-site": "same-origin",
}


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:9900", "127.0.0.1", "localhost:1", "LocalHost", "[::1]:9900", "192.168.1.5:80",
     "lab.example:9900", "LAB.example"],
)  # fmt: skip
def test_addresses_localhost_and_allowed_names_are_answered(host):
    assert check_host(RULES, host) is None


@pytest.mark.parametrize(
    "host",
    [None, "", "evil.example", "evil.example:9900", "127.0.0.1.evil.example", "localhost.evil",
     "evil.example#127.0.0.1", "evil.example/@127.0.0.1", "x@127.0.0.1", "[::1", "127.0.0.1 evil",
     "2130706433", "0x7f.1", "lab.example.evil"],
)  # fmt: skip
def test_other_names_are_refused_so_that_a_rebound_name_reads_nothing(host):
    refused = check_host(RULES, host)
    assert refused is not None
    assert refused.status == 421


def test_token_is_taken_from_the_cookie_or_a_bearer_header():
    assert check_token(RULES, {"c": "right"}, "") is None
    assert check_token(RULES, {}, "Bearer right") is None
    for cookies, header in (
        ({}, ""), ({"c": "wrong"}, ""), ({"other": "right"}, ""), ({}, "Basic right"),
        ({}, "Bearer"), ({"c": ""}, "Bearer "), ({"c": "rightx"}, ""), ({"c": "ä"}, ""),
    ):  # fmt: skip
        refused = check_token(RULES, cookies, header)
        assert refused is not None
        assert refused.status == 401
    assert check_token(Rules(), {}, "") is None


def test_change_of_our_own_page_is_allowed():
    assert check_change(RULES, CHANGE) is None
    without = {key: value for key, value in CHANGE.items() if key != "sec-fetch-site"}
    assert check_change(RULES, without) is None


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("origin", None, 403),
        ("origin", "null", 403),
        ("origin", "http://evil.example", 403),
        ("origin", "http://127.0.0.1:9901", 403),
        ("origin", "http://127.0.0.1", 403),
        ("sec-fetch-site", "cross-site", 403),
        ("sec-fetch-site", "same-site", 403),
        ("content-type", None, 415),
        ("content-type", "text/plain", 415),
        ("content-type", "application/x-www-form-urlencoded", 415),
    ],
)
def test_change_from_elsewhere_is_refused(name, value, status):
    headers = {key: given for key, given in CHANGE.items() if key != name}
    if value is not None:
        headers[name] = value
    refused = check_change(RULES, headers)
    assert refused is not None
    assert refused.status == status


def test_console_that_only_reads_refuses_every_change():
    refused = check_change(Rules(), CHANGE)
    assert refused is not None
    assert refused.status == 403
    assert "--allow-changes" in refused.reason


@pytest.mark.parametrize(
    ("host", "is_own"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("192.168.0.1", False), ("myhost", False)],
)  # fmt: skip
def test_loopback_is_what_only_this_machine_reaches(host, is_own):
    assert is_loopback(host) is is_own
