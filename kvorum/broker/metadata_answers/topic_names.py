"""Legal topic names (Kafka's Topic.validate), and those that belong to the brokers."""

from __future__ import annotations

import re

NAME_LENGTH_MAX = 249
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
EVENTS_TOPIC = "__kvorum_events"
INTERNAL_TOPICS = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC, EVENTS_TOPIC))
"""Brokers write to them; clients may read them."""
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def name_refusal(name: str) -> str | None:
    """The reason why `name` is not a legal topic name; None if it is."""
    if not name:
        return "a topic name may not be empty"
    if name in (".", ".."):
        return f"a topic name may not be {name!r}"
    if len(name) > NAME_LENGTH_MAX:
        return f"a topic name has at most {NAME_LENGTH_MAX} characters, not {len(name)}"
    if not _LEGAL.fullmatch(name):
        return f"topic name {name!r} has characters other than letters, digits, '.', '_' and '-'"
    return None
