"""The owner of a data directory: meta.properties (KIP-631, KIP-858).

A node writes its identity at its first start, and refuses the directory of another node or cluster.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random

from kvorum.raft.node.metadata_log import FOLDER_NAME
from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import ConfigError, CorruptData, DirectoryUnusable, shortage_of
from kvorum.runtime.ids import UUID_ZERO, new_uuid, uuid_from_text, uuid_text
from kvorum.snapshots.format import BOOTSTRAP_ID, file_name
from kvorum.storage.files.checkpoints import read_meta_properties, write_meta_properties

LOCK_NAME = ".lock"
BOOTSTRAP_FILE = file_name(BOOTSTRAP_ID.end_offset, BOOTSTRAP_ID.epoch)
_ANEW = (
    "treat the disk as lost: empty the directory and give the node a new identity (kvorum init "
    "--again for a controller with dynamic voters)"
)
_RESTORE = f"restore the file from a copy, or {_ANEW}"
_CORRECT = "correct that property, or name an empty directory"
_NOBODYS = (LOCK_NAME, "logs", "lost+found")
"""Files that a new directory may contain; mkfs creates the last one."""
_PROPERTIES = ("version", "cluster.id", "node.id", "directory.id")


class DirectoryLock:
    """The exclusive lock on a data directory, held until `release` or the end of the process."""

    def __init__(self, directory: str) -> None:
        self._fd = os.open(f"{directory}/{LOCK_NAME}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise ConfigError(
                    f"{directory} is in use by another process; stop it or choose another directory"
                ) from error
            raise

    def release(self) -> None:
        os.close(self._fd)


def is_locked(directory: str) -> bool:
    """True if another process holds the lock on a directory. Raises OSError."""
    try:
        fd = os.open(f"{directory}/{LOCK_NAME}", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except PermissionError:
        return True
    finally:
        os.close(fd)
    return False


def claim_directory(
    disk: Disk,
    directory: str,
    *,
    node_id: int,
    cluster_id: str,
    rng: random.Random,
    has_log: bool = True,
) -> bytes:
    """Give the directory this node's identity, or check it; return the directory id (16 bytes).

    has_log: the directory holds the metadata log; False for a broker's further data directories.
        Raises ConfigError with directory and mismatch, or if the directory cannot be written.
    """
    try:
        disk.make_dirs(directory)
    except OSError as error:
        raise _cannot("use", directory, error) from error
    _complete(disk, directory, node_id=node_id, cluster_id=cluster_id, rng=rng)
    owned = check_owner(disk, directory, node_id=node_id, cluster_id=cluster_id)
    if owned is not None:
        return owned
    directory_id = new_uuid(rng)
    try:
        if has_log:
            # The log folder is created before the identity, so that later a missing folder means a
            # lost log (`check_log_folder`).
            disk.make_dirs(f"{directory}/{FOLDER_NAME}")
            disk.sync_dir(directory)
    except OSError as error:
        raise _cannot("write to", directory, error) from error
    properties = {
        "version": "1",
        "cluster.id": cluster_id,
        "node.id": str(node_id),
        "directory.id": uuid_text(directory_id),
    }
    try:
        write_meta_properties(disk, directory, properties)
        # The folder's own name must survive a power loss, or its content is lost with it.
        disk.sync_dir(os.path.dirname(directory))
    except OSError as error:
        raise _cannot("write to", directory, error) from error
    return directory_id


_ANOTHER = "name a directory that this user may write to"


def _cannot(what: str, directory: str, failure: OSError) -> ConfigError:
    """The error for a disk call that failed on first access to the directory."""
    refused = f"cannot {what} data directory {directory}"
    if failure.errno == errno.EEXIST:
        return ConfigError(f"{refused}: it is no directory; {_ANOTHER}")
    if failure.errno == errno.ENOTDIR:
        return ConfigError(f"{refused}: it, or a folder above it, is no directory; {_ANOTHER}")
    if failure.errno in (errno.EACCES, errno.EPERM):
        return ConfigError(f"{refused}: {failure.strerror}; {_ANOTHER}")
    text = f"{refused}: {failure.strerror}"
    if limit := shortage_of(failure):
        return ConfigError(f"{text}; {limit}")
    is_full = failure.errno in (errno.ENOSPC, errno.EDQUOT)
    way_out = "make room and start again" if is_full else _ANOTHER
    return DirectoryUnusable(f"{text}; {way_out}")


def prepare_directory(disk: Disk, directory: str, *, node_id: int, cluster_id: str) -> None:
    """Make a directory for a controller whose host will give it its id, at the first start.

    So a folder that is copied to its host a second time, after the disk was lost, becomes another
    disk: it has no vote until it is made a voter. A directory of this node that has run stays as it
    is. Raises ConfigError, OSError.
    """
    disk.make_dirs(directory)
    if (
        _prepared(disk, directory) is None
        and check_owner(disk, directory, node_id=node_id, cluster_id=cluster_id) is not None
    ):
        return
    disk.make_dirs(f"{directory}/{FOLDER_NAME}")
    properties = {"version": "1", "cluster.id": cluster_id, "node.id": str(node_id)}
    write_meta_properties(disk, directory, properties)


def _prepared(disk: Disk, directory: str) -> dict[str, str] | None:
    """The properties of a directory that was prepared and has never run; None for any other, also
    for one that cannot be read, which `check_owner` reports."""
    try:
        known = read_meta_properties(disk, directory)
    except (OSError, CorruptData):
        return None
    if known is None or set(_PROPERTIES) - known.keys() != {"directory.id"}:
        return None
    folder = f"{directory}/{FOLDER_NAME}"
    names = disk.list_dir(folder) if disk.exists(folder) else []
    return known if set(names) <= {BOOTSTRAP_FILE} else None


def _complete(
    disk: Disk, directory: str, *, node_id: int, cluster_id: str, rng: random.Random
) -> None:
    """Give a prepared directory its id. Raises ConfigError if it is another node's."""
    prepared = _prepared(disk, directory)
    if prepared is None:
        return
    complete = prepared | {"directory.id": uuid_text(new_uuid(rng))}
    _check(directory, complete, node_id=node_id, cluster_id=cluster_id)
    try:
        write_meta_properties(disk, directory, complete)
    except OSError as error:
        raise _cannot("write to", directory, error) from error


