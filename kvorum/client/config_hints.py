"""The config that a mistyped name most likely meant. Pure.

The refusal of an unknown name is the controller's, in Kafka's words. The hint is added here, so
that it comes with Apache Kafka's refusals as well.
"""

from __future__ import annotations

import re

_UNKNOWN = re.compile(r"Unknown topic config name: (\S+)")


def with_hint(message: str | None) -> str | None:
    """The message, with the config most like the one that it calls unknown, if there is one."""
    found = _UNKNOWN.fullmatch(message or "")
    if found is None:
        return message
    # Imported only here: a command that is not refused needs no table.
    from difflib import get_close_matches

    from kvorum.metadata.configs.config_keys import CONFIGS_OF
    from kvorum.metadata.image.image import RESOURCE_TOPIC

    near = get_close_matches(found[1], CONFIGS_OF[RESOURCE_TOPIC], n=1)
    return f"{message}; did you mean {near[0]!r}?" if near else message
