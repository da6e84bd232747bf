"""A broker takes its data directories (KIP-112, KIP-858): identity, lock and clean-shutdown marker.

One that cannot be read is noted and passed over, unless the metadata log lies in it; one that
belongs to somebody else is a mistake of the configuration and stops the start.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from broker.log_directories import Claim
from launch.identity import DirectoryLock, check_owner, claim_directory
from runtime.disk import Disk
from runtime.errors import ConfigError
from runtime.ids import uuid_text
from storage.checkpoints import take_clean_shutdown

UNCLEAN = -1


class OwnDirectories:
    """What the start found. claims: by path, of the data directories only.

    metadata_id: id of the directory with the metadata log. epoch_before: broker epoch at the last
    shutdown if that closed every log of every directory, else UNCLEAN.
    """

    def __init__(self) -> None:
        self.claims: dict[str, Claim] = {}
        self.metadata_id = b""
        self.epoch_before = UNCLEAN
        self._locks: list[DirectoryLock] = []

    def release(self) -> None:
        for lock in self._locks:
            lock.release()
        self._locks.clear()

    def lock(self, path: str) -> None:
        """Raises ConfigError if another process has it, OSError."""
        self._locks.append(DirectoryLock(path))


def take_directories(
    disk: Disk,
    *,
    metadata_directory: str,
    data_directories: Sequence[str],
    node_id: int,
    cluster_id: str,
    rng: random.Random,
) -> OwnDirectories:
    """Claim and lock all of them.

    Raises ConfigError naming the directory that is another node's, is used by another process, is
    a copy of another one, or, of the metadata log's, cannot be read.
    """
    own = OwnDirectories()
    # First the one that has to be: a mistake found there leaves the others untouched.
    own.metadata_id = claim_directory(
        disk, metadata_directory, node_id=node_id, cluster_id=cluster_id, rng=rng
    )
    own.lock(metadata_directory)
    epochs: list[int] = []
    for path in data_directories:
        claim, epoch = _claim(disk, path, own, metadata_directory, (node_id, cluster_id), rng)
        own.claims[path] = claim
        if epoch is not None:
            epochs.append(epoch)
    _check_copies(own, metadata_directory)
    if epochs and len(set(epochs)) == 1:
        own.epoch_before = epochs[0]
    return own


def _claim(
    disk: Disk,
    path: str,
    own: OwnDirectories,
    metadata_directory: str,
    owner: tuple[int, str],
    rng: random.Random,
) -> tuple[Claim, int | None]:
    """The claim, and the epoch in the directory's marker; None for one that is used for the first
    time, which had no log to close."""
    node_id, cluster_id = owner
    try:
        is_new = False
        directory_id = own.metadata_id
        if path != metadata_directory:
            disk.make_dirs(path)
            is_new = check_owner(disk, path, node_id=node_id, cluster_id=cluster_id) is None
            directory_id = claim_directory(
                disk, path, node_id=node_id, cluster_id=cluster_id, rng=rng, has_log=False
            )
    except OSError as failure:
        return Claim(directory_id=None, failure=failure), UNCLEAN
    except ConfigError as refused:
        if not isinstance(refused.__cause__, OSError):
            raise
        return Claim(directory_id=None, failure=refused.__cause__), UNCLEAN
    try:
        if path != metadata_directory:
            own.lock(path)
        epoch = take_clean_shutdown(disk, path)
    except OSError as failure:
        return Claim(directory_id=directory_id, failure=failure), UNCLEAN
    claim = Claim(directory_id=directory_id, is_clean=epoch is not None)
    if epoch is None:
        return claim, None if is_new else UNCLEAN
    return claim, epoch


def _check_copies(own: OwnDirectories, metadata_directory: str) -> None:
    seen: dict[bytes, str] = {own.metadata_id: metadata_directory}
    for path, claim in _readable(own.claims):
        other = seen.setdefault(claim.directory_id or b"", path)
        if other != path:
            raise ConfigError(
                f"{path} and {other} have the same directory.id "
                f"{uuid_text(claim.directory_id or b'')}: one is a copy of the other; take one of "
                "them out of log.dirs"
            )


def _readable(claims: Mapping[str, Claim]) -> list[tuple[str, Claim]]:
    return [(path, claim) for path, claim in claims.items() if claim.directory_id is not None]
