"""librdkafka's clients, opened and asked: topics, partitions and offsets for the driver.

Errors of the library become sentences here; no other module of the source reads its error codes but
`kvorum.analytics.kafka_source.fetch` and `kvorum.analytics.kafka_source.write`.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from kvorum.analytics.kafka_source import offsets as positions
from kvorum.analytics.kafka_source.client_settings import (
    BOOTSTRAP,
    PREFIX,
    admin_settings,
    nearest_setting,
)
from kvorum.analytics.kafka_source.errors import OptionRefused, ReadFailed
from kvorum.analytics.kafka_source.options import Assigned, Matching, ReadOptions, Subscribed

_Settings = Mapping[str, str | int | float | bool]
_Answer = TypeVar("_Answer")

# The class has no types.
_spec: Any = OffsetSpec
_EARLIEST = _spec.earliest()
_LATEST = _spec.latest()

_UNREACHED = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN})
_NO_SUCH_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})


def open_consumer(options: ReadOptions) -> Any:
    """A consumer with a group id of its own. Raises OptionRefused for settings that librdkafka
    refuses."""
    group = f"{options.group_id_prefix}-{uuid.uuid4()}"
    return _open(Consumer, {"group.id": group, **options.settings})


def open_producer(settings: _Settings) -> Any:
    """A producer. Raises OptionRefused for settings that librdkafka refuses."""
    return _open(Producer, settings)


def check_consumer(options: ReadOptions) -> None:
    """Raise OptionRefused for settings that librdkafka refuses. No connection is made."""
    open_consumer(options).close()


def check_producer(settings: _Settings) -> None:
    """Raise OptionRefused for settings that librdkafka refuses. No connection is made."""
    open_producer(settings)


def _open(kind: Callable[[dict[str, Any]], Any], settings: _Settings) -> Any:
    try:
        return kind(dict(settings))
    except KafkaException as error:
        text = error.args[0].str()
        found = re.search(r'configuration property:? "([^"]+)"', text)
        hint = ""
        if found and text.startswith("No such"):
            hint = nearest_setting(found[1])
        elif found:
            hint = f"; correct {PREFIX}{found[1]}"
        raise OptionRefused(f"librdkafka refuses an option {PREFIX}*: {text}{hint}") from error


class TopicsClient:
    """The driver's view of the topics of a query. Opens connections when it is first asked."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._servers = str(options.settings[BOOTSTRAP])
        self._timeout_s = options.api_timeout_ms / 1000
        self._admin = AdminClient(admin_settings(options.settings))
        is_committed = options.settings.get("isolation.level") != "read_uncommitted"
        self._isolation = (
            IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
        )

    def partitions(self, *, may_be_missing: bool = False) -> set[positions.TopicPartition]:
        """The partitions that the options name, as they are now.

        may_be_missing: a topic that does not exist has no partitions; otherwise ReadFailed.
        Raises ReadFailed if the cluster gives no answer.
        """
        match self._options.topics:
            case Subscribed(topics=topics):
                return self._partitions_of(topics, may_be_missing=may_be_missing)
            case Matching(pattern=pattern):
                return self._partitions_matching(pattern)
            case Assigned(partitions=partitions):
                topics = tuple(sorted({topic for topic, _ in partitions}))
                there = self._partitions_of(topics, may_be_missing=may_be_missing)
                missing = set(partitions) - there
                if missing and not may_be_missing:
                    raise ReadFailed(
                        f"assign names {positions.names_of(missing)}, which the cluster at "
                        f"{self._servers} does not have; correct the option assign"
                    )
                return set(partitions) & there

    def earliest(
        self, partitions: Iterable[positions.TopicPartition]
    ) -> dict[positions.TopicPartition, int]:
        """The log start offsets. Raises ReadFailed."""
        return self._offsets(dict.fromkeys(partitions, _EARLIEST))

    def latest(
        self, partitions: Iterable[positions.TopicPartition]
    ) -> dict[positions.TopicPartition, int]:
        """The end offsets; with read_committed the last stable offsets. Raises ReadFailed."""
        return self._offsets(dict.fromkeys(partitions, _LATEST))

    def high_watermarks(
        self, partitions: Iterable[positions.TopicPartition]
    ) -> dict[positions.TopicPartition, int]:
        """The end offsets, those of open transactions included. Raises ReadFailed."""
        asked = dict.fromkeys(partitions, _LATEST)
        return self._offsets(asked, isolation=IsolationLevel.READ_UNCOMMITTED)

    def at_timestamps(
        self, timestamps_ms: Mapping[positions.TopicPartition, int]
    ) -> dict[positions.TopicPartition, int | None]:
        """The offset of the first record with this timestamp or a later one; None: there is none.

        Raises ReadFailed."""
        found = self._offsets(
            {key: _spec.for_timestamp(value) for key, value in timestamps_ms.items()}
        )
        return {key: offset if offset >= 0 else None for key, offset in found.items()}

    def _partitions_of(
        self, topics: Iterable[str], *, may_be_missing: bool
    ) -> set[positions.TopicPartition]:
        # describe_topics never creates a topic; list_topics of one topic may.
        answers = self._admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=self._timeout_s
        )
        found: set[positions.TopicPartition] = set()
        for topic, answer in answers.items():
            try:
                description = self._ask(answer.result)
            except KafkaException as error:
                if error.args[0].code() not in _NO_SUCH_TOPIC:
                    raise ReadFailed(
                        f"topic {topic} cannot be described by the cluster at {self._servers}: "
                        f"{error.args[0].str()}; correct the topic's name or its permissions"
                    ) from error
                if not may_be_missing:
                    raise ReadFailed(
                        f"topic {topic} does not exist in the cluster at {self._servers}; create "
                        "it, or correct the option that names it"
                    ) from error
            else:
                found |= {(topic, partition.id) for partition in description.partitions}
        return found

    def _partitions_matching(self, pattern: str) -> set[positions.TopicPartition]:
        listed = self._ask(lambda: self._admin.list_topics(timeout=self._timeout_s))
        names = [name for name in listed.topics if re.fullmatch(pattern, name)]
        if not names:
            return set()
        answers = self._admin.describe_topics(
            TopicCollection(names), request_timeout=self._timeout_s
        )
        found: set[positions.TopicPartition] = set()
        for name, answer in answers.items():
            try:
                description = self._ask(answer.result)
            except KafkaException as error:
                # The topic was deleted between the two requests.
                if error.args[0].code() in _NO_SUCH_TOPIC:
                    continue
                raise ReadFailed(
                    f"topic {name} cannot be described by the cluster at {self._servers}: "
                    f"{error.args[0].str()}; narrow subscribePattern"
                ) from error
            if not description.is_internal:
                found |= {(name, partition.id) for partition in description.partitions}
        return found

    def _offsets(
        self, asked: Mapping[positions.TopicPartition, Any], *, isolation: Any = None
    ) -> dict[positions.TopicPartition, int]:
        """Ask for all, and again for those whose leader is just changing."""
        found: dict[positions.TopicPartition, int] = {}
        failed: dict[positions.TopicPartition, KafkaException] = {}
        for attempt in range(self._options.offset_retries + 1):
            if attempt:
                time.sleep(self._options.offset_retry_interval_ms / 1000)
            failed = {}
            left = {key: spec for key, spec in asked.items() if key not in found}
            for key, answer in self._request(left, isolation or self._isolation).items():
                try:
                    found[key] = self._ask(answer.result).offset
                except KafkaException as error:
                    failed[key] = error
            if not failed:
                return found
        partition = min(failed)
        cause = failed[partition]
        raise ReadFailed(
            f"the offsets of {positions.name_of(partition)} are not known after "
            f"{self._options.offset_retries + 1} attempts: {cause.args[0].str()}; check that the "
            "partition has a leader, or raise fetchOffset.numRetries"
        ) from cause

    def _request(
        self, asked: Mapping[positions.TopicPartition, Any], isolation: Any
    ) -> dict[positions.TopicPartition, Any]:
        if not asked:
            return {}
        answers = self._admin.list_offsets(
            {TopicPartition(topic, number): spec for (topic, number), spec in asked.items()},
            isolation_level=isolation,
            request_timeout=self._timeout_s,
        )
        return {(key.topic, key.partition): answer for key, answer in answers.items()}

    def _ask(self, ask: Callable[[], _Answer]) -> _Answer:
        """The answer. Raises ReadFailed if no broker answers; other KafkaExceptions pass."""
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() in _UNREACHED:
                raise ReadFailed(
                    f"no broker at {self._servers} answered within {self._timeout_s:g} s; check "
                    "kafka.bootstrap.servers and that the cluster runs"
                ) from error
            raise
