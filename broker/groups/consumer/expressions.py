"""SubscribedTopicRegex: which expressions are taken, and what topics they mean. Pure.

Apache Kafka uses RE2/J, which matches in linear time; here it is Python's `re`, which backtracks.
So that no client can hold up a broker, an expression is taken only if little of it can be tried in
more than one way: no look-around, back-references or conditions (RE2 has none either), no
repetition or choice inside a repetition, at most REPETITIONS_MAX repetitions of open length. The
whole name must match, as in Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from re import _constants as tokens  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

LENGTH_MAX = 1_024
"""Characters of an expression."""

REPETITIONS_MAX = 3
"""Work on a name of n characters is at most in the order of n to this power; names have 249."""

SHORT_REPETITION_MAX = 8
"""Repetitions of at most this span do not count."""

_REPEATS = (tokens.MAX_REPEAT, tokens.MIN_REPEAT)
_PLAIN = (
    tokens.LITERAL,
    tokens.NOT_LITERAL,
    tokens.ANY,
    tokens.IN,
    tokens.AT,
    tokens.CATEGORY,
    tokens.RANGE,
)


def expression_refusal(expression: str) -> str | None:
    """Why the expression is not taken, as a sentence; None if it is."""
    head = f"SubscribedTopicRegex `{expression[:LENGTH_MAX]}` is not a valid regular expression"
    if len(expression) > LENGTH_MAX:
        return f"{head}: it is longer than {LENGTH_MAX} characters."
    try:
        tree = parser.parse(expression)
        re.compile(expression)
        reason = _Look().refusal(tree, is_repeated=False)
    except (re.error, OverflowError, RecursionError) as error:
        return f"{head}: {error}."
    return None if reason is None else f"{head}: {reason}."


def matching_topics(expression: str, names: Iterable[str]) -> tuple[str, ...]:
    """Those that the expression, which has been taken, matches as a whole; sorted."""
    matches = re.compile(expression).fullmatch
    return tuple(sorted(name for name in names if matches(name)))


class _Look:
    """Walks a parsed expression. repetitions: of open length, so far."""

    __slots__ = ("repetitions",)

    def __init__(self) -> None:
        self.repetitions = 0

    def refusal(self, tree: Any, *, is_repeated: bool) -> str | None:
        """Half a sentence, or None."""
        for token, argument in tree:
            reason = self._of_token(token, argument, is_repeated)
            if reason is not None:
                return reason
        return None

    def _of_token(self, token: Any, argument: Any, is_repeated: bool) -> str | None:
        if token in _PLAIN:
            return None
        if token == tokens.SUBPATTERN:
            return self.refusal(argument[-1], is_repeated=is_repeated)
        if is_repeated and (token in _REPEATS or token == tokens.BRANCH):
            return "a repetition may not hold another repetition or a choice"
        if token == tokens.BRANCH:
            rest = (self.refusal(branch, is_repeated=False) for branch in argument[1])
            return next((reason for reason in rest if reason is not None), None)
        if token in _REPEATS:
            least, most, body = argument
            if most - least > SHORT_REPETITION_MAX:
                self.repetitions += 1
            if self.repetitions > REPETITIONS_MAX:
                return f"it has more than {REPETITIONS_MAX} repetitions of open length"
            return self.refusal(body, is_repeated=most > 1)
        return f"{str(token).lower().replace('_', ' ')} is not supported"
