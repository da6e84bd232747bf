"""Reading as a member of a share group (KIP-932), which librdkafka speaks: each record is one
member's, and is accepted once it is printed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, ShareConsumer

from kvorum.cli.records.group_types import refused_by_type
from kvorum.cli.records.reading import POLL_S, is_transient
from kvorum.cli.records.share_start import start_hint
from kvorum.cli.records.text_output import Record
from kvorum.client.cluster.brokers import Brokers
from kvorum.client.failures import CommandFailed, refusal, warn
from kvorum.client.rights import on_group

IDLE_S = 5.0
"""Without --follow, time without a record after which the reading ends: a queue has no end."""


_POLL_MAX = 500
"""librdkafka's default of max.poll.records."""


class ShareReading:
    """Reads what the group's coordinator and the partitions' leaders give to this member."""

    def __init__(
        self,
        brokers: Brokers,
        topics: Sequence[str],
        client: Mapping[str, Any],
        group: str,
        *,
        is_endless: bool,
        records_max: int | None = None,
    ) -> None:
        """client: librdkafka's settings of the connection.
        records_max: how many records are wanted in all; what is fetched beyond goes back.
        """
        found = brokers.existing(list(topics), operation="READ")
        hint = start_hint(brokers, group, found)
        if hint is not None:
            warn(hint)
        self._brokers = brokers
        self._group = group
        self._is_endless = is_endless
        self._is_in_library = False
        self._is_stopped = False
        self._patience_s = brokers.timeout_s
        self._consumer = ShareConsumer(
            {
                **client,
                "group.id": group,
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": min(records_max or _POLL_MAX, _POLL_MAX),
                # librdkafka warns at each start that its share consumer is a preview.
                "log_level": 3,
            }
        )
        self._consumer.subscribe(list(topics))

    def batches(self) -> Iterator[list[Record]]:
        """Yield records until none comes any more. Those of a yield count as printed when the next
        one is asked for."""
        last_s = time.monotonic() + self._patience_s
        while self._is_endless or time.monotonic() < last_s:
            records = self._poll()
            if records:
                yield records
                self.printed(records)
                last_s = time.monotonic() + IDLE_S

    def printed(self, records: Sequence[Record]) -> None:
        """Accept these records. The others of the last yield go back to the group at the end."""
        for record in records:
            self._consumer.acknowledge(record)

    def on_signal(self, *_: object) -> None:
        """End the reading. Raises KeyboardInterrupt at once, unless librdkafka is at work."""
        if not self._is_in_library or self._is_stopped:
            raise KeyboardInterrupt
        self._is_stopped = True

    def close(self) -> None:
        """Tell the brokers what was accepted, and leave the group."""
        try:
            for where, error in self._consumer.commit_sync(self._patience_s).items():
                if error is not None:
                    raise CommandFailed(
                        f"records of {where} were not accepted: {error}; they come again"
                    )
        except KafkaException as error:
            raise self._refused(error.args[0]) from error
        finally:
            self._consumer.close()

    def _poll(self) -> list[Record]:
        self._is_in_library = True
        try:
            messages = list(self._consumer.poll(POLL_S))
        except KafkaException as error:
            raise self._refused(error.args[0]) from error
        finally:
            self._is_in_library = False
        if self._is_stopped:
            raise KeyboardInterrupt
        for message in messages:
            failure = message.error()
            if failure is not None and not is_transient(failure):
                raise self._refused(failure)
        return [message for message in messages if message.error() is None]

    def _refused(self, error: KafkaError) -> CommandFailed:
        if error.code() < 0:
            return CommandFailed(f"share group {self._group}: {error.str()}")
        if error.code() == KafkaError.UNSUPPORTED_VERSION:
            return CommandFailed(
                f"share group {self._group}: share groups are off in this cluster; switch them on "
                "with kvorum features upgrade --feature share.version=2"
            )
        if error.code() == KafkaError.GROUP_ID_NOT_FOUND:
            refused = refused_by_type(self._brokers, self._group, "--share-group")
            if refused is not None:
                return refused
        rights = (on_group("READ", self._group),) if "GROUP" in error.name() else ()
        return refusal(error.code(), None, f"share group {self._group}", *rights)
