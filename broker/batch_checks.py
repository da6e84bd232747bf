"""What a leader checks of a client's batch before it touches the log."""

from __future__ import annotations

import logging

from broker.topic_config import TopicConfig
from runtime.errors import ErrorCode
from storage.batch import CODEC_MASK, BatchError, BatchHeader
from storage.client_batch import Unpacking, validate_client_batch, validate_client_records
from storage.compression import Codec

_log = logging.getLogger(__name__)

ZSTD_VERSION = 7
"""The first version of Produce whose clients may send zstd."""


def checked_header(
    batch: memoryview,
    config: TopicConfig,
    *,
    name: str,
    version: int,
    wall_ms: int,
    unpacking: Unpacking | None = None,
) -> BatchHeader:
    """The header of the batch as it is to be stored. name: of the partition; version: of Produce;
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
            # The leader's own stamp takes the place of the producer's: any will do.
            now_ms=None if config.is_log_append_time else wall_ms,
            timestamp_before_max_ms=config.timestamp_before_max_ms,
            timestamp_after_max_ms=config.timestamp_after_max_ms,
            keyed_partition=None if config.log.compaction is None else name,
            unpacking=unpacking,
        )
    except BatchError:
        raise
    except Exception as error:
        # A bug of ours. But a check changes nothing, so it costs this batch and not the broker, and
        # the next broker that its producer tries, and the next.
        _log.exception("%s: a batch of %d bytes could not be checked", name, len(batch))
        reason = f"the batch could not be checked: {error!r}"
        raise BatchError(ErrorCode.INVALID_RECORD, reason) from error
