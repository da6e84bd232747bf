"""Writes the dead letters of share-partitions to the dead-letter topics of their groups (KIP-1191).

A dead letter goes to the partition with the number of its source, modulo the topic's partitions.
The broker produces it as a client would, so its user needs WRITE on the topic unless it is a super
user. An answer that is lost means that the dead letter is written again: it is there at least once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from kvorum.broker.config.current_configs import CurrentConfigs
from kvorum.broker.controller_channel.controller_api import ControllerChannel
from kvorum.broker.network.peers import Peers
from kvorum.broker.partition.replica import Replica
from kvorum.broker.share.core.dead_letters import KeyAndValue, Source, letter_batch, name_problem
from kvorum.broker.share.core.group_limits import copies_dead_letters, dead_letter_topic_of
from kvorum.broker.share.core.states import DeadLetters
from kvorum.broker.share_state.records import ShareKey
from kvorum.metadata.configs.topic_keys import DEAD_LETTERS_ENABLE
from kvorum.metadata.image.image import RESOURCE_GROUP, ClusterImage, TopicImage
from kvorum.metadata.requests.controller_requests import CreateTopics, NewTopic
from kvorum.metadata.rpc.calls import CREATE_TOPICS
from kvorum.runtime.clock import Clock
from kvorum.runtime.errors import CorruptData, ErrorCode, Rejected, error_code_of
from kvorum.storage.format.batch import BatchError, iter_headers, iter_records
from kvorum.storage.log.log import OffsetOutOfRange
from kvorum.wire.produce_codec import API as PRODUCE

_log = logging.getLogger(__name__)

_ORIGINAL_BYTES = 1 << 20
"""Bytes of the log that are read for one batch of dead letters, unless one batch has more."""
_PRODUCE_TIMEOUT_MS = 5_000
_CREATE_TIMEOUT_MS = 10_000


class DeadLetterWriter:
    """See the docstring of this module."""

    def __init__(
        self,
        *,
        brokers: CurrentConfigs,
        image: Callable[[], ClusterImage],
        controller: ControllerChannel,
        peers: Peers,
        clock: Clock,
    ) -> None:
        """brokers: the configs of this broker and of topics."""
        self._brokers = brokers
        self._image = image
        self._controller = controller
        self._peers = peers
        self._clock = clock

    async def write(
        self, key: ShareKey, replica: Replica, letters: Sequence[DeadLetters]
    ) -> int | Rejected:
        """Write the first of these dead letters, as many as fit into one batch.

        Returns the last offset that is written, or the reason why none is.
        """
        image = self._image()
        configs: Mapping[str, str] = image.configs.get((RESOURCE_GROUP, key.group_id), {})
        topic = await self._topic(image, configs)
        if isinstance(topic, Rejected):
            return topic
        source_topic = image.topics.get(key.topic_id)
        if source_topic is None:
            return Rejected(ErrorCode.UNKNOWN_TOPIC_ID, "the topic of the records is deleted")
        originals: Mapping[int, KeyAndValue] = {}
        if copies_dead_letters(configs):
            originals, last_offset = _originals(replica, letters)
            letters = _up_to(letters, last_offset)
        batch, last_offset = letter_batch(
            Source(key.group_id, source_topic.name, key.partition),
            letters,
            originals,
            now_ms=self._clock.wall_ms(),
            bytes_max=self._brokers.of_topic(topic.name).log.max_message_bytes,
        )
        refused = await self._produce(topic, key.partition % len(topic.partitions), batch)
        return last_offset if refused is None else refused

    async def _topic(
        self, image: ClusterImage, configs: Mapping[str, str]
    ) -> TopicImage | Rejected:
        """The group's dead-letter topic, if it is there and may have dead letters."""
        name = dead_letter_topic_of(configs)
        broker = self._brokers.broker
        problem = name_problem(name, broker.errors_deadletterqueue_topic_name_prefix)
        if problem is not None:
            return Rejected(ErrorCode.INVALID_CONFIG, problem)
        topic = image.topic(name)
        if topic is not None:
            if image.topic_configs(name).get(DEAD_LETTERS_ENABLE, "").strip().lower() == "true":
                return topic
            text = f"the dead-letter topic {name} has no {DEAD_LETTERS_ENABLE}=true"
            return Rejected(ErrorCode.INVALID_CONFIG, text)
        if not broker.errors_deadletterqueue_auto_create_topics_enable:
            text = (
                f"the dead-letter topic {name} does not exist, and "
                "errors.deadletterqueue.auto.create.topics.enable is false"
            )
            return Rejected(ErrorCode.INVALID_CONFIG, text)
        return await self._create(name)

    async def _create(self, name: str) -> Rejected:
        """Have the controller make the topic; it is used once the metadata have it."""
        topic = NewTopic(
            name=name,
            configs=((DEAD_LETTERS_ENABLE, "true"), ("message.timestamp.type", "CreateTime")),
        )
        reply = await self._controller.request(
            CREATE_TOPICS, CreateTopics(topics=(topic,)), _CREATE_TIMEOUT_MS
        )
        if isinstance(reply, Rejected):
            return reply
        made = reply[0]
        if made.error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return Rejected(ErrorCode.LEADER_NOT_AVAILABLE, f"{name} has been created just now")
        return Rejected(made.error, f"{name} cannot be created: {made.message}")

    async def _produce(self, topic: TopicImage, number: int, batch: bytes) -> Rejected | None:
        partition = topic.partitions[number]
        if not partition.has_leader:
            text = f"the partition {topic.name}-{number} has no leader"
            return Rejected(ErrorCode.LEADER_NOT_AVAILABLE, text)
        records = {"index": number, "records": batch}
        values = {
            "transactional_id": None,
            "acks": -1,
            "timeout": _PRODUCE_TIMEOUT_MS,
            "topic_data": [{"topic_id": topic.topic_id, "partition_data": [records]}],
        }
        answer = await self._peers.call(partition.leader, PRODUCE, PRODUCE.max_version, values)
        if answer is None:
            text = f"broker {partition.leader}, the leader of {topic.name}-{number}, did not answer"
            return Rejected(ErrorCode.NETWORK_EXCEPTION, text)
        rows = [row for one in answer.responses for row in one.partition_responses]
        error = error_code_of(rows[0].error_code) if rows else ErrorCode.UNKNOWN_SERVER_ERROR
        if error == ErrorCode.NONE:
            return None
        text = (rows[0].error_message if rows else None) or error.name
        return Rejected(error, f"{topic.name}-{number}: {text}")


