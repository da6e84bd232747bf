"""Data directories of the harness's brokers: the disks below them, and their failures."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

from kvorum.broker.log_dirs.log_directories import FoundDirectory
from kvorum.metadata.controller.decide.directories import after_failure, assign_replicas
from kvorum.metadata.controller.decide.eligible_brokers import eligible_brokers
from kvorum.metadata.requests.directory_requests import AssignReplicas, RefusedReplica
from kvorum.runtime.disk import Disk, OsDisk
from kvorum.runtime.errors import Rejected


class DirectoriesSide:
    """The part of the Controller protocol that is about directories, with the real decisions."""

    _controller: Any

    def _refused(self) -> Rejected | None:
        raise NotImplementedError

    def assign_replicas(self, request: AssignReplicas) -> tuple[RefusedReplica, ...] | Rejected:
        controller = self._controller
        controller.assignments.append(request)
        decision = assign_replicas(controller.image, request, eligible_brokers(controller.image))
        if decision.records:
            controller.commit(*decision.records)
        return decision.reply


class DirectoryHost:
    """directory_count: data directories of each broker. disks: by broker id, the disks that replace
    the system's. unreadable: data directories whose claim fails at a start."""

    controller: Any
    brokers: dict[int, Any]

    def __init__(
        self, directory: Path, *, directory_count: int, disks: dict[int, Disk] | None
    ) -> None:
        self.directory = directory
        self.directory_count = directory_count
        self.disks: dict[int, Disk] = disks or {}
        self.unreadable: set[str] = set()

    def paths_of(self, broker_id: int) -> dict[str, bytes]:
        """Paths of a broker's data directories, with their ids."""
        path = str(self.directory / f"broker-{broker_id}")
        if self.directory_count == 1:
            return {path: bytes(16)}
        return {
            f"{path}-{n}": bytes([broker_id, n]) * 8 for n in range(1, self.directory_count + 1)
        }

    def found_directories_of(self, broker_id: int, is_clean: bool) -> dict[str, FoundDirectory]:
        """The finds of a start in each data directory; a path in `unreadable` fails with EIO."""
        return {
            path: (
                FoundDirectory(
                    directory_id=None, failure=OSError(errno.EIO, "input/output error", path)
                )
                if path in self.unreadable
                else FoundDirectory(directory_id=directory_id, is_clean=is_clean)
            )
            for path, directory_id in self.paths_of(broker_id).items()
        }

    def disk_of(self, broker_id: int) -> Disk:
        """The disk of a broker, the same one after each restart."""
        return self.disks.setdefault(broker_id, OsDisk())

    def _on_directory_failed(self, broker_id: int) -> None:
        """Tell the controller, as a heartbeat does. A broker that has no directory left runs on."""
        manager, image = self.brokers[broker_id].manager, self.controller.image
        failed = manager.directories.failed_ids()
        records = after_failure(image, image.brokers[broker_id], failed)
        if records:
            # In a later turn of the loop: the call may come in the middle of a publication.
            asyncio.get_running_loop().call_soon(self.controller.commit, *records)
