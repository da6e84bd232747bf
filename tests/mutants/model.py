"""One broken rule."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """`old`, which occurs exactly once in the file at `path`, becomes `new`.

    rule: the rule that the code then breaks, in words of the protocol. tests: folders whose tests
    must fail; if they pass and has_simulator is set, the simulator in this world must fail.
    """

    name: str
    rule: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...] = ("tests/test_raft", "tests/scripts", "tests/test_snapshots")
    has_simulator: bool = True
    world: str = "quorum"

    def apply(self, text: str) -> str:
        """The broken file. Raises ValueError if the rule is not where it was.

        Comments on lines of their own count for nothing where the code alone tells the place: they
        are written anew more often than code.
        """
        if text.count(self.old) == 1:
            return text.replace(self.old, self.new)
        code, old = _without_comments(text), _without_comments(self.old)
        count = code.count(old)
        if count != 1:
            raise ValueError(f"mutant {self.name}: {count} times in {self.path}: {self.old!r}")
        return code.replace(old, self.new)


def _without_comments(text: str) -> str:
    return "".join(
        line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("#")
    )


#: Of the controller's decisions, which are tested without any run.
of_decisions = functools.partial(Mutant, tests=("tests/test_metadata",), has_simulator=False)

#: What only a run with brokers, fail-overs and a log shows.
of_controller_runs = functools.partial(Mutant, tests=(), world="controller")

Rule = tuple[str, str, str, str, str]
"""(name, rule, path, old, new) of a Mutant."""


def mutants_of(rules: Iterable[Rule], *, tests: tuple[str, ...]) -> tuple[Mutant, ...]:
    """Mutants that the same tests must object to, and no simulator."""
    return tuple(
        Mutant(name, rule, path, old, new, tests=tests, has_simulator=False)
        for name, rule, path, old, new in rules
    )
