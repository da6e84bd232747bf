"""Which replicas move to which data directory of a broker. Pure.

A plan counts bytes, as disks fill up by bytes; a new replica goes to the directory with the fewest
replicas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

TOLERANCE = 0.1
"""Directories are balanced if the fullest and the emptiest differ by this share of the mean."""
MOVES_MAX = 10_000

Replica = tuple[str, int]
"""A topic and a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """An online data directory. sizes: of its replicas, in bytes, without those that move to it."""

    path: str
    is_cordoned: bool
    sizes: Mapping[Replica, int]


class Move(NamedTuple):
    replica: Replica
    size_bytes: int
    source: str
    target: str


class NoTarget(Exception):
    """No directory can take a replica; the message says why."""


def drained(directories: Sequence[Directory], path: str) -> list[Move]:
    """The moves that empty a directory: the largest replica first, each to the directory with the
    fewest bytes. Raises NoTarget."""
    (source,) = (d for d in directories if d.path == path)
    filled = {d.path: sum(d.sizes.values()) for d in directories if _is_target(d, path)}
    if source.sizes and not filled:
        raise NoTarget(f"no other data directory is online and not cordoned: {path} stays")
    moves = []
    for replica, size_bytes in sorted(source.sizes.items(), key=lambda item: (-item[1], item[0])):
        target = min(filled, key=lambda name: (filled[name], name))
        filled[target] += size_bytes
        moves.append(Move(replica, size_bytes, path, target))
    return moves


def balanced(directories: Sequence[Directory]) -> list[Move]:
    """Few moves after which the directories have about equal bytes: each moves the replica that
    brings the fullest and the emptiest closest. A cordoned directory takes none, and gives."""
    sizes = {d.path: dict(d.sizes) for d in directories}
    targets = {d.path for d in directories if not d.is_cordoned}
    moves: list[Move] = []
    while targets and len(moves) < MOVES_MAX:
        filled = {path: sum(found.values()) for path, found in sizes.items()}
        mean = sum(filled.values()) / max(len(filled), 1)
        source = max(filled, key=lambda path: (filled[path], path))
        target = min(targets - {source}, key=lambda path: (filled[path], path), default=None)
        if target is None:
            break
        gap = filled[source] - filled[target]
        fit = [item for item in sizes[source].items() if 0 < item[1] < gap]
        if gap <= TOLERANCE * mean or not fit:
            break
        replica, size_bytes = min(fit, key=lambda item: (abs(gap - 2 * item[1]), item[0]))
        if size_bytes < TOLERANCE * mean / 100:
            break  # thousands of small replicas would be moved for nothing
        del sizes[source][replica]
        sizes[target][replica] = size_bytes
        moves.append(Move(replica, size_bytes, source, target))
    return _once(moves)


def _is_target(directory: Directory, source: str) -> bool:
    return directory.path != source and not directory.is_cordoned


def _once(moves: Sequence[Move]) -> list[Move]:
    """Each replica's first source and last target, without those that came back."""
    first: dict[Replica, Move] = {}
    for move in moves:
        known = first.get(move.replica)
        first[move.replica] = move if known is None else known._replace(target=move.target)
    return [move for move in first.values() if move.source != move.target]
