"""Identifiers and their text form.

A Kafka uuid is 16 bytes; its text is 22 characters of url-safe base64 without padding. Ids are
made from a `random.Random` given by the caller, so that one seed decides them all in simulation.
"""

from __future__ import annotations

import base64
import binascii
import random
from typing import Annotated

Uuid = Annotated[bytes, "uuid"]
"""The 16 bytes of a Kafka uuid; `runtime.message_mapper` reads anything else as UUID_ZERO."""

UUID_ZERO = bytes(16)
#: Topic id that Apache Kafka reserves for `__cluster_metadata` (00..01).
METADATA_TOPIC_ID = bytes(15) + b"\x01"

NO_NODE = -1
"""Node id meaning "nobody": no leader, no vote."""


def uuid_text(value: bytes) -> str:
    """The 22-character text of a 16-byte uuid."""
    if len(value) != 16:
        raise ValueError(f"a uuid has 16 bytes, got {len(value)}")
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> bytes:
    """The 16 bytes of a uuid's text.

    Raises ValueError naming the text when it is not 22 characters of url-safe base64.
    """
    try:
        value = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"not a uuid: {text!r} ({error})") from error
    # One text a uuid: the decoder also takes `+`, `/` and stray bits in the last character.
    if len(value) != 16 or uuid_text(value) != text:
        raise ValueError(f"not a uuid: {text!r} (need 22 characters of url-safe base64)")
    return value


def new_uuid(rng: random.Random) -> bytes:
    """A random uuid that is neither zero nor Kafka's reserved metadata topic id.

    As Kafka does, ids whose text begins with a dash are avoided: tools take them for options.
    """
    while True:
        value = rng.randbytes(16)
        if value not in (UUID_ZERO, METADATA_TOPIC_ID) and not uuid_text(value).startswith("-"):
            return value
