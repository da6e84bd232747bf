"""Three requests that librdkafka cannot send to one chosen broker, over a bare socket.

Metadata v4 (a broker's own view of topics; never creates one), ListOffsets v1 (is the broker the
leader of these partitions in its own view) and DescribeQuorum v0 (the active controller). They are
encoded by hand from the Kafka protocol guide, the same for both sides.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

from bench import encryption
from kvorum.runtime.errors import WireError

_LIST_OFFSETS_KEY = 2
_LIST_OFFSETS_VERSION = 1
_LATEST_TIMESTAMP = -1
_CONSUMER_ID = -1
_METADATA_KEY = 3
_METADATA_VERSION = 4
_ALL_TOPICS = struct.pack(">ib", -1, 0)
_DESCRIBE_QUORUM_KEY = 55
_CLIENT_ID = b"bench"
_METADATA_TOPIC = b"__cluster_metadata"
_ANSWER_BYTES_MAX = 64 << 20
TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """One partition in the view of one broker; leader -1 for none."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, layout: str) -> int:
        (value,) = struct.unpack_from(">" + layout, self._data, self._position)
        self._position += struct.calcsize(">" + layout)
        return int(value)

    def text(self) -> str:
        """A nullable int16-length string; null reads as empty."""
        return self._bytes(self.take("h"))

    def compact_text(self) -> str:
        return self._bytes(self.varint() - 1)

    def _bytes(self, size: int) -> str:
        start = self._position
        self._position += max(size, 0)
        if self._position > len(self._data):
            raise WireError("a string reaches past the end of the answer")
        return self._data[start : self._position].decode("utf-8")

    def int_array(self) -> tuple[int, ...]:
        return tuple(self.take("i") for _ in range(self.take("i")))

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take("B")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7


def metadata_request(topics: Sequence[str]) -> bytes:
    """Body of Metadata v4 for these topics, auto-creation off."""
    names = b"".join(struct.pack(">h", len(t)) + t.encode("utf-8") for t in topics)
    return struct.pack(">i", len(topics)) + names + b"\x00"


def read_metadata(answer: bytes) -> dict[str, dict[int, PartitionView]]:
    """topic -> partition -> view, of a Metadata v4 answer without its header.

    Topics with an error (for example unknown topics) are left out. Raises WireError if it cannot be
    read.
    """
    reader = _Reader(answer)
    topics: dict[str, dict[int, PartitionView]] = {}
    try:
        reader.take("i")  # throttle time
        for _ in range(reader.take("i")):
            reader.take("i")  # node id
            reader.text()  # host
            reader.take("i")  # port
            reader.text()  # rack
        reader.text()  # cluster id
        reader.take("i")  # controller id
        for _ in range(reader.take("i")):
            error = reader.take("h")
            name = reader.text()
            reader.take("b")  # is internal
            partitions = {}
            for _ in range(reader.take("i")):
                reader.take("h")  # error: "leader not available" appears as leader -1 too
                index = reader.take("i")
                leader = reader.take("i")
                replicas, isr = reader.int_array(), reader.int_array()
                partitions[index] = PartitionView(leader=leader, replicas=replicas, isr=isr)
            if error == 0:
                topics[name] = partitions
    except (struct.error, UnicodeDecodeError) as error:
        raise WireError(f"a Metadata answer cannot be read: {error}") from error
    return topics


def list_offsets_request(partitions: Mapping[str, Sequence[int]]) -> bytes:
    """Body of ListOffsets v1: the end of each of these partitions."""
    parts = [struct.pack(">ii", _CONSUMER_ID, len(partitions))]
    for topic, indexes in partitions.items():
        parts.append(struct.pack(">h", len(topic)) + topic.encode("utf-8"))
        parts.append(struct.pack(">i", len(indexes)))
        parts += [struct.pack(">iq", index, _LATEST_TIMESTAMP) for index in indexes]
    return b"".join(parts)


def read_list_offsets(answer: bytes) -> list[tuple[str, int]]:
    """(topic, partition) of the partitions without an error in a v1 answer."""
    reader = _Reader(answer)
    served = []
    try:
        for _ in range(reader.take("i")):
            topic = reader.text()
            for _ in range(reader.take("i")):
                index = reader.take("i")
                if reader.take("h") == 0:
                    served.append((topic, index))
                reader.take("q")  # timestamp
                reader.take("q")  # offset
    except (struct.error, UnicodeDecodeError) as error:
        raise WireError(f"a ListOffsets answer cannot be read: {error}") from error
    return served


def describe_quorum_request() -> bytes:
    """Body of DescribeQuorum v0 for `__cluster_metadata` partition 0."""
    partitions = b"\x02" + struct.pack(">i", 0) + b"\x00"
    topic = bytes([len(_METADATA_TOPIC) + 1]) + _METADATA_TOPIC + partitions + b"\x00"
    return b"\x02" + topic + b"\x00"


def read_quorum_leader(answer: bytes) -> int:
    """Node id of the active controller, -1 if the answer names none or is an error."""
    reader = _Reader(answer)
    try:
        reader.take("b")  # tagged fields of the header
        if reader.take("h") != 0 or reader.varint() != 2:
            return -1
        reader.compact_text()
        if reader.varint() != 2:
            return -1
        reader.take("i")  # partition index
        error = reader.take("h")
        leader = reader.take("i")
    except (struct.error, UnicodeDecodeError) as error_seen:
        raise WireError(f"a DescribeQuorum answer cannot be read: {error_seen}") from error_seen
    return leader if error == 0 else -1


class BrokerView:
    """One connection to one broker. Every method raises OSError if the broker is gone."""

    def __init__(self, address: str, *, timeout_s: float = TIMEOUT_S) -> None:
        host, _, port = address.rpartition(":")
        plain = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._socket = encryption.wrapped(plain, host)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> BrokerView:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def topics(self, names: Sequence[str]) -> dict[str, dict[int, PartitionView]]:
        """The topics among `names` that this broker knows."""
        body = metadata_request(names)
        return read_metadata(self._call(_METADATA_KEY, _METADATA_VERSION, body, tags=b""))

    def answer_with_all_topics(self) -> bytes:
        """For `read_metadata`."""
        return self._call(_METADATA_KEY, _METADATA_VERSION, _ALL_TOPICS, tags=b"")

    def served(self, partitions: Mapping[str, Sequence[int]]) -> list[tuple[str, int]]:
        """The partitions that this broker serves as their leader now."""
        body = list_offsets_request(partitions)
        return read_list_offsets(
            self._call(_LIST_OFFSETS_KEY, _LIST_OFFSETS_VERSION, body, tags=b"")
        )

    def active_controller(self) -> int:
        """Node id of the active controller, -1 if there is none."""
        body = describe_quorum_request()
        return read_quorum_leader(self._call(_DESCRIBE_QUORUM_KEY, 0, body, tags=b"\x00"))

    def _call(self, key: int, version: int, body: bytes, *, tags: bytes) -> bytes:
        self._correlation_id += 1
        head = struct.pack(">hhih", key, version, self._correlation_id, len(_CLIENT_ID))
        message = head + _CLIENT_ID + tags + body
        self._socket.sendall(struct.pack(">i", len(message)) + message)
        (size,) = struct.unpack(">i", self._receive(4))
        if not 4 <= size <= _ANSWER_BYTES_MAX:
            raise WireError(f"an answer of {size} bytes")
        answer = self._receive(size)
        (correlation_id,) = struct.unpack_from(">i", answer)
        if correlation_id != self._correlation_id:
            raise WireError(f"answer {correlation_id} to request {self._correlation_id}")
        return answer[4:]

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts += part
        return bytes(parts)
