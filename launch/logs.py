"""A node's log: text or JSON, and the level of each logger (`kvorum.logging.*`)."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kvorum.launch.repeated_lines import RepeatedLines
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.log_levels import LEVELS, level_name

FORMAT, LEVEL_OF = "kvorum.logging.format", "kvorum.logging.levels"
TEXT, JSON = "text", "json"
_ROOT = "root"


class JsonLines(logging.Formatter):
    """A JSON object a line: time (UTC, ISO 8601), level, logger, message; exception if there is
    one; node: its role and id."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": level_name(record.levelno),
            "logger": record.name,
            "node": self._node,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logging(
    level: str = "INFO", *, properties: Mapping[str, Any] | None = None, node: str = ""
) -> None:
    """Log to stderr, one line per event: time, level, logger, message with key=value pairs; or a
    JSON object.

    level: of everything that `kvorum.logging.levels` does not name. node: for JSON lines. Raises
    ConfigError for a bad property.
    """
    given = properties or {}
    shape = str(given.get(FORMAT, TEXT))
    if shape not in (TEXT, JSON):
        raise ConfigError(f"{FORMAT}={shape!r} must be {TEXT} or {JSON}")
    levels = _levels(str(given.get(LEVEL_OF, "")))
    logging.basicConfig(
        level=levels.pop(_ROOT, LEVELS[level]),
        stream=sys.stderr,
        format="%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
        force=True,
    )
    if shape == JSON:
        for handler in logging.root.handlers:
            handler.setFormatter(JsonLines(node))
    logging.getLogger("kvorum.raft").filters[:] = [RepeatedLines()]
    for name, number in levels.items():
        logging.getLogger(name).setLevel(number)


def _levels(text: str) -> dict[str, int]:
    levels = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, level = part.partition("=")
        if not name or level not in LEVELS:
            raise ConfigError(
                f"{LEVEL_OF}={text!r}: {part!r} has not the form LOGGER=LEVEL, with one of "
                f"{', '.join(LEVELS)}"
            )
        levels[name] = LEVELS[level]
    return levels
