"""The records of a controller's bootstrap checkpoint: the first metadata of a new cluster.

`kvorum init` writes the same ones to each first voter. The controller that makes the log's first
decision appends them; once the log has metadata, they mean nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgpack

from kvorum.launch.config.properties import NodeConfig
from kvorum.metadata.image.features import METADATA_VERSION, SCRAM_LEVEL
from kvorum.metadata.image.record_codec import encode_record
from kvorum.metadata.image.records import Record
from kvorum.metadata.image.snapshot_job import records_in
from kvorum.runtime.async_disk import AsyncDisk
from kvorum.runtime.errors import ConfigError
from kvorum.snapshots.format import BOOTSTRAP_ID, iter_payloads
from kvorum.snapshots.store import SnapshotStore


def bootstrap_payloads(records: Sequence[Record]) -> list[bytes]:
    """Data frames of a bootstrap checkpoint."""
    return [msgpack.packb([encode_record(record) for record in records])] if records else []


async def read_bootstrap_records(disk: AsyncDisk, directory: str) -> tuple[Record, ...]:
    """The records in a folder's bootstrap checkpoint, none without one. Raises CorruptData,
    UnreadableRecord, OSError."""
    path = SnapshotStore(disk, directory).path(BOOTSTRAP_ID)
    if not await disk.exists(path):
        return ()
    return tuple([r async for payload in iter_payloads(disk, path) for r in records_in(payload)])


def check_level(metadata_version_max: int) -> None:
    """Raise ConfigError if a node's metadata.version.max is too low for SCRAM credentials."""
    if metadata_version_max < SCRAM_LEVEL:
        raise ConfigError(
            f"metadata.version.max={metadata_version_max}: --add-scram needs {METADATA_VERSION} "
            f"{SCRAM_LEVEL}; leave the one or the other out"
        )


def check_bootstrap_level(config: NodeConfig, records: Sequence[Record]) -> None:
    """Raise ConfigError if a controller's metadata.version.max is too low for its bootstrap
    records."""
    if records:
        check_level(config.node.metadata_version_max)
