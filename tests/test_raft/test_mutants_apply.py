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
