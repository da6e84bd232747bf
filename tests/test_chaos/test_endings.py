"""The words for what ended a run."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from kvorum.chaos.live.endings import reason_of
from kvorum.runtime.errors import KvorumError


def clean_up() -> None:
    raise KvorumError("broker-102 is still down")


def test_an_error_of_the_clean_up_does_not_hide_the_first_one():
    with pytest.raises(KvorumError) as ended, ExitStack() as stack:
        stack.callback(clean_up)
        raise KvorumError("'false broker-102' ended with 1")
    assert reason_of(ended.value) == (
        "KvorumError: 'false broker-102' ended with 1; then, in the clean-up, "
        "KvorumError: broker-102 is still down"
    )


def test_a_cause_that_the_error_names_itself_is_not_told_twice():
    with pytest.raises(KvorumError) as ended:
        try:
            raise KvorumError("no such file")
        except KvorumError as error:
            raise KvorumError(f"'x' cannot be started: {error}") from error
    assert reason_of(ended.value) == "KvorumError: 'x' cannot be started: no such file"
