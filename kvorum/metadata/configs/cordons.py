"""The value of `cordoned.log.dirs`: data directories that take no new replicas (KIP-1066)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

CORDONED_LOG_DIRS = "cordoned.log.dirs"
EVERY_DIRECTORY = "*"


def cordoned_paths(text: str | None) -> list[str]:
    """The paths in a value, or EVERY_DIRECTORY alone; none for an empty value."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def cordons_problem(paths: Sequence[str], log_dirs: Collection[str]) -> str | None:
    """A sentence if a broker with these directories cannot have this value; else None. The rules
    are Kafka's."""
    if EVERY_DIRECTORY in paths:
        if len(paths) == 1:
            return None
        return (
            f"{CORDONED_LOG_DIRS}={','.join(paths)}: {EVERY_DIRECTORY} stands for all directories; "
            "leave the others out"
        )
    unknown = [path for path in paths if path not in log_dirs]
    if unknown:
        return (
            f"{CORDONED_LOG_DIRS} names {', '.join(unknown)}, which is not in log.dirs "
            f"({','.join(log_dirs)}); write the paths as they stand there"
        )
    twice = sorted({path for path in paths if paths.count(path) > 1})
    return f"{CORDONED_LOG_DIRS} names {', '.join(twice)} twice" if twice else None
