"""Reads messages of a topic from the partitions' leaders, as a consumer without a group. Blocks.

It commits nothing and joins nothing: the cluster keeps no trace of a reading. Uncommitted messages
of transactions are shown too, for a person who looks for a fault needs them. The page shows what
librdkafka hides: codecs, transactions and their markers. So these are requests of our own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from kvorum.client.cluster.fetches import FETCH_KEY, FETCH_VERSION, fetch_request
from kvorum.client.cluster.offsets import EARLIEST, LATEST, offsets_request
from kvorum.client.connection import KafkaConnection
from kvorum.client.current import current_security
from kvorum.client.failures import CommandFailed, check
from kvorum.client.rights import on_topic
from kvorum.console.core.message_rows import (
    DECODINGS,
    LIST_BYTES_MAX,
    WHOLE_BYTES_MAX,
    Found,
    end_position,
    records_in,
    row_of,
)
from kvorum.console.core.patch import Document
from kvorum.console.core.views import BadParameter, NoSuchTopic, NotThere, Parameters, whole
from kvorum.metadata.image.image import ClusterImage
from kvorum.storage.format.batch import BatchError

LIMIT_DEFAULT, LIMIT_MAX = 25, 100
FETCH_BYTES_MAX = 1 << 20
"""Limit of one Fetch request. A larger first batch arrives whole all the same, as in Kafka."""
SCAN_BYTES_MAX = 64 << 20
SCAN_S_MAX = 5.0
"""A page, or a search for a key, ends after so many bytes or seconds, and says where it stands."""

FROM = ("latest", "earliest", "offset", "time")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A page's request for messages.

    partition: None for all, with a key only.
    start: one of FROM, with `value` for an offset or a time (ms since 1970).
    before: the end of the page in place of a start.
    """

    topic: str
    partition: int | None
    start: str
    value: int
    before: int | None
    key: bytes | None
    limit: int
    decoding: str


def question_of(parameters: Parameters) -> Question:
    """The question in a page's parameters. Raises BadParameter."""
    start = parameters.get("from") or "latest"
    decoding = parameters.get("decode") or "auto"
    for name, value, known in (("from", start, FROM), ("decode", decoding, DECODINGS)):
        if value not in known:
            raise BadParameter(f"{name}={value[:40]} is none of {', '.join(known)}")
    key = parameters.get("key", "")
    is_all = parameters.get("partition") == "all"
    if is_all and not key:
        raise BadParameter("partition=all needs a key to search for; else name one partition")
    before = parameters.get("before")
    return Question(
        topic=parameters.get("topic", ""),
        partition=None if is_all else whole(parameters, "partition", 0),
        start=start,
        value=whole(parameters, "value", 0),
        before=whole(parameters, "before", 0) if before else None,
        key=_key_of(key) if key else None,
        limit=min(max(whole(parameters, "limit", LIMIT_DEFAULT), 1), LIMIT_MAX),
        decoding=decoding,
    )


