"""Sends records to the partitions of one topic, by librdkafka.

Kvorum's own requests before it tell a missing topic, a missing right and a missing quorum in the
words of the other commands; librdkafka would try until its deadline.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError
from confluent_kafka import Producer as LibraryProducer

from kvorum.cli.records.text_input import BadRecord, NewRecord
from kvorum.client.cluster.brokers import RETRY_PAUSE_S, Brokers
from kvorum.client.connection import BrokerGone
from kvorum.client.failures import EXIT_FAILED, CommandFailed, check, exit_code_of
from kvorum.client.groups.coordinator import MOVING
from kvorum.client.rights import is_missing_right, on_topic, way_out
from kvorum.metadata.image.image import RESOURCE_TOPIC
from kvorum.runtime.errors import ErrorCode

HANDED_OVER_RECORDS = 1_000
"""Records that one call hands to librdkafka."""
QUEUED_RECORDS_MAX = 90_000
"""Below librdkafka's own limit (queue.buffering.max.messages), at which it would refuse some."""
QUEUED_BYTES_MAX = 64 << 20
MESSAGE_BYTES_MAX = 100 << 20
"""Kafka's own limit of a request; the topic's limit is the broker's to check."""
BATCH_BYTES_MAX = 512 << 10
WAIT_S = 0.1
"""One wait in librdkafka, which no signal interrupts."""
ACKS_ALL, ACKS_NONE = -1, 0
_ANY_PARTITION = -1
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_IN_FLIGHT_REQUESTS = {True: 5, False: 1}
"""By idempotence. Without it, a retry of the first of two batches would change their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """The way in which records are sent.

    acks: -1 (all in-sync replicas), 1 or 0.
    compression: librdkafka's name of a codec.
    delivery_timeout_s: from the reading of a record to the end of its retries.
    """

    acks: int = ACKS_ALL
    compression: str = "none"
    is_idempotent: bool = True
    delivery_timeout_s: float = 120.0


@dataclass(slots=True)
class Delivered:
    """The records that a partition has received. Offsets are None with acks 0, which has no
    answers."""

    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Undelivered:
    """The first record that cannot be delivered. size_bytes: of its value."""

    partition: int
    error: KafkaError
    size_bytes: int


class StoppedEarly(Exception):
    """The time that `Producer.stop_at` gave is over, and records are not acknowledged."""


class Producer:
    """Sends records to one topic. Every method raises CommandFailed for a record that cannot be
    delivered."""

    def __init__(
        self, brokers: Brokers, client: Mapping[str, Any], topic: str, settings: ProducerSettings
    ) -> None:
        """client: librdkafka's settings of the connection."""
        self.delivered: dict[int, Delivered] = {}
        self._brokers = brokers
        self._topic = topic
        self._settings = settings
        self._partitions = set(brokers.existing([topic], operation="WRITE")[topic].leaders)
        if settings.is_idempotent:
            self._require_identity()
        self._waiting: list[dict[str, Any]] = []
        self._of_waiting: int | None = None
        self._queued = 0
        self._queued_bytes = 0
        self._has_offsets = settings.acks != ACKS_NONE
        self._stop_s = math.inf
        self._undelivered: _Undelivered | None = None
        self._trouble = ""
        self._library = LibraryProducer({**client, **self._library_settings()})

    def _library_settings(self) -> dict[str, Any]:
        settings = self._settings
        timeout_ms = min(int(settings.delivery_timeout_s * 1000), 2**31 - 1)
        return {
            "acks": settings.acks,
            "enable.idempotence": settings.is_idempotent,
            "max.in.flight.requests.per.connection": _IN_FLIGHT_REQUESTS[settings.is_idempotent],
            "compression.type": settings.compression,
            "message.timeout.ms": timeout_ms,
            "message.max.bytes": MESSAGE_BYTES_MAX,
            "batch.size": self._batch_bytes(),
            "queue.buffering.max.kbytes": 2**31 - 1,
            # The hash of Kafka's own clients.
            "partitioner": "murmur2_random",
            "error_cb": self._note_trouble,
        }

    @property
    def records(self) -> int:
        """Records that are acknowledged; with acks 0, sent."""
        return sum(row.records for row in self.delivered.values())

    @property
    def unacknowledged(self) -> int:
        """Records that were added and are not acknowledged; some may be stored all the same."""
        return len(self._waiting) + self._queued

    def stop_at(self, stop_s: float) -> None:
        """After this monotonic time, methods that wait raise StoppedEarly."""
        self._stop_s = stop_s

    def add(self, record: NewRecord) -> None:
        """Send a record, soon. Raises BadRecord for one that cannot be sent."""
        key, value, headers, partition, timestamp_ms = record
        if partition is not None and partition not in self._partitions:
            raise BadRecord(
                f"{self._topic}-{partition}: there is no such partition; {self._topic} has "
                f"{len(self._partitions)}"
            )
        if headers or timestamp_ms is not None:
            self._add_alone(record)
            return
        if partition != self._of_waiting:
            self.send()
            self._of_waiting = partition
        self._waiting.append({"value": value, "key": key})
        if value is not None:
            self._queued_bytes += len(value)
        if len(self._waiting) >= HANDED_OVER_RECORDS or self._queued_bytes > QUEUED_BYTES_MAX:
            self.send()

    def add_values(self, values: list[bytes], key: bytes | None, partition: int | None) -> None:
        """Send records that differ only in their values, as `add` does, and faster."""
        self.add(NewRecord(key, values[0], (), partition))
        for at in range(1, len(values), HANDED_OVER_RECORDS):
            part = values[at : at + HANDED_OVER_RECORDS]
            self._waiting += [{"value": value, "key": key} for value in part]
            self._queued_bytes += sum(map(len, part))
            if len(self._waiting) >= HANDED_OVER_RECORDS or self._queued_bytes > QUEUED_BYTES_MAX:
                self.send()

    def _add_alone(self, record: NewRecord) -> None:
        """Send a record with parts that librdkafka takes one record at a time."""
        more: dict[str, Any] = {}
        if record.headers:
            more["headers"] = _text_names(record.headers)
        if record.timestamp_ms == 0:
            raise BadRecord("timestamp 0: librdkafka takes it for now; 1 is the earliest")
        if record.timestamp_ms is not None:
            more["timestamp"] = record.timestamp_ms
        if record.partition is not None:
            more["partition"] = record.partition
        self.send()
        self._queued += 1
        self._queued_bytes += len(record.value or b"")
        self._library.produce(
            self._topic, record.value, record.key, on_delivery=self._on_delivery, **more
        )

    def send(self) -> None:
        """Hand the waiting records over, once librdkafka has room for them."""
        library = self._library
        library.poll(0)
        while self._queued > QUEUED_RECORDS_MAX or (
            self._queued_bytes > QUEUED_BYTES_MAX and self._queued
        ):
            self._wait()
        self._require_delivery()
        if not self._waiting:
            return
        rows, self._waiting = self._waiting, []
        where = _ANY_PARTITION if self._of_waiting is None else self._of_waiting
        taken = library.produce_batch(
            self._topic, rows, partition=where, on_delivery=self._on_delivery
        )
        self._queued += taken
        if taken < len(rows):
            error = next(row["_error"] for row in rows if "_error" in row)
            raise CommandFailed(f"{self._topic}: {error.str()}", EXIT_FAILED)

    def finish(self) -> None:
        """Send what is left, and wait until every record is acknowledged."""
        self.send()
        while self._queued:
            self._wait()
        self._require_delivery()

    def close(self) -> None:
        """Give up what is not sent."""
        self._library.purge()
        self._library.flush(WAIT_S)

    def _wait(self) -> None:
        if time.monotonic() > self._stop_s:
            raise StoppedEarly
        self._library.poll(WAIT_S)
        self._require_delivery()

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        self._queued -= 1
        self._queued_bytes -= len(message)
        if error is not None:
            if self._undelivered is None:
                self._undelivered = _Undelivered(
                    partition=message.partition(), error=error, size_bytes=len(message)
                )
            return
        row = self.delivered.get(message.partition())
        if row is None:
            row = self.delivered[message.partition()] = Delivered()
        row.records += 1
        offset = message.offset()
        # A batch that the leader had already has no offset in a leader's answer.
        if offset is not None and offset >= 0 and self._has_offsets:
            if row.first_offset is None:
                row.first_offset = offset
            row.last_offset = offset

    def _note_trouble(self, error: KafkaError) -> None:
        self._trouble = error.str()

    # --- failures ----------------------------------------------------------------------------

    def _require_delivery(self) -> None:
        found = self._undelivered
        if found is None:
            return
        exit_code = EXIT_FAILED
        if found.error.code() == KafkaError._MSG_TIMED_OUT:
            reason = (
                f"not acknowledged within {self._settings.delivery_timeout_s:g} s: "
                f"{self._reason_of_silence(found.partition)}"
            )
        elif found.error.code() < 0:
            reason = found.error.str()
        else:
            name = name_of(found.error)
            reason = f"{name}: {self._advice(name, found)}"
            exit_code = exit_code_of(name)
        text = f"{self._topic}-{found.partition}: {reason}"
        raise CommandFailed(f"{text}; {self.records} records were acknowledged", exit_code)

    def _reason_of_silence(self, partition: int) -> str:
        try:
            found = self._brokers.topics([self._topic]).get(self._topic)
            if found is None:
                return f"topic {self._topic} is gone"
            if found.leaders.get(partition, -1) < 0:
                return "the partition has no leader"
            self._brokers.to(found.leaders[partition])
        except BrokerGone as error:
            return str(error)
        return self._trouble or "its leader does not answer"

    def _advice(self, name: str, found: _Undelivered) -> str:
        if found.error.code() in _TOO_LARGE:
            size = found.size_bytes
            return f"a record of about {size} bytes is above the topic's max.message.bytes"
        if is_missing_right(name):
            return way_out(name, on_topic("WRITE", self._topic))
        return found.error.str()

    # --- requests of our own -----------------------------------------------------------------

    def _require_identity(self) -> None:
        """Raise CommandFailed if the cluster gives no producer id."""
        values = {
            "transactional_id": None,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        deadline_s = time.monotonic() + self._brokers.timeout_s
        while True:
            reply: Any = self._brokers.call("init_producer_id", 22, 4, values)
            is_retried = reply.error_code in _RETRIED
            if not is_retried or time.monotonic() > deadline_s:
                break
            time.sleep(RETRY_PAUSE_S)
        if is_retried:
            # A broker gets producer ids from the controllers. Its description of the quorum says
            # better why it got none.
            metadata = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
            told = self._brokers.call("describe_quorum", 55, 2, {"topics": [metadata]})
            check(told.error_code, told.error_message, "no quorum")
        # KIP-679: without transactions, any right to write is enough for a producer id.
        subject = f"producer of {self._topic}"
        check(reply.error_code, None, subject, on_topic("WRITE", self._topic))

    def _batch_bytes(self) -> int:
        """The limit of a batch: the topic's, if the user may read it, for librdkafka does not halve
        a batch that is refused."""
        asked = {
            "resource_type": RESOURCE_TOPIC,
            "resource_name": self._topic,
            "configuration_keys": ["max.message.bytes"],
        }
        values = {
            "resources": [asked], "include_synonyms": False, "include_documentation": False,
        }  # fmt: skip
        reply = self._brokers.call("describe_configs", 32, 4, values)
        limits = [int(entry.value) for result in reply.results for entry in result.configs]
        return max(min([*limits, BATCH_BYTES_MAX]), 1)


def name_of(error: KafkaError) -> str:
    """Kafka's name of an error, which is not always librdkafka's."""
    try:
        return ErrorCode(error.code()).name
    except ValueError:
        return str(error.name())


_RETRIED = MOVING | {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.THROTTLING_QUOTA_EXCEEDED}


def _text_names(headers: tuple[tuple[bytes, bytes | None], ...]) -> list[tuple[str, bytes | None]]:
    try:
        return [(name.decode(), value) for name, value in headers]
    except UnicodeDecodeError as error:
        raise BadRecord(f"the name of a header must be UTF-8, as in Kafka: {error}") from error
