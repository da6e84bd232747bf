"""The status with which a call ended, and the error that its caller gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import grpc
import grpc.aio

from kvorum.runtime.http2 import frames, headers

_STATUS = {status.value[0]: status for status in grpc.StatusCode}
_STATUS_OF_HTTP = {
    "400": grpc.StatusCode.INTERNAL,
    "401": grpc.StatusCode.UNAUTHENTICATED,
    "403": grpc.StatusCode.PERMISSION_DENIED,
    "404": grpc.StatusCode.UNIMPLEMENTED,
    **dict.fromkeys(("429", "502", "503", "504"), grpc.StatusCode.UNAVAILABLE),
}

_STATUS_OF_ERROR = {
    frames.NO_ERROR: grpc.StatusCode.INTERNAL,
    frames.REFUSED_STREAM: grpc.StatusCode.UNAVAILABLE,
    frames.CANCEL: grpc.StatusCode.CANCELLED,
    frames.ENHANCE_YOUR_CALM: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class StreamEnded(Exception):
    """Nothing more can be read or sent. code, details: gRPC's, from the peer or the connection."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{code.name} {details}")
        self.code = code
        self.details = details


def rpc_error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    """The error that a failed call raises."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


class Unsent(grpc.aio.AioRpcError):
    """No byte of the request was sent, so the receiver cannot have acted on it."""


def unsent(code: grpc.StatusCode, details: str) -> Unsent:
    """The error of a call without a connection, or without a place on one."""
    return Unsent(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


def parsed(parse: Callable[[bytes], Any], message: bytes, method: str) -> Any:
    """The parsed message. Raises AioRpcError if the bytes are not a message."""
    try:
        return parse(message)
    except Exception as error:  # protobuf's DecodeError, which this package does not import
        raise rpc_error(
            grpc.StatusCode.INTERNAL, f"what came from {method} is no message: {error}"
        ) from error


def status_of(
    first_headers: Mapping[str, str], trailers: Mapping[str, str]
) -> tuple[grpc.StatusCode, str]:
    """(code, details) from a server's last headers."""
    text = trailers.get("grpc-status")
    if text is None:
        return not_grpc(first_headers)
    code = _STATUS.get(headers.parse_status(text), grpc.StatusCode.UNKNOWN)
    details = headers.parse_message(trailers.get("grpc-message", ""))
    if code is grpc.StatusCode.UNKNOWN and not details:
        details = f"grpc-status {text!r} without words"
    return code, details


def not_grpc(answer: Mapping[str, str]) -> tuple[grpc.StatusCode, str]:
    """(code, details) for a response without a gRPC status. answer: its first headers."""
    http = answer.get(":status", "none")
    kind = answer.get("content-type", "none")
    code = _STATUS_OF_HTTP.get(http, grpc.StatusCode.UNKNOWN)
    return code, f"an answer without a gRPC status (HTTP status {http}, content-type {kind})"


def status_of_reset(error: int) -> tuple[grpc.StatusCode, str]:
    """(code, details) for a stream that the peer reset with an HTTP/2 error code."""
    code = _STATUS_OF_ERROR.get(error, grpc.StatusCode.INTERNAL)
    return code, f"the peer reset the stream (HTTP/2 error {error})"
