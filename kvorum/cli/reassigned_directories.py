"""The data directories that a file of `kvorum partitions reassign` names: a reassignment gives a
replica its broker, and AlterReplicaLogDirs at that broker its directory.

A broker that does not have the replica yet remembers the directory. So each is asked before the
reassignment, for the replicas that it adds, and after it for all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from kvorum.cli.broker_directories import NOT_HERE, BrokerDirectories, places
from kvorum.client.failures import CommandFailed, Row, warn

if TYPE_CHECKING:
    from kvorum.cli.directory_plan import Replica
    from kvorum.cli.reassignment_file import Assignment, LogDirs

Connect = Callable[[int], BrokerDirectories]
"""Connects to a broker by its id. Raises CommandFailed."""


class ReassignedDirectories:
    """The directories of a file."""

    def __init__(self, log_dirs: LogDirs, connect: Connect) -> None:
        self._connect = connect
        self._wanted: dict[int, dict[Replica, str]] = {}
        for (topic, partition, broker_id), path in sorted(log_dirs.items()):
            self._wanted.setdefault(broker_id, {})[topic, partition] = path

    def announce(self, current: Assignment) -> dict[tuple[str, int, int], str]:
        """Tell each broker where to create the replicas that it does not have yet. Returns the
        present directories of those that it has. current: the replicas before the reassignment.

        Raises CommandFailed if a broker cannot be asked, or has no such directory."""
        present = {}
        for broker_id, wanted in self._wanted.items():
            asked = self._connect(broker_id)
            found = asked.described()
            paths = [directory.path for directory in found if not directory.error]
            for path in wanted.values():
                if path not in paths:
                    raise CommandFailed(
                        f"log_dirs of FILE: broker {broker_id} has no online data directory "
                        f"{path}; it has {paths}; nothing was begun"
                    )
            added = {r: p for r, p in wanted.items() if broker_id not in current.get(r, ())}
            for (topic, partition), error in asked.alter(added).items():
                if error != "NONE" and error not in NOT_HERE:
                    raise CommandFailed(
                        f"log_dirs of FILE: broker {broker_id} refused "
                        f"{added[topic, partition]} for {topic}-{partition}: {error}; nothing was "
                        "begun"
                    )
            here = places(found)
            present.update({(*r, broker_id): here[r] for r in wanted if r in here})
        return present

    def begin(self, partitions: Collection[Replica]) -> list[Row]:
        """Ask for the directories of the replicas of these partitions. Returns outcomes by
        replica."""
        rows: list[Row] = []
        for broker_id, wanted in self._wanted.items():
            chosen = {replica: path for replica, path in wanted.items() if replica in partitions}
            try:
                asked = self._connect(broker_id)
                before = asked.described()
                errors = asked.alter(chosen)
                here, moving, message = places(before), places(before, is_future=True), ""
            except CommandFailed as failure:
                errors = dict.fromkeys(chosen, failure.error or "NETWORK_EXCEPTION")
                here, moving, message = {}, {}, str(failure)
            for replica, path in chosen.items():
                error, is_here = errors[replica], here.get(replica) == path
                result = _result(error, is_here=is_here, is_moving=replica in moving)
                error = "NONE" if error in NOT_HERE else error
                rows.append(_row(replica, broker_id, path, error, message, result=result))
        return rows

    def verify(self, ongoing: Collection[Replica]) -> list[Row]:
        """Where each replica is. ongoing: the partitions that are being reassigned."""
        rows: list[Row] = []
        for broker_id, wanted in self._wanted.items():
            here: Mapping[Replica, str] = {}
            moving: Mapping[Replica, str] = {}
            is_known = True
            try:
                found = self._connect(broker_id).described()
                here, moving = places(found), places(found, is_future=True)
            except CommandFailed as failure:
                is_known = False
                warn(f"broker {broker_id}: {failure}")
            for replica, path in wanted.items():
                is_added = replica in ongoing and replica not in here
                state = "failed"
                if not is_known:
                    state = "unknown"
                elif moving.get(replica) == path or is_added:
                    state = "in progress"
                elif here.get(replica) == path and replica not in moving:
                    state = "complete"
                rows.append(
                    {
                        "topic": replica[0],
                        "partition": replica[1],
                        "state": state,
                        "broker_id": broker_id,
                        "log_dir": here.get(replica),
                        "target_log_dir": path,
                    }
                )
        return rows

    def cancel(self) -> list[Row]:
        """End the moves of these replicas between directories. Returns outcomes by replica."""
        rows: list[Row] = []
        for broker_id, wanted in self._wanted.items():
            try:
                asked = self._connect(broker_id)
                found = asked.described()
                here, moving = places(found), places(found, is_future=True)
                stays = {r: here[r] for r in wanted if r in moving and r in here}
                errors = asked.alter(stays)
            except CommandFailed as failure:
                # The partitions' reassignments are cancelled already, and are shown.
                warn(f"broker {broker_id}: no move between its directories is ended: {failure}")
                continue
            rows += [_row(r, broker_id, stays[r], error) for r, error in errors.items()]
        return rows


def name_of(row: Row) -> str:
    """The partition of a row, and its broker if the row is of one replica."""
    name = f"{row['topic']}-{row['partition']}"
    return name if row.get("broker_id") is None else f"{name} at broker {row['broker_id']}"


def _result(error: str, *, is_here: bool, is_moving: bool) -> str:
    if error in NOT_HERE:
        return "to be created"
    if error != "NONE" or not is_here:
        return "moving" if error == "NONE" else error
    return "there already, its move ends" if is_moving else "there already"


def _row(
    replica: Replica, broker_id: int, path: str, error: str, message: str = "", **more: str
) -> Row:
    return {
        "topic": replica[0],
        "partition": replica[1],
        "broker_id": broker_id,
        "log_dir": path,
        "error": error,
        "message": message or f"{path} at broker {broker_id}",
        **more,
    }
