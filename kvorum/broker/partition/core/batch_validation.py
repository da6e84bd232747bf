"""The checks of a leader on a client's batch before it touches the log."""

from __future__ import annotations

import logging
from typing import NamedTuple

from kvorum.broker.config.topic_config import TopicConfig
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import CODEC_MASK, BatchError, BatchHeader, read_header
from kvorum.storage.format.client_batch import (
    Unpacking,
    validate_client_batch,
    validate_client_records,
)
from kvorum.storage.format.compression import Codec
from kvorum.storage.format.recompression import packed_anew
from kvorum.wire.produce_codec import ProducedPartition

_log = logging.getLogger(__name__)

ZSTD_VERSION = 7
"""The first version of Produce whose clients may send zstd."""


class ProduceTerms(NamedTuple):
    """Values that hold for every batch of one Produce request.

    now_ms: monotonic.
    wall_ms: the clock that record timestamps are compared with.
    """

    acks: int
    version: int
    now_ms: int
    wall_ms: int
    unpacking: Unpacking | None = None


def checked_header(
    batch: memoryview,
    config: TopicConfig,
    *,
    name: str,
    version: int,
    wall_ms: int,
    unpacking: Unpacking | None = None,
) -> BatchHeader:
    """Check a batch; returns its header as it is to be stored.

    name: of the partition.
    version: of Produce.
    unpacking: see `validate_client_records`.
    Raises BatchError, and nothing else.
    """
    try:
        header = validate_client_batch(batch, max_message_bytes=config.log.max_message_bytes)
        if header.attributes & CODEC_MASK == Codec.ZSTD and version < ZSTD_VERSION:
            raise BatchError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce v7 or later"
            )
        return validate_client_records(
            batch,
            header,
            # With LogAppendTime the leader's timestamp replaces the producer's, so any is valid.
            now_ms=None if config.is_log_append_time else wall_ms,
            timestamp_before_max_ms=config.timestamp_before_max_ms,
            timestamp_after_max_ms=config.timestamp_after_max_ms,
            keyed_partition=None if config.log.compaction is None else name,
            unpacking=unpacking,
            decompressed_record_bytes_max=config.decompressed_record_bytes_max,
        )
    except BatchError:
        raise
    except Exception as error:
        # A bug of ours. A check changes nothing, so this batch alone is refused. If the broker
        # exited, the producer would send the batch to the next leader, which would exit too.
        _log.exception("%s: a batch of %d bytes could not be checked", name, len(batch))
        reason = f"the batch could not be checked: {error!r}"
        raise BatchError(ErrorCode.INVALID_RECORD, reason) from error


def recompressed(
    batch: memoryview,
    config: TopicConfig,
    *,
    name: str,
    version: int,
    wall_ms: int,
    unpacking: Unpacking,
) -> tuple[memoryview, BatchHeader]:
    """The batch in the codec that its topic asks for, checked, with its header; the batch itself if
    it has that codec already. Arguments are those of `checked_header`.

    Raises BatchError, and nothing else.
    """
    header = checked_header(
        batch, config, name=name, version=version, wall_ms=wall_ms, unpacking=unpacking
    )
    if config.target_compression is None or config.target_compression.fits(batch):
        return batch, header
    try:
        anew = packed_anew(batch, header, config.target_compression)
    except Exception as error:
        # A bug of ours or of a codec; refused for the same reason as in `checked_header`.
        _log.exception("%s: a batch of %d bytes could not be recompressed", name, len(batch))
        reason = f"the batch could not be recompressed: {error!r}"
        raise BatchError(ErrorCode.INVALID_RECORD, reason) from error
    if len(anew) > config.log.max_message_bytes:
        raise BatchError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {len(anew)} bytes in the codec of its topic, limit "
            f"{config.log.max_message_bytes}",
        )
    return memoryview(anew), read_header(anew, 0)


def refusal(partition_id: int, refused: BatchError) -> ProducedPartition:
    """The answer to a refused batch."""
    return ProducedPartition(
        partition_id,
        refused.code.value,
        error_message=refused.reason,
        record_errors=refused.record_errors,
    )
