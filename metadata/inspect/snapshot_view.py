"""The metadata as a node sent it: how it is asked for, and the image it makes."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.inspect.history import history_of
from kvorum.rpc import admin_pb2 as pb
from kvorum.rpc import admin_pb2_grpc as pb_grpc


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataCopy:
    """Committed metadata as a node sent it.

    snapshot: a whole checkpoint file, empty if the log begins at offset 0. records: the batches
    behind it. high_watermark: where they end (exclusive).
    """

    snapshot: bytes = b""
    records: bytes = b""
    high_watermark: int = 0


def read_copy(channel: grpc.Channel, *, timeout_s: float, from_offset: int = 0) -> MetadataCopy:
    """What the controller at the other end has committed, from an offset on; all of it if its log
    does not reach back. Blocks. Raises grpc.RpcError."""
    request = pb.ReadMetadataLogRequest(from_offset=from_offset)
    chunks = list(pb_grpc.AdminStub(channel).ReadMetadataLog(request, timeout=timeout_s))
    return MetadataCopy(
        snapshot=b"".join(chunk.snapshot for chunk in chunks),
        records=b"".join(chunk.records for chunk in chunks),
        high_watermark=chunks[-1].high_watermark if chunks else 0,
    )


def image_of(copy: MetadataCopy) -> ClusterImage:
    """The cluster as the copy says. Raises CorruptData, UnreadableRecord."""
    return history_of(copy, name="the copy received").image_at()
