"""The loop of the Python families' programs."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEADLINE_S = 10.0
_WORDS = re.compile(r"\b[A-Z][A-Za-z]+(?:Error|Exception|Failed)\b|\b[A-Z]{4,}(?:_[A-Z]{3,})+\b")

Question = dict[str, str]


class Heard(logging.Handler):
    """Keeps the names of errors that a client writes to its log: its exceptions say less."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.names: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        self.names |= names_in(record.getMessage())


def names_in(text: str) -> set[str]:
    """The errors that a text names, without those that only some runs show."""
    return set(_WORDS.findall(text)) - {"KafkaConnectionError", "RequestTimedOutError"}


def run(answer: Callable[[Question], Any]) -> None:
    """Print the outcome of each question of the file that the command names."""
    for question in json.loads(Path(sys.argv[1]).read_text()):
        line = {"case": question["name"], "outcome": answer(question)}
        print(json.dumps(line), flush=True)


def token(question: Question) -> str:
    return Path(question["token"]).read_text()