def _key_of(text: str) -> bytes:
    """The bytes of a key: `0x` and hexadecimal digits, else UTF-8."""
    if text.startswith("0x"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            raise BadParameter(f"key={text[:40]} is not 0x and hexadecimal digits") from None
    return text.encode()


class _Budget:
    """The bytes and the time that one answer may still cost."""

    def __init__(self) -> None:
        self._deadline_s = time.monotonic() + SCAN_S_MAX
        self._bytes_left = SCAN_BYTES_MAX

    def take(self, data: bytes) -> bytes:
        self._bytes_left -= len(data)
        return data

    def is_spent(self) -> bool:
        return self._bytes_left <= 0 or time.monotonic() > self._deadline_s


class MessageReader:
    """One reading. Close it after its answer."""

    def __init__(self, image: ClusterImage, timeout_s: float) -> None:
        self._image = image
        self._timeout_s = timeout_s
        self._connections: dict[int, KafkaConnection] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def page(self, question: Question) -> Document:
        """The messages of a page. Raises NotThere, BadParameter, CommandFailed."""
        topic = self._image.topic(question.topic)
        if topic is None:
            raise NoSuchTopic(f"the cluster has no topic {question.topic!r}")
        numbers = sorted(topic.partitions)
        if question.partition is not None:
            if question.partition not in topic.partitions:
                raise NoSuchTopic(
                    f"topic {question.topic} has no partition {question.partition}; it has 0 to "
                    f"{numbers[-1]}"
                )
            numbers = [question.partition]
        if question.key is None:
            return self._browse(question, numbers[0])
        return self._search(question, numbers)

    def message(self, topic: str, partition: int, offset: int, decoding: str) -> Document:
        """One message, with up to WHOLE_BYTES_MAX bytes of key and value."""
        first, end = self._range(topic, partition)
        _check_offset(topic, partition, offset, first, end)
        data = self._fetch(topic, partition, offset)
        for found in self._records(data, offset):
            if found.record.offset == offset:
                return row_of(found, decoding, WHOLE_BYTES_MAX, in_lines=True)
            break
        raise NotThere(f"{topic}-{partition} has no message at offset {offset}: it was compacted")

    # --- a page, and a search -----------------------------------------------------------------

    def _browse(self, question: Question, partition: int) -> Document:
        topic = question.topic
        first, end = self._range(topic, partition)
        answer: Document = {"topic": topic, "partition": partition, "first": first, "end": end}
        start = self._start(question, partition, first, end)
        if start is None:
            note = "no message is that new; the newest are at the end"
            return {**answer, "start": end, "next": end, "rows": [], "note": note}
        stop = end if question.before is None else min(question.before, end)
        rows: list[Document] = []
        budget = _Budget()
        at = start
        while at < stop and len(rows) < question.limit:
            if budget.is_spent():
                answer["note"] = f"the messages are large: the page ends at offset {at}"
                break
            data = budget.take(self._fetch(topic, partition, at))
            reached = _next_offset(data, at, stop)
            for found in self._records(data, at):
                if found.record.offset >= stop:
                    break
                if len(rows) >= question.limit:
                    reached = found.record.offset
                    break
                rows.append(self._row(found, question, partition))
            at = reached
        return {**answer, "start": start, "next": at, "rows": rows}

    def _start(self, question: Question, partition: int, first: int, end: int) -> int | None:
        """The offset at which the page begins; None if no message is as new as the time asked."""
        if question.before is not None:
            return max(first, min(question.before, end) - question.limit)
        match question.start:
            case "earliest":
                return first
            case "latest":
                return max(first, end - question.limit)
            case "time":
                found = self._offset_at(question.topic, partition, question.value)
                return None if found < 0 else found
            case _:
                # The end itself is a page without messages: those to come.
                if question.value != end:
                    _check_offset(question.topic, partition, question.value, first, end)
                return question.value

    def _search(self, question: Question, partitions: list[int]) -> Document:
        """Messages with the key, partition by partition, until a limit is reached."""
        budget = _Budget()
        rows: list[Document] = []
        scanned, is_whole = 0, True
        ends: Document = {}
        for partition in partitions:
            first, end = self._range(question.topic, partition)
            if question.start == "latest":
                at = first
            else:
                start = self._start(question, partition, first, end)
                at = end if start is None else start
            while at < end and len(rows) < question.limit:
                if budget.is_spent():
                    break
                data = budget.take(self._fetch(question.topic, partition, at))
                reached = _next_offset(data, at, end)
                for found in self._records(data, at):
                    if len(rows) >= question.limit:
                        reached = found.record.offset
                        break
                    scanned += 1
                    if found.record.key == question.key and not found.header.is_control:
                        rows.append(self._row(found, question, partition))
                at = reached
            ends = {"partition": partition, "first": first, "end": end, "start": at, "next": at}
            if at < end:
                is_whole = False
                break
        note = f"{len(rows)} of {scanned:,} messages looked at have the key"
        if not is_whole:
            note += (
                f"; the search stopped at offset {ends['next']} of partition {ends['partition']}"
            )
        return {"topic": question.topic, **ends, "rows": rows, "note": note, "is_search": True}

    def _row(self, found: Found, question: Question, partition: int) -> Document:
        return {"partition": partition, **row_of(found, question.decoding, LIST_BYTES_MAX)}

    @staticmethod
    def _records(data: bytes, first: int) -> Any:
        try:
            yield from records_in(data, first)
        except BatchError as error:
            raise CommandFailed(f"the messages cannot be read: {error}") from error

    # --- requests -----------------------------------------------------------------------------

    def _leader(self, topic: str, partition: int) -> KafkaConnection:
        found = self._image.topic(topic)
        state = None if found is None else found.partitions.get(partition)
        if state is None:
            raise NoSuchTopic(f"the cluster has no partition {topic}-{partition}")
        broker = self._image.brokers.get(state.leader)
        if broker is None:
            raise CommandFailed(f"{topic}-{partition} has no leader now, so nothing can be read")
        connection = self._connections.get(state.leader)
        if connection is None:
            endpoint = broker.client_endpoint(current_security().protocol)
            connection = KafkaConnection([(endpoint.host, endpoint.port)], self._timeout_s)
            self._connections[state.leader] = connection
        return connection

    def _range(self, topic: str, partition: int) -> tuple[int, int]:
        """(log start offset, high watermark)."""
        first = self._offset_at(topic, partition, EARLIEST)
        return first, self._offset_at(topic, partition, LATEST)

    def _offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        values = offsets_request({(topic, partition): timestamp_ms})
        reply = self._leader(topic, partition).call("list_offsets", 2, 7, values, flexible=True)
        found = reply.topics[0].partitions[0]
        right = on_topic("DESCRIBE", topic)
        check(found.error_code, None, f"offsets of {topic}-{partition}", right)
        return int(found.offset)

    def _fetch(self, topic: str, partition: int, offset: int) -> bytes:
        """Whole batches from the one with `offset` on."""
        values = fetch_request({(topic, partition): (offset, -1)}, bytes_max=FETCH_BYTES_MAX)
        leader = self._leader(topic, partition)
        reply = leader.call("fetch", FETCH_KEY, FETCH_VERSION, values, flexible=True)
        check(reply.error_code, None, f"fetch of {topic}-{partition}")
        found = reply.responses[0].partitions[0]
        subject = f"fetch of {topic}-{partition} at offset {offset}"
        check(found.error_code, None, subject, on_topic("READ", topic))
        return bytes(found.records or b"")


def _next_offset(data: bytes, at: int, stop: int) -> int:
    """The offset behind the batches of an answer to a fetch at `at`, at most `stop`. `stop` if the
    answer has none, so that a reading ends.

    The last record's offset does not tell it: records behind it may have been compacted away, and
    the leader would send the same batch again.
    """
    reached = end_position(data, at)
    return min(reached, stop) if reached > at else stop


def _check_offset(topic: str, partition: int, offset: int, first: int, end: int) -> None:
    """Raise NotThere unless first <= offset < end."""
    if first <= offset < end:
        return
    held = f"it has {first} to {end - 1}" if first < end else "it is empty"
    raise NotThere(f"{topic}-{partition} has no offset {offset}; {held}")
