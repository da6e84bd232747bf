"""SubscribedTopicRegex: the check of expressions, and the topics that they match. Pure.

Expressions have RE2's syntax and are matched by RE2, as in Apache Kafka (RE2/J). The whole name
must match.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvorum.runtime.linear_expressions import BadExpression, compiled

LENGTH_MAX = 1_024
"""Limit of an expression's characters."""


def expression_refusal(expression: str) -> str | None:
    """The reason to refuse the expression, as a sentence; None if it is valid."""
    head = f"SubscribedTopicRegex `{expression[:LENGTH_MAX]}` is not a valid regular expression"
    if len(expression) > LENGTH_MAX:
        return f"{head}: it is longer than {LENGTH_MAX} characters."
    try:
        compiled(expression)
    except BadExpression as error:
        return f"{head}: {error}."
    return None


def matching_topics(expression: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that a valid expression matches as a whole; sorted. None match where the package is
    missing: a coordinator that had it may have accepted the expression."""
    try:
        matches = compiled(expression).fullmatch
    except BadExpression:
        return ()
    return tuple(sorted(name for name in names if matches(name)))