def _originals(
    replica: Replica, letters: Sequence[DeadLetters]
) -> tuple[Mapping[int, KeyAndValue], int]:
    """Key and value of the first of these records, by offset, and the last offset looked for. What
    is not in the log any more, or cannot be read, is left out."""
    # Retention may have deleted the first of them meanwhile.
    first_offset = max(letters[0].first_offset, replica.log.start_offset)
    wanted = range(first_offset, letters[-1].last_offset + 1)
    originals: dict[int, KeyAndValue] = {}
    last_offset = -1
    if not wanted:
        return originals, letters[-1].last_offset
    try:
        found = replica.log.read(
            first_offset, bytes_max=_ORIGINAL_BYTES, end_offset=replica.core.high_watermark
        )
        data = found.read()
        for position, header in iter_headers(data):
            if header.base_offset >= wanted.stop:
                break
            last_offset = header.last_offset
            if header.is_control:
                continue
            for record in iter_records(data, position, header):
                if record.offset in wanted:
                    originals[record.offset] = (record.key, record.value)
    except (OSError, CorruptData, OffsetOutOfRange, BatchError) as failure:
        _log.warning("dead letters of records from %d on have no copies: %s", first_offset, failure)
        return {}, letters[-1].last_offset
    return originals, last_offset if last_offset >= 0 else letters[-1].last_offset


def _up_to(letters: Sequence[DeadLetters], last_offset: int) -> list[DeadLetters]:
    return [
        letter._replace(last_offset=min(letter.last_offset, last_offset))
        for letter in letters
        if letter.first_offset <= last_offset
    ]
