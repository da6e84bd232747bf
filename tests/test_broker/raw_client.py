"""A Kafka client of a few lines over a blocking socket: one frame out, one frame in.

Below it are the fields of the requests that most tests send.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

from kio.schema.errors import ErrorCode as KioError
from kio.serial import entity_reader

from kvorum.broker.api.registry import SERVED
from kvorum.broker.sasl.core.client import client_exchange
from kvorum.storage.format.batch import build_batch
from kvorum.wire.kio_codec import encode_request, message_class

TIMEOUT_S = 10.0


class RawClient:
    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation_id = 0
        self.client_id = b"raw"

    def close(self) -> None:
        self.sock.close()

    def frame(self, name: str, version: int, body: bytes) -> bytes:
        """A request frame; every one has its own correlation id."""
        api = next(api for k, _, _ in SERVED.advertised() if (api := SERVED.get(k)).name == name)
        self.correlation_id += 1
        client_id = self.client_id
        head = struct.pack(">hhih", api.key, version, self.correlation_id, len(client_id))
        head += client_id
        if version >= api.first_flexible:
            head += b"\x00"
        return struct.pack(">i", len(head) + len(body)) + head + body

    def send(self, name: str, version: int, values: dict[str, Any]) -> int:
        self.sock.sendall(self.frame(name, version, bytes(encode_request(name, version, values))))
        return self.correlation_id

    def receive(self) -> tuple[int, bytes]:
        """(correlation id, the rest of the frame)."""
        size = int.from_bytes(self._exactly(4), "big")
        data = self._exactly(size)
        return int.from_bytes(data[:4], "big"), data[4:]

    def answer(self, name: str, version: int) -> Any:
        """The next answer, read by kio."""
        api = next(api for k, _, _ in SERVED.advertised() if (api := SERVED.get(k)).name == name)
        _, data = self.receive()
        skip = int(version >= api.first_flexible and name != "api_versions")
        entity, size = entity_reader(message_class(name, version, "response"))(data[skip:], 0)
        assert size == len(data) - skip
        return entity

    def call(self, name: str, version: int, values: dict[str, Any]) -> Any:
        self.send(name, version, values)
        return self.answer(name, version)

    def log_in(
        self, user: str, password: str, mechanism: str = "PLAIN", *, is_token: bool = False
    ) -> Any:
        """Log in; returns the last answer, also if it is a refusal."""
        client = client_exchange(mechanism, user, password, "nonce", is_token=is_token)
        assert client is not None, mechanism
        hello = self.call("sasl_handshake", 1, {"mechanism": mechanism})
        assert hello.error_code is KioError.none, hello
        answer, token = None, client.step(b"")
        while token is not None:
            answer = self.call("sasl_authenticate", 2, {"auth_bytes": token})
            if answer.error_code is not KioError.none:
                break
            token = client.step(bytes(answer.auth_bytes))
        return answer

    def is_closed_by_peer(self) -> bool:
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self.sock.recv(size - len(data))
            if not chunk:
                raise EOFError(f"closed after {len(data)} of {size} bytes")
            data += chunk
        return bytes(data)


def produce_values(
    topic: str, batch: bytes, *, acks: int = -1, partition: int = 0, timeout_ms: int = 5000
) -> dict[str, Any]:
    """Fields of a Produce request with one partition (v3-12)."""
    data = [{"index": partition, "records": batch}]
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": timeout_ms,
        "topic_data": [{"name": topic, "partition_data": data}],
    }


def fetch_values(
    topic: str,
    offset: int,
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    session: tuple[int, int] = (0, -1),
    leader_epoch: int = -1,
    partitions: list[dict[str, Any]] | None = None,
    rack: str = "",
) -> dict[str, Any]:
    """Fields of a Fetch request of a consumer for one topic (v7-12)."""
    if partitions is None:
        partitions = [fetch_partition(offset, leader_epoch=leader_epoch)]
    return {
        "replica_id": -1,
        "max_wait": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": 50 << 20,
        "isolation_level": 0,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [{"topic": topic, "partitions": partitions}] if partitions else [],
        "forgotten_topics_data": [],
        "rack_id": rack,
    }


def fetch_partition(
    offset: int, *, partition: int = 0, leader_epoch: int = -1, bytes_max: int = 1 << 20
) -> dict[str, Any]:
    return {
        "partition": partition,
        "current_leader_epoch": leader_epoch,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": bytes_max,
    }


def batch(count: int = 10, timestamp_ms: int = 1000, **producer: int) -> bytes:
    records: list[tuple[bytes | None, bytes | None]] = [(b"k", b"v%d" % at) for at in range(count)]
    return bytes(build_batch(records, timestamp_ms=timestamp_ms, **producer))


def produced(client: RawClient, data: bytes, *, acks: int = -1) -> Any:
    answer = client.call("produce", 9, produce_values("t", data, acks=acks))
    return answer.responses[0].partition_responses[0]


def deleted(client: RawClient, offset: int) -> KioError:
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": offset}]}]
    answer = client.call("delete_records", 2, {"topics": topics, "timeout": 5000})
    error: KioError = answer.topics[0].partitions[0].error_code
    return error
