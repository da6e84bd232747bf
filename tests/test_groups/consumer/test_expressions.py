"""The regular expressions of subscriptions: those that are accepted, and their matches."""

from __future__ import annotations

import pytest

from kvorum.broker.groups.consumer.expressions import (
    LENGTH_MAX,
    expression_refusal,
    matching_topics,
)

NAMES = ["orders", "orders-eu", "payments", "Orders", "a.b"]


@pytest.mark.parametrize(
    ("expression", "topics"),
    [
        ("orders", ["orders"]),
        ("(^orders.*)", ["orders", "orders-eu"]),
        ("^(orders|pay.*)$", ["orders", "payments"]),
        ("(^orders$)|(^a\\.b$)", ["a.b", "orders"]),
        ("(?i)orders", ["Orders", "orders"]),
        ("[a-z]+-(eu|us)", ["orders-eu"]),
        (".*-.*", ["orders-eu"]),
        ("(?:o|p)[a-z]{1,8}", ["orders", "payments"]),
        ("(a|aa|orders?)+", ["orders"]),
        (".*.*.*.*s", ["Orders", "orders", "payments"]),
        ("nothing", []),
    ],
)
def test_the_whole_name_must_match(expression, topics):
    assert expression_refusal(expression) is None
    assert matching_topics(expression, NAMES) == tuple(topics)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("(", "missing )"),
        ("*", "no argument for repetition"),
        (r"(a)\1", "invalid escape sequence"),
        ("(?=a)b", "invalid perl operator"),
        ("(?!a)b", "invalid perl operator"),
        ("a{1001}", "invalid repetition size"),
        (r"\pL{150}", "pattern too large"),
        ("x" * (LENGTH_MAX + 1), "longer"),
    ],
)
def test_what_could_take_long_or_is_wrong_is_refused_in_words(expression, words):
    assert words in expression_refusal(expression)


def test_nested_repetitions_cost_no_more_than_the_name_is_long():
    name = "a" * 248 + "!"
    assert expression_refusal("(a+)+") is None
    assert matching_topics("(a+)+", [name]) == ()  # a matcher that backtracks takes 2**248 steps


def test_deep_nesting_is_refused_and_breaks_nothing():
    deep = "(" * 500 + "a" + ")" * 500
    reason = expression_refusal(deep)
    assert reason is None or "not a valid" in reason
