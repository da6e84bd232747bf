"""Every mutant that `make mutants` runs."""

from __future__ import annotations

from tests.mutants import decisions, log_engine, quorum
from tests.mutants.model import Mutant

MUTANTS: tuple[Mutant, ...] = (*quorum.MUTANTS, *decisions.MUTANTS, *log_engine.MUTANTS)
