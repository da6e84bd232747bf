"""Every mutant's rule is where the list says; the list itself is run by `make mutants`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.all import MUTANTS
from tests.mutants.model import Mutant

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_applies_and_is_python(mutant: Mutant) -> None:
    text = mutant.apply((ROOT / mutant.path).read_text())
    compile(text, mutant.path, "exec")


def test_there_are_enough_and_their_names_differ() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names) >= 100


def test_comments_between_the_code_do_not_matter_and_code_does() -> None:
    mutant = Mutant("m", "r", "p", "if a:\n    # why\n    b()\n", "pass\n", ())
    assert mutant.apply("x()\nif a:\n    # because\n    # of this\n    b()\n") == "x()\npass\n"
    with pytest.raises(ValueError, match="0 times in p"):
        mutant.apply("if a:\n    # why\n    c()\n")
    with pytest.raises(ValueError, match="2 times in p"):
        mutant.apply("if a:\n    # 1\n    b()\nif a:\n    # 2\n    b()\n")
