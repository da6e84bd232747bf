"""The receiving end of a snapshot's transfer: chunks into a part file, checked before it counts.

The sending end is `SnapshotStore.read_chunk`. Between the two only positions travel, so a transfer
goes on after a lost connection, and from another leader that has the same snapshot: equal ids mean
equal bytes. It does not go on after a restart of the process: nobody then knows which of the
part's bytes had reached the disk.
"""

from __future__ import annotations

from kvorum.runtime.errors import CorruptData, invariant
from kvorum.snapshots.format import BOOTSTRAP_ID, SnapshotHeader, SnapshotId, file_name, verify_file
from kvorum.snapshots.store import SnapshotNotFound, SnapshotStore


class SnapshotReceiver:
    """One snapshot on its way into a store. After `abandon`, `finish` or an error it begins at 0.

    Raises SnapshotNotFound for the bootstrap checkpoint, which is nobody's to fetch.
    """

    def __init__(self, store: SnapshotStore, id: SnapshotId) -> None:
        if id == BOOTSTRAP_ID:
            raise SnapshotNotFound("the bootstrap checkpoint is not served")
        self.id = id
        #: Bytes in the part file: the position to ask for next.
        self.position = 0
        self._store = store

    async def append(self, position: int, data: bytes) -> None:
        """Write the next bytes. Not durable before `finish`.

        position: must be `self.position`; whoever gets late or doubled chunks drops them.
        Raises OSError; the part is then gone.
        """
        invariant(
            position == self.position,
            f"snapshot {self.id}: chunk at {position}, expected at {self.position}",
        )
        is_written = False
        try:
            # Opened anew for each chunk: a receiver waits for days, holding no descriptor. The
            # first one replaces a part that an earlier receiver may have left.
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
            # Cancelled or failed halfway, nobody knows what the part holds: begin again.
            self.position = position + len(data) if is_written else 0

    async def finish(self) -> SnapshotHeader:
        """All bytes are here: make them durable, check every one, and let the snapshot appear.

        Raises CorruptData if the file or its name does not hold, and OSError; the part is then
        gone and nothing new is visible.
        """
        part = self._store.part_path(self.id)
        self.position = 0
        try:
            file = await self._store.disk.open_write(part, append=True)
            try:
                await file.sync()
            finally:
                await file.close()
            # Checked after the fsync, and before anybody can see it.
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
        """Give up what has come so far."""
        self.position = 0
        await self._store.drop_part(self.id)
