"""The log of a node: text or JSON lines, and the level of each logger (`kvorum.logging.*`)."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from typing import Any

from kvorum.launch.daemon.repeated_lines import RepeatedLines
from kvorum.metadata.access.audit import LOGGER_NAME as AUDIT_LOGGER
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.log_levels import LEVELS, level_name

FORMAT, LEVEL_OF = "kvorum.logging.format", "kvorum.logging.levels"
AUDIT_FILE = "kvorum.audit.file"
AUDIT_BYTES_MAX = 100 << 20
AUDIT_FILES_MAX = 10
"""Old audit files that are kept beside the present one."""
TEXT, JSON = "text", "json"
_ROOT = "root"


class JsonLines(logging.Formatter):
    """A JSON object a line: time (UTC, ISO 8601), level, logger, message; exception if there is
    one; node: its role and id."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": level_name(record.levelno),
            "logger": record.name,
            "node": self._node,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class AuditLines(logging.Formatter):
    """The audit's own JSON objects (metadata.access.audit), with `time` and `node` before the
    rest."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        head = json.dumps({"time": _time(record), "node": self._node}, ensure_ascii=False)
        return f"{head[:-1]}, {record.getMessage()[1:]}"


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def set_up_logging(
    level: str = "INFO", *, properties: Mapping[str, Any] | None = None, node: str = ""
) -> None:
    """Log to stderr, one line per event: time, level, logger, message with key=value pairs; or a
        JSON object.

    level: of everything that `kvorum.logging.levels` does not name.
    node: for JSON lines.
    Raises ConfigError for a bad property.
    """
    shape, levels = log_settings(properties or {})
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
    path = str((properties or {}).get(AUDIT_FILE, ""))
    if path:
        _audit_into(path, node)


def _audit_into(path: str, node: str) -> None:
    """Write the audit to a file of its own, and not to the log. Raises ConfigError."""
    try:
        handler = RotatingFileHandler(
            path, maxBytes=AUDIT_BYTES_MAX, backupCount=AUDIT_FILES_MAX, encoding="utf-8"
        )
    except OSError as error:
        raise ConfigError(
            f"{AUDIT_FILE}={path} cannot be written: {error.strerror}; give another file"
        ) from error
    handler.setFormatter(AuditLines(node))
    audit = logging.getLogger(AUDIT_LOGGER)
    audit.handlers[:] = [handler]
    audit.propagate = False


def log_settings(properties: Mapping[str, Any]) -> tuple[str, dict[str, int]]:
    """The format, and Python's number of each logger's level. Raises ConfigError."""
    shape = str(properties.get(FORMAT, TEXT))
    if shape not in (TEXT, JSON):
        raise ConfigError(f"{FORMAT}={shape!r} must be {TEXT} or {JSON}")
    return shape, _levels(str(properties.get(LEVEL_OF, "")))


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
