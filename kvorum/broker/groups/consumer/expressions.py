"""SubscribedTopicRegex: the check of expressions, and the topics that they match. Pure.

Expressions have RE2's syntax and are matched by RE2, as in Apache Kafka (RE2/J). Matching is linear
in the length of the name, so no client can block a broker; there are no look-arounds or
back-references. The whole name must match.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

LENGTH_MAX = 1_024
"""Limit of an expression's characters."""

PROGRAM_BYTES_MAX = 1 << 20
"""Memory limit of one compiled expression with its cache of states: an expression as short as
`((\\w{99}){99}){9}` would need much."""


def expression_refusal(expression: str) -> str | None:
    """The reason to refuse the expression, as a sentence; None if it is valid."""
    head = f"SubscribedTopicRegex `{expression[:LENGTH_MAX]}` is not a valid regular expression"
    if len(expression) > LENGTH_MAX:
        return f"{head}: it is longer than {LENGTH_MAX} characters."
    import re2  # imported here: a broker without such groups saves three megabytes

    try:
        _compiled(expression)
    except re2.error as error:
        return f"{head}: {_words(error)}."
    return None


def matching_topics(expression: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that a valid expression matches as a whole; sorted."""
    matches = _compiled(expression).fullmatch
    return tuple(sorted(name for name in names if matches(name)))


def _compiled(expression: str) -> Any:
    """Compile the expression. Raises re2.error."""
    import re2

    options = re2.Options()
    options.log_errors = False  # only the member gets the error
    options.max_mem = PROGRAM_BYTES_MAX
    return re2.compile(expression, options)


def _words(error: Exception) -> str:
    told = error.args[0]
    return told.decode(errors="replace") if isinstance(told, bytes) else str(told)
