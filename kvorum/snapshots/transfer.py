"""The receiving end of a snapshot transfer: chunks go into a part file, checked at the end.

The sending end is `SnapshotStore.read_chunk`. A request only names a position. So a transfer
continues after a lost connection, and from another leader with the same snapshot, because equal ids
mean equal bytes. It does not continue after a restart of the process, which cannot know how much of
the part file had reached the disk.
"""

from __future__ import annotations

from kvorum.runtime.errors import CorruptData, invariant
from kvorum.snapshots.format import BOOTSTRAP_ID, SnapshotHeader, SnapshotId, file_name, verify_file
from kvorum.snapshots.store import SnapshotNotFound, SnapshotStore


class SnapshotReceiver:
    """One snapshot transfer into a store. It restarts at 0 after `abandon`, `finish` or an error.

    Raises SnapshotNotFound for the bootstrap checkpoint, which is never transferred.
    """

    def __init__(self, store: SnapshotStore, id: SnapshotId) -> None:
        if id == BOOTSTRAP_ID:
            raise SnapshotNotFound("the bootstrap checkpoint is not served")
        self.id = id
        #: Bytes in the part file: the position to request next.
        self.position = 0
        self._store = store

    async def append(self, position: int, data: bytes) -> None:
        """Write the next bytes; they are not durable before `finish`.

        position: must be `self.position`; the caller must drop late and repeated chunks. Raises
            OSError; the part file is then removed.
        """
        invariant(
            position == self.position,
            f"snapshot {self.id}: chunk at {position}, expected at {self.position}",
        )
        is_written = False
        try:
            # The file is opened for each chunk, because a transfer may take days and should hold no
            # descriptor. The first chunk replaces the part file of an earlier receiver.
            file = await self._store.disk.open_write(
                self._store.part_path(self.id), append=position > 0
            )
            try:
                await file.write(data)
            finally:
                await file.close()
            is_written = True
        except OSError:
            await self._store.drop_part(self.id)
            raise
        finally:
            # After a failure or cancellation the content of the part file is unknown: begin again.
            self.position = position + len(data) if is_written else 0

    async def finish(self) -> SnapshotHeader:
        """All bytes have arrived: fsync them, check them all, and give the snapshot its final name.

        Raises OSError, and CorruptData if the file is damaged or does not fit its name; then the
        part file is removed and nothing new is visible.
        """
        part = self._store.part_path(self.id)
        self.position = 0
        try:
            file = await self._store.disk.open_write(part, append=True)
            try:
                await file.sync()
            finally:
                await file.close()
            # Check it after the fsync and before it becomes visible.
            header = await verify_file(self._store.disk, part)
            if header.id != self.id:
                wanted = file_name(self.id.end_offset, self.id.epoch)
                raise CorruptData(part, 0, f"fetched as {wanted}, but it holds {header.id}")
        except (CorruptData, OSError):
            await self._store.drop_part(self.id)
            raise
        await self._store.publish(self.id)
        return header

    async def abandon(self) -> None:
        """Give the transfer up and remove the part file."""
        self.position = 0
        await self._store.drop_part(self.id)