def require_formatted(
    disk: Disk, directory: str, *, node_id: int, cluster_id: str, rng: random.Random
) -> bytes:
    """The directory id of a directory that `kvorum init` prepared for this node; the first start
    gives it one.

    A controller with a wiped disk must not get a new identity automatically, because its vote
    belongs to the old one (KIP-853). Raises ConfigError, CorruptData.
    """
    _complete(disk, directory, node_id=node_id, cluster_id=cluster_id, rng=rng)
    owned = check_owner(disk, directory, node_id=node_id, cluster_id=cluster_id)
    if owned is None:
        raise ConfigError(
            f"{directory} is not prepared for a controller with dynamic voters; kvorum init does "
            "that: for a new cluster, with --add for one more controller, with --again ID for one "
            "that lost its disk"
        )
    return owned


def check_log_folder(disk: Disk, directory: str) -> None:
    """Raise DirectoryUnusable if a controller's directory has an identity but no metadata log.

    Without the log the node has forgotten its votes and acknowledgements, while its directory id
    would still let it vote.
    """
    if not disk.exists(f"{directory}/{FOLDER_NAME}"):
        raise DirectoryUnusable(
            f"{directory} has lost {FOLDER_NAME}, and with it what this node voted: this disk "
            f"must not vote any more; restore it from a copy, or {_ANEW}"
        )


def check_owner(disk: Disk, directory: str, *, node_id: int, cluster_id: str) -> bytes | None:
    """The directory id if this node owns the directory, None if no node does. Changes nothing.

    Raises ConfigError if the directory belongs to another node or cluster or is not a data
    directory, CorruptData if its meta.properties is damaged.
    """
    try:
        known = read_meta_properties(disk, directory)
        names = disk.list_dir(directory)
    except OSError as error:
        raise _cannot("use", directory, error) from error
    except CorruptData as damage:
        raise CorruptData(damage.path, damage.position, f"{damage.reason}; {_RESTORE}") from damage
    if known is None:
        strangers = [name for name in names if name not in _NOBODYS]
        if FOLDER_NAME in strangers and not disk.list_dir(f"{directory}/{FOLDER_NAME}"):
            strangers.remove(FOLDER_NAME)  # claim_directory was interrupted between its two steps
        if FOLDER_NAME in strangers:
            raise DirectoryUnusable(
                f"{directory} holds a metadata log but no meta.properties, which says whose it is; "
                f"{_RESTORE}"
            )
        if strangers:
            raise ConfigError(
                f"{directory} is not empty and has no meta.properties (it holds {strangers[0]!r}): "
                "it is not a Kvorum data directory; choose an empty one"
            )
        return None
    return _check(directory, known, node_id=node_id, cluster_id=cluster_id)


def _check(directory: str, known: dict[str, str], *, node_id: int, cluster_id: str) -> bytes:
    path = f"{directory}/meta.properties"
    missing = [name for name in _PROPERTIES if name not in known]
    if missing:
        raise CorruptData(path, 0, f"it has no {', '.join(missing)}; {_RESTORE}")
    if known["version"] != "1":
        raise DirectoryUnusable(
            f"{path} has version {known['version']}, this build reads version 1: it was written "
            "by another build"
        )
    if known.get("cluster.id") != cluster_id:
        raise ConfigError(
            f"{directory} belongs to cluster {known.get('cluster.id')}, the configuration says "
            f"cluster.id={cluster_id}; {_CORRECT}"
        )
    if known.get("node.id") != str(node_id):
        raise ConfigError(
            f"{directory} belongs to node {known.get('node.id')}, the configuration says "
            f"node.id={node_id}; {_CORRECT}"
        )
    try:
        directory_id = uuid_from_text(known.get("directory.id", ""))
    except ValueError as error:
        raise DirectoryUnusable(f"{path}: directory.id: {error}; {_RESTORE}") from error
    if directory_id == UUID_ZERO:
        raise DirectoryUnusable(f"{path}: directory.id of zeros names no disk; {_RESTORE}")
    return directory_id
