"""SubscribedTopicRegex: which expressions are taken, and what topics they mean. Pure.

Written in RE2's syntax and matched by RE2, as in Apache Kafka (RE2/J): in time linear in the
name, so no client can hold up a broker, and without look-around or back-references. The whole name
must match.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

LENGTH_MAX = 1_024
"""Characters of an expression."""

PROGRAM_BYTES_MAX = 1 << 20
"""Limit of the memory of one compiled expression, with its cache of states: `((\\w{99}){99}){9}` is
short."""


def expression_refusal(expression: str) -> str | None:
    """Why the expression is not taken, as a sentence; None if it is."""
    head = f"SubscribedTopicRegex `{expression[:LENGTH_MAX]}` is not a valid regular expression"
    if len(expression) > LENGTH_MAX:
        return f"{head}: it is longer than {LENGTH_MAX} characters."
    import re2  # here: a broker without such groups is three megabytes smaller

    try:
        _compiled(expression)
    except re2.error as error:
        return f"{head}: {_words(error)}."
    return None


def matching_topics(expression: str, names: Iterable[str]) -> tuple[str, ...]:
    """Those that the expression, which has been taken, matches as a whole; sorted."""
    matches = _compiled(expression).fullmatch
    return tuple(sorted(name for name in names if matches(name)))


def _compiled(expression: str) -> Any:
    """Raises re2.error."""
    import re2

    options = re2.Options()
    options.log_errors = False  # the member is told, nobody else
    options.max_mem = PROGRAM_BYTES_MAX
    return re2.compile(expression, options)


def _words(error: Exception) -> str:
    told = error.args[0]
    return told.decode(errors="replace") if isinstance(told, bytes) else str(told)
