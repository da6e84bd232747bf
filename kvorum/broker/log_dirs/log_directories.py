"""The data directories of one broker (`log.dirs`): which are online, and which takes a new replica.

A directory that fails is offline until the broker restarts; the others go on (KIP-112, KIP-858).
The broker never creates a replica of a failed directory anew elsewhere: the empty replica would
pass for one that may hold acknowledged records.
"""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kvorum.broker.log_dirs.replica_store import ReplicaStore, Topics
from kvorum.metadata.configs.cordons import EVERY_DIRECTORY
from kvorum.metadata.image.records import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData, KvorumError, shortage_of
from kvorum.runtime.ids import uuid_text
from kvorum.storage.files.file_names import replica_of

_log = logging.getLogger(__name__)

OWN_ERRORS = frozenset(
    {
        errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EBADF, errno.EINVAL, errno.EAGAIN,
        errno.EINTR, errno.EFBIG, errno.EEXIST, errno.EISDIR, errno.ENOTEMPTY, errno.ENAMETOOLONG,
        errno.ENOSYS, errno.EOPNOTSUPP, errno.ELOOP, errno.ENOBUFS,
    }
)  # fmt: skip
"""Errors of the process itself, such as no file descriptor left or a closed file; they affect only
the replica that met them. Any other error means that the directory, or its disk, is unusable. File
systems have many errors for that: EBADMSG for a failed checksum of their own, ENOTCONN for a lost
file server."""


FILES_BESIDE_LOGS = 64
"""Open files of a broker without logs and clients: listeners, the other nodes, the metadata log,
modules that are being imported."""


PREFERENCES_MAX = 100_000
"""Replicas whose directory is remembered before they are here; the oldest is forgotten."""


