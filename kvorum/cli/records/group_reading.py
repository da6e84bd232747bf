"""Reading as a member of a group, in the consumer protocol (KIP-848), which librdkafka speaks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kvorum.cli.records.group_types import refused_by_type
from kvorum.cli.records.reading import Range, Reading, Wanted, is_transient, ranges_of
from kvorum.cli.records.text_output import Record
from kvorum.client.cluster.brokers import Brokers, Partition, Unavailable
from kvorum.client.connection import BrokerGone
from kvorum.client.failures import CommandFailed, refusal, warn
from kvorum.client.groups.group_offsets import GroupOffsets
from kvorum.client.rights import on_group
from kvorum.runtime.errors import ErrorCode

COMMIT_EACH_S = 1.0
RETRY_EACH_S = 1.0
"""Time between two attempts to begin partitions whose brokers do not answer."""
BEGIN_S_MAX = 60.0
_UNSTABLE_OFFSETS = (ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.STALE_MEMBER_EPOCH)
_NOT_ITS_OWN = (
    ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.STALE_MEMBER_EPOCH,
    KafkaError._ASSIGNMENT_LOST,
)  # fmt: skip
"""Errors of a commit of a member whose partitions were given to another one."""
_LEFT_OUT = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, KafkaError._NO_OFFSET)


class GroupReading(Reading):
    """Reads the assigned partitions, from their committed offsets on, and commits its positions."""

    def __init__(
        self, brokers: Brokers, wanted: Wanted, client: Mapping[str, Any], group: str
    ) -> None:
        # The next offset to print of each partition that is read, and the group's offsets.
        self._positions: dict[Partition, int] = {}
        self._committed: dict[Partition, int] = {}
        self._commit_s = time.monotonic() + COMMIT_EACH_S
        self._began_s = time.monotonic()
        self._is_left_out = False
        self._silent_since_s: float | None = None
        self._has_warned = False
        self._failure: CommandFailed | None = None
        brokers.existing(list(wanted.topics), operation="READ")
        self._offsets = GroupOffsets(brokers, group)
        super().__init__(brokers, wanted, client, group)
        self._consumer.subscribe(
            list(wanted.topics), on_assign=self._begin, on_revoke=self._give_up, on_lost=self._lose
        )

    def _more_settings(self) -> dict[str, Any]:
        return {
            "group.protocol": "consumer",
            "on_commit": self._on_commit,
            "error_cb": self._note_silence,
        }

    def printed(self, records: Sequence[Record]) -> None:
        for record in records:
            partition = (record.topic(), record.partition())
            if partition in self._positions:
                self._positions[partition] = record.offset() + 1

    def close(self) -> None:
        """Commit the positions, and leave the group."""
        try:
            error = self._commit_now()
            if self._failure is not None:
                raise self._failure
            if error is not None:
                raise BrokerGone(
                    f"offsets of group {self._group} were not committed: {error.str()}"
                )
        finally:
            self._consumer.close()

    def _is_over(self) -> bool:
        """Without --follow, a reading ends when each assigned partition is at its end. A member
        without partitions waits for as long as other members may need to give some up."""
        if self._wanted.is_endless:
            return False
        return self._is_left_out or (bool(self._ends) and super()._is_over())

    def _reach(self, partition: Partition, position: int) -> None:
        if partition in self._positions:
            self._positions[partition] = max(position, self._positions[partition])
        super()._reach(partition, position)

    # --- an assignment -----------------------------------------------------------------------

    def _begin(self, _: Any, assigned: list[TopicPartition]) -> None:
        """Read these from the group's offsets, or from where the options begin."""
        deadline_s = time.monotonic() + BEGIN_S_MAX
        partitions = [(each.topic, each.partition) for each in assigned]
        while True:
            try:
                committed = self._committed_of(assigned)
                found = ranges_of(self._brokers, self._wanted, partitions)
                break
            except (BrokerGone, Unavailable) as error:
                if not self._wanted.is_endless or time.monotonic() > deadline_s:
                    raise
                self._warn(error)
                time.sleep(RETRY_EACH_S)
        begun = []
        for partition, wanted in found.items():
            own = Range(first=committed.get(partition, wanted.first), end=wanted.end)
            is_over = own.end is not None and own.first >= own.end
            self._ends[partition] = 0 if is_over else own.end
            self._positions[partition] = own.first
            begun.append(TopicPartition(*partition, own.first))
        self._committed.update(committed)
        self._consumer.incremental_assign(begun)

    def _committed_of(self, assigned: list[TopicPartition]) -> dict[Partition, int]:
        deadline_s = time.monotonic() + self._brokers.timeout_s
        while True:
            try:
                rows = self._consumer.committed(assigned, timeout=self._brokers.timeout_s)
            except KafkaException as error:
                code = error.args[0].code()
                if code not in _UNSTABLE_OFFSETS or time.monotonic() > deadline_s:
                    raise self._refused(error.args[0], "offsets of ") from error
                # A transaction that commits offsets is open: it ends soon.
                time.sleep(0.1)
                continue
            for row in rows:
                if row.error is not None:
                    raise self._refused(row.error, "offsets of ")
            return {(row.topic, row.partition): row.offset for row in rows if row.offset >= 0}

    def _give_up(self, _: Any, revoked: list[TopicPartition]) -> None:
        self._commit_now()
        self._forget(revoked)

    def _lose(self, _: Any, lost: list[TopicPartition]) -> None:
        self._warn_of_loss()
        self._forget(lost)

    def _forget(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            partition = (each.topic, each.partition)
            for known in (self._ends, self._positions, self._committed):
                known.pop(partition, None)

    # --- commits -----------------------------------------------------------------------------

    def _changed(self) -> list[TopicPartition]:
        """Every position that the group does not have, as Kafka's consumer commits it, even one at
        which nothing was printed.

        Bad sequence otherwise, with `-o end`: 1. Member A begins partition 0 at its end, offset 5,
        and prints nothing. 2. A leaves. 3. Record 5 is written. 4. Member B finds no offset, and
        begins at the end, 6.
        """
        return [
            TopicPartition(*partition, at)
            for partition, at in self._positions.items()
            if self._committed.get(partition) != at
        ]

    def _commit_now(self) -> KafkaError | None:
        """Commit, and wait for it. Returns the error of a coordinator that is away for now."""
        changed = self._changed()
        if not changed:
            return None
        try:
            rows = self._consumer.commit(offsets=changed, asynchronous=False)
        except KafkaException as error:
            found: KafkaError = error.args[0]
            self._on_commit(found, [])
            return found if is_transient(found) else None
        self._note_commits(rows)
        return None

    def _on_commit(self, error: KafkaError | None, rows: list[TopicPartition]) -> None:
        if error is None or error.code() in _LEFT_OUT:
            self._note_commits(rows)
        elif error.code() in _NOT_ITS_OWN:
            self._warn_of_loss()
        elif is_transient(error):
            self._note_silence(error)
        else:
            what = f"offsets of group {self._group} were not committed"
            self._failure = refusal(error.code(), None, what)

    def _note_commits(self, rows: list[TopicPartition]) -> None:
        for row in rows:
            if row.error is None:
                self._committed[row.topic, row.partition] = row.offset
            else:
                self._on_commit(row.error, [])

    # --- the coordinator ---------------------------------------------------------------------

    def _on_turn(self) -> None:
        super()._on_turn()
        if self._failure is not None:
            raise self._failure
        now_s = time.monotonic()
        if now_s > self._commit_s:
            self._commit_s = now_s + COMMIT_EACH_S
            changed = self._changed()
            if changed:
                self._consumer.commit(offsets=changed, asynchronous=True)
        patience_s = self._brokers.timeout_s
        if self._silent_since_s is not None and now_s - self._silent_since_s > patience_s:
            self._ask_coordinator()
        is_waiting = not self._ends and not self._wanted.is_endless
        if is_waiting and now_s - self._began_s > patience_s:
            self._is_left_out = self._offsets.is_left_out(self._consumer.memberid())
            if self._is_left_out:
                warn(f"group {self._group} has no partition left for this member")

    def _note_silence(self, _: KafkaError) -> None:
        """A broker is away, perhaps the coordinator."""
        if self._silent_since_s is None:
            self._silent_since_s = time.monotonic()

    def _ask_coordinator(self) -> None:
        """With --follow, the partitions are read on while no coordinator answers; the outage of a
        partition itself ends the command."""
        try:
            self._offsets.state()
        except (BrokerGone, Unavailable) as error:
            if not self._wanted.is_endless:
                raise
            self._warn(error)
            self._silent_since_s = time.monotonic()
        else:
            self._silent_since_s = None
            self._has_warned = False

    def _warn(self, error: CommandFailed) -> None:
        if not self._has_warned:
            self._has_warned = True
            warn(f"{error}; group {self._group} is asked again until it answers")

    def _warn_of_loss(self) -> None:
        warn(f"group {self._group} gave the partitions to another member, which reads on")

    def _on_group_error(self, error: KafkaError) -> None:
        raise self._refused(error)

    def _refused(self, error: KafkaError, what: str = "") -> CommandFailed:
        if error.code() in (ErrorCode.GROUP_ID_NOT_FOUND, KafkaError._FATAL):
            refused = refused_by_type(self._brokers, self._group, "--group")
            if refused is not None:
                return refused
        if error.code() == ErrorCode.GROUP_ID_NOT_FOUND:
            return CommandFailed(
                f"group {self._group} cannot be joined by the consumer protocol: {error.str()}"
            )
        if error.code() < 0:
            return CommandFailed(f"{what}group {self._group}: {error.str()}")
        rights = (on_group("READ", self._group),) if "GROUP" in error.name() else ()
        return refusal(error.code(), None, f"{what}group {self._group}", *rights)
