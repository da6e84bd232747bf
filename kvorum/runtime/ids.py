"""Identifiers and their text form.

A Kafka uuid is 16 bytes; its text is 22 characters of url-safe base64 without padding. Random ids
come from the caller's `random.Random`, so that in simulation one seed decides them all.
"""

from __future__ import annotations

import base64
import binascii
import random
from typing import Annotated

Uuid = Annotated[bytes, "uuid"]
"""The 16 bytes of a Kafka uuid; `runtime.message_mapper` reads other lengths as UUID_ZERO."""

UUID_ZERO = bytes(16)
#: Topic id that Apache Kafka reserves for `__cluster_metadata` (00..01).
METADATA_TOPIC_ID = bytes(15) + b"\x01"

NO_NODE = -1
"""Node id for "no node": no leader, no vote."""


def uuid_text(value: bytes) -> str:
    """The 22-character text of a 16-byte uuid."""
    if len(value) != 16:
        raise ValueError(f"a uuid has 16 bytes, got {len(value)}")
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> bytes:
    """The 16 bytes of a uuid's text.

    Raises ValueError with the text if it is not 22 characters of url-safe base64.
    """
    try:
        value = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(_no_uuid(text)) from error
    # Each uuid has one text; the decoder also accepts `+`, `/` and stray bits at the end.
    if len(value) != 16 or uuid_text(value) != text:
        raise ValueError(_no_uuid(text))
    return value


def _no_uuid(text: str) -> str:
    return f"not a uuid: {text!r} (need 22 characters of url-safe base64)"


def new_uuid(rng: random.Random) -> bytes:
    """A random uuid that is neither zero nor Kafka's reserved metadata topic id.

    As in Kafka, no id has a text that begins with a dash, because tools would take it for an
    option.
    """
    while True:
        value = rng.randbytes(16)
        if value not in (UUID_ZERO, METADATA_TOPIC_ID) and not uuid_text(value).startswith("-"):
            return value
