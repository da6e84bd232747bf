"""Log levels under Kafka's names."""

from __future__ import annotations

import logging

TRACE = 5
LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": TRACE,
    "WARN": logging.WARNING,
}


def level_name(level: int) -> str:
    """Kafka's name of a level; of one between two, the lower one's."""
    below = [name for name, number in LEVELS.items() if number <= level]
    return max(below, key=lambda name: LEVELS[name], default="TRACE")
