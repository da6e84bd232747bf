"""Reads the committed metadata of one controller, over a blocking gRPC channel."""

from __future__ import annotations

import grpc

from kvorum.metadata.inspect.history import MetadataCopy
from kvorum.rpc import admin_pb2 as pb
from kvorum.rpc import admin_pb2_grpc as pb_grpc


def read_copy(channel: grpc.Channel, *, timeout_s: float, from_offset: int = 0) -> MetadataCopy:
    """The metadata that the controller at the other end has committed, from an offset on; all of it
    if its log begins above that. Blocks. Raises grpc.RpcError."""
    request = pb.ReadMetadataLogRequest(from_offset=from_offset)
    chunks = list(pb_grpc.AdminStub(channel).ReadMetadataLog(request, timeout=timeout_s))
    return MetadataCopy(
        snapshot=b"".join(chunk.snapshot for chunk in chunks),
        records=b"".join(chunk.records for chunk in chunks),
        high_watermark=chunks[-1].high_watermark if chunks else 0,
    )
