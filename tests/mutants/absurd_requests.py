"""Mutants of what keeps an absurd request from costing more than that request."""

from __future__ import annotations

from tests.mutants.model import Rule, mutants_of

_METADATA: tuple[Rule, ...] = (
    ("digits-without-bound", "a number of too many digits is a refusal",
     "metadata/configs/model.py", '"[+-]?[0-9]{1,100}"', '"[+-]?[0-9]+"'),
    ("long-number-of-a-broker", "a broker is not named by too many digits", "runtime/text.py",
     " and len(text) <= DIGITS_MAX", ""),
)  # fmt: skip

MUTANTS = mutants_of(_METADATA, tests=("tests/test_metadata/test_configs.py",))
