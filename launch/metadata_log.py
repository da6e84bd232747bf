"""The metadata log of a node: `__cluster_metadata-0` in its data directory, with quorum-state."""

from __future__ import annotations

from raft.replica_log import ReplicaLog
from raft.vote_store import VoteStore
from runtime.clock import wall_ms
from runtime.disk import Disk
from storage.log import Log, LogConfig

DIRECTORY_NAME = "__cluster_metadata-0"


def open_metadata_log(disk: Disk, directory: str) -> ReplicaLog:
    """Recover the log and flush it, so that the node may vouch for all it holds.

    The clean-shutdown shortcut is never taken (kraft.md section 3): what a voter acknowledged
    must be proven whole before it votes or fetches again. Raises CorruptData for damage that is
    not a torn tail.
    """
    path = f"{directory}/{DIRECTORY_NAME}"
    disk.make_dirs(path)
    disk.sync_dir(directory)
    config = LogConfig(retention_ms=-1, retention_bytes=-1, max_message_bytes=1 << 30)
    log = Log.open(disk, path, config, now_ms=wall_ms())
    log.flush()
    return ReplicaLog(log, VoteStore(disk, path))