class DirectoriesLost(KvorumError):
    """The broker cannot go on with its remaining directories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDirectory:
    """The outcome of the start for one directory.

    directory_id: None if it could not be read; then `failure` is the reason.
    is_clean: the last process closed all logs in it.
    """

    directory_id: bytes | None
    is_clean: bool = False
    failure: OSError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest:
    """A replica that needs a directory.

    name: of its folder.
    told: the directory id that the metadata has for it.
    is_new: the broker had no such replica before, so no folder of it can exist.
    is_in_sync: it is in the ISR or eligible, so the cluster relies on its records.
    """

    name: str
    topic_id: bytes
    told: bytes
    is_new: bool
    is_in_sync: bool


class Unplaced(NamedTuple):
    """The reason why a replica stays offline until the metadata changes.

    log_dir: the directory where its folder should be, None if that directory cannot be read.
    """

    reason: str
    log_dir: LogDirectory | None = None


class LogDirectory:
    """One data directory.

    reason: why it is offline, "" while online.
    replicas: number of its replicas, including those without a file and those that move to it.
    is_closed: all its logs were closed cleanly.
    is_cordoned: it takes no new replica (KIP-1066).
    """

    __slots__ = ("id", "is_closed", "is_cordoned", "path", "reason", "replicas", "store")

    def __init__(self, path: str, store: ReplicaStore, directory_id: bytes | None = None) -> None:
        self.path = path
        self.store = store
        self.id = directory_id
        self.reason = ""
        self.replicas = 0
        self.is_closed = False
        self.is_cordoned = False

    @property
    def is_offline(self) -> bool:
        return bool(self.reason)

    def summary(self) -> str:
        name = "-" if self.id is None else uuid_text(self.id)
        state = f"offline ({self.reason})" if self.reason else "online"
        return f"dir={self.path} id={name} {state} replicas={self.replicas}"


class LogDirectories:
    """All data directories of a broker, in the order of the configuration."""

    def __init__(
        self, disk: Disk, paths: Sequence[str], rng: random.Random, topics: Topics
    ) -> None:
        """topics: see `ReplicaStore`."""
        self.items = [
            LogDirectory(path, ReplicaStore(disk=disk, data_directory=path, rng=rng, topics=topics))
            for path in paths
        ]
        self._missing: set[bytes] = set()
        """Directory ids of the metadata that no directory has; each is logged once."""
        self._preferred: dict[tuple[str, int], str] = {}
        """The path that AlterReplicaLogDirs named for a replica that is not here yet."""

    def load(self, found: Mapping[str, FoundDirectory]) -> None:
        """Find the replicas in each directory (blocking); a directory that cannot be read starts
        offline.

        Raises CorruptData if a checkpoint is damaged in the only directory, and OSError for a
        shortage (`shortage_of`), which is no directory's failure.
        """
        for item in self.items:
            claim = found[item.path]
            item.id = claim.directory_id
            if claim.failure is not None:
                self.fail(item, claim.failure, "start")
                continue
            try:
                item.store.load(claim.is_clean)
            except OSError as failure:
                if shortage_of(failure):
                    raise
                self.fail(item, failure, "start")
            except CorruptData as damage:
                if self.is_single:
                    raise
                self.fail(item, OSError(errno.EBADMSG, str(damage)), "start")
        if any(item.store.put_aside for item in self.online) and not self.is_single:
            # A swap between two directories may just have put a folder aside. Its removal must not
            # be durable before the name that the replica has in the other directory.
            for item in self.online:
                try:
                    item.store.sync_names()
                except OSError as failure:
                    self.fail(item, failure, "start")

    def lack_of_files(self, limit: int) -> str:
        """A sentence if the logs found at the start need more open files than the process may
        have; "" if they do not."""
        logs = sum(len(item.store.unclaimed) for item in self.online)
        needed = logs + FILES_BESIDE_LOGS
        if limit >= needed:
            return ""
        return (
            f"the limit of open files is {limit:,}, below the {needed:,} that this broker needs: "
            f"one for each of its {logs:,} logs, {FILES_BESIDE_LOGS} for itself, and more for "
            "clients: raise it (LimitNOFILE= of the unit, ulimit -n of the shell)"
        )

    # --- look-up -----------------------------------------------------------------------------

    @property
    def online(self) -> list[LogDirectory]:
        return [item for item in self.items if not item.is_offline]

    @property
    def offline(self) -> list[LogDirectory]:
        return [item for item in self.items if item.is_offline]

    @property
    def offline_count(self) -> int:
        """Kafka's gauge OfflineLogDirectoryCount."""
        return len(self.offline)

    @property
    def is_single(self) -> bool:
        """True if only one directory is configured: then replicas need no directory id in the
        metadata."""
        return len(self.items) == 1

    def by_id(self, directory_id: bytes) -> LogDirectory | None:
        if directory_id in (UNASSIGNED_DIRECTORY, LOST_DIRECTORY):
            return None
        return next((item for item in self.items if item.id == directory_id), None)

    def of_path(self, path: str) -> LogDirectory | None:
        """The directory in which a file lies."""
        return next((item for item in self.items if path.startswith(f"{item.path}/")), None)

    def holding(self, name: str, topic_id: bytes, told: bytes) -> LogDirectory | Unplaced | None:
        """The directory in which a replica's folder was found at the start; None if there is no
        folder. Of two copies, the one in the directory that the metadata names (`told`).

        Unplaced if the metadata names neither: one copy is older, and nothing shows which.
        """
        found = [d for d in self.online if d.store.unclaimed.get(name, None) == topic_id]
        if len(found) < 2:
            return found[0] if found else None
        for item in found:
            if item.id == told:
                return item
        for item in found:
            item.store.leave_alone(name)
        paths = " and ".join(item.path for item in found)
        return Unplaced(f"a copy of it lies in {paths}; move all but one of them away", found[0])

    def _unless_older(
        self, found: LogDirectory, own: LogDirectory | None, wanted: PlacementRequest
    ) -> LogDirectory | Unplaced:
        """`found`, unless the metadata names a directory that cannot be read. That directory may
        hold more records, and a copy that came back from a repair would lead without them."""
        is_named = wanted.told not in (UNASSIGNED_DIRECTORY, LOST_DIRECTORY)
        if not is_named or (own is not None and not own.is_offline):
            return found
        found.store.leave_alone(wanted.name)
        where = uuid_text(wanted.told) if own is None else f"{own.path}, which is offline"
        return Unplaced(
            f"it lies in {where}, and the cluster counts on it; what lies in {found.path} may be "
            "older"
        )

    def place(self, wanted: PlacementRequest) -> LogDirectory | Unplaced:
        """The directory of a replica that is to be opened.

        Unplaced: the replica stays offline. An empty log would pass for the log that cannot be
        read, or that someone removed.
        """
        found = self.holding(wanted.name, wanted.topic_id, wanted.told)
        own = self.by_id(wanted.told)
        if isinstance(found, LogDirectory) and wanted.is_in_sync:
            found = self._unless_older(found, own, wanted)
        if found is not None:
            return found
        if own is not None and own.is_offline:
            return Unplaced(f"{own.path} is offline ({own.reason})")
        flushed = (d for d in self.online if d.store.was_flushed(wanted.name))
        known = own or next(flushed, None)
        if known is not None and wanted.is_in_sync and not wanted.is_new:
            lost = known.store.missing_reason(wanted.name)
            if lost is not None:
                return Unplaced(
                    f"{lost}, and the cluster counts on what it held; put the folder back, or go "
                    "on with what another replica holds: `kvorum partitions elect --unclean`",
                    known,
                )
        if own is not None:
            return own
        if wanted.told == UNASSIGNED_DIRECTORY and (self.is_single or wanted.is_new):
            return self.choose(wanted.name) or Unplaced("no directory is online")
        # The replica may lie in an offline directory: the metadata names a directory that cannot be
        # read, or names none and a folder may exist.
        if self.offline:
            paths = ", ".join(item.path for item in self.offline)
            return Unplaced(f"it may lie in {paths}, which is offline")
        is_elsewhere = wanted.told not in (UNASSIGNED_DIRECTORY, LOST_DIRECTORY)
        if is_elsewhere:
            self._warn_of_missing(wanted.told)
        if wanted.is_in_sync and is_elsewhere:
            return Unplaced(
                f"it lies in directory {uuid_text(wanted.told)}, which is at no path of log.dirs "
                f"({self._ids()}), and the cluster counts on what it holds; bring that directory "
                "back (is its disk mounted?), or see `kvorum partitions restore`"
            )
        # Every directory can be read, and none has the replica's folder. Either the replica was
        # never written to, or its folder has no partition.metadata and will be refused when it is
        # opened.
        return known or self.choose(wanted.name) or Unplaced("no directory is online")

    def _ids(self) -> str:
        return ", ".join(
            f"{item.path} is {'unknown' if item.id is None else uuid_text(item.id)}"
            for item in self.items
        )

    def _warn_of_missing(self, directory_id: bytes) -> None:
        if directory_id in self._missing:
            return
        self._missing.add(directory_id)
        _log.warning(
            "the cluster has replicas of this broker in directory %s, which is at no path of "
            "log.dirs (%s): it was taken out, or its disk is not mounted or has been replaced; "
            "those that other brokers have in sync are fetched anew",
            uuid_text(directory_id),
            self._ids(),
        )

    def choose(self, name: str = "") -> LogDirectory | None:
        """The directory for a new replica: the preferred one, else the one with the fewest
        replicas, as in Kafka. None if all are offline.

        name: of its folder. A cordoned directory takes a replica only if all are cordoned: the
        controller has placed it here before it knew.
        """
        key = replica_of(name)
        path = None if key is None else self._preferred.pop(key, None)
        usable = [item for item in self.online if not item.is_cordoned] or self.online
        for item in usable:
            if item.path == path:
                return item
        return min(usable, key=lambda item: item.replicas, default=None)

    def prefer(self, key: tuple[str, int], path: str) -> None:
        """Create the replica of that topic and partition in the directory with that path, once the
        metadata gives it to this broker. Kept in memory, as in Kafka."""
        self._preferred.pop(key, None)
        if len(self._preferred) >= PREFERENCES_MAX:
            del self._preferred[next(iter(self._preferred))]
        self._preferred[key] = path

    def cordon(self, paths: Collection[str]) -> None:
        """Cordon the directories with these paths and no others; EVERY_DIRECTORY: all."""
        for item in self.items:
            item.is_cordoned = item.path in paths or EVERY_DIRECTORY in paths

    def failed_ids(self) -> tuple[bytes, ...]:
        """Ids, for the heartbeat, of the offline directories whose id is known."""
        return tuple(item.id for item in self.offline if item.id is not None)

    # --- failure -----------------------------------------------------------------------------

    def fail(self, item: LogDirectory, failure: OSError, operation: str) -> bool:
        """Take a directory offline; False if it was offline before."""
        if item.is_offline:
            return False
        where = f" of {failure.filename}" if failure.filename else ""
        # The message of damage that our own checks found already names the file.
        is_own_check = failure.errno == errno.EBADMSG and not where
        code = errno.errorcode.get(failure.errno or 0, "error")
        name = "" if is_own_check else f" ({code})"
        item.reason = f"{operation}{where} failed: {failure.strerror or failure}{name}"
        # If the directory fails at the start, its replicas have not been counted.
        replicas = f", with {item.replicas} replicas" if item.replicas else ""
        _log.error(
            "log directory %s is offline%s: %s; repair the disk and restart the broker",
            item.path,
            replicas,
            item.reason,
        )
        return True

    def loss(self, metadata_directory: str) -> DirectoriesLost | None:
        """The reason why the broker must exit, None if it can go on (the rule is Apache
        Kafka's)."""
        for item in self.offline:
            if item.path == metadata_directory:
                return DirectoriesLost(
                    f"{item.path} holds the metadata log and has failed: {item.reason}"
                )
        if not self.online:
            reasons = "; ".join(f"{item.path}: {item.reason}" for item in self.items)
            return DirectoriesLost(f"no data directory is left: {reasons}")
        return None


def is_disk_fault(failure: BaseException) -> bool:
    """True if an error takes the whole directory offline."""
    if not isinstance(failure, OSError) or failure.errno is None:
        return False
    return failure.errno not in OWN_ERRORS
