"""Which moves a broker begins: by request (AlterReplicaLogDirs), and at its start. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from kvorum.runtime.errors import ErrorCode
from kvorum.storage.files.file_names import FILE_NAME_BYTES_MAX, replica_of

FUTURE_SUFFIX = "-future"
_UNIQUE_CHARACTERS = 32

D = TypeVar("D")


class Action(Enum):
    """What a request does to one replica."""

    NOTHING = "nothing"
    PREFER = "prefer"
    CANCEL = "cancel"
    START = "start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Generic[D]):
    """One replica of an AlterReplicaLogDirs request, and the broker's state.

    name: of the replica's folder.
    destination: None if no directory has the path.
    is_in_metadata: the cluster has the partition.
    is_offline: the replica is on this broker, and offline.
    current: the directory of the replica, None if this broker does not host it.
    future: the destination of the move under way, None if there is none.
    """

    name: str
    destination: D | None
    is_destination_offline: bool = False
    is_cordoned: bool = False
    is_in_metadata: bool = True
    is_offline: bool = False
    current: D | None = None
    future: D | None = None


def decide(asked: Asked[D]) -> tuple[ErrorCode, Action]:
    """The answer for one replica, and what is done; the order of the checks is Kafka's.

    CANCEL drops the move under way. START drops it too, if there is one, and begins another.
    """
    if len(asked.name) + 1 + _UNIQUE_CHARACTERS + len(FUTURE_SUFFIX) > FILE_NAME_BYTES_MAX:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, Action.NOTHING
    if asked.destination is None:
        return ErrorCode.LOG_DIR_NOT_FOUND, Action.NOTHING
    if asked.is_destination_offline:
        return ErrorCode.KAFKA_STORAGE_ERROR, Action.NOTHING
    if asked.is_cordoned:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, Action.NOTHING
    if asked.is_offline:
        return ErrorCode.KAFKA_STORAGE_ERROR, Action.NOTHING
    if not asked.is_in_metadata:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Action.PREFER
    if asked.current is None:
        return ErrorCode.REPLICA_NOT_AVAILABLE, Action.PREFER
    if asked.destination is asked.current:
        return ErrorCode.NONE, Action.NOTHING if asked.future is None else Action.CANCEL
    is_under_way = asked.destination is asked.future
    return ErrorCode.NONE, Action.NOTHING if is_under_way else Action.START


def future_name(name: str, unique: str) -> str:
    """The folder of a future replica: `<topic>-<partition>.<unique>-future`, as in Kafka."""
    return f"{name}.{unique}{FUTURE_SUFFIX}"


def replica_of_future(name: str) -> str | None:
    """The folder name of the replica that a future replica's folder belongs to; None if the name is
    not that of a future replica."""
    if not name.endswith(FUTURE_SUFFIX):
        return None
    replica, _, unique = name.removesuffix(FUTURE_SUFFIX).rpartition(".")
    is_future = len(unique) == _UNIQUE_CHARACTERS and replica_of(replica) is not None
    return replica if is_future else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFuture:
    """A future replica's folder, found at the start.

    log_dir: index of its directory.
    topic_id: None if the folder does not say it.
    """

    log_dir: int
    folder: str
    topic_id: bytes | None


def continued(
    found: Sequence[FoundFuture], *, topic_id: bytes, current: int, told: int | None
) -> FoundFuture | None:
    """The move that goes on; the folders of all others are removed.

    current, told: indexes of the replica's directory, and of the one that the metadata names. Two
    futures of one replica can exist if power failed while one move replaced another.
    """
    fit = [f for f in found if f.topic_id == topic_id and f.log_dir != current]
    return next((f for f in fit if f.log_dir == told), fit[0] if fit else None)


def promoted(
    found: Sequence[FoundFuture],
    *,
    topic_id: bytes,
    told: int | None,
    currents: Collection[int],
    put_aside: Collection[int],
) -> FoundFuture | None:
    """The future that takes the current replica's place at the start: a power failure undid half of
    the swap. None in all other cases, for the future may lack records.

    currents: the directories with a folder of the replica.
    put_aside: the directories with one that was put aside for its removal.

    A swap renames the future's folder, and then puts the old one aside. The second may be durable
    without the first.
    """
    if currents or told is None or not put_aside:
        return None
    fit = (f for f in found if f.topic_id == topic_id and f.log_dir == told)
    return next(fit, None)
