"""The records that `kvorum consume` fetches, from chosen partitions or those of a group member."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from kvorum.cli.common import CommandFailed, warn
from kvorum.cli.kafka_client import BrokerGone
from kvorum.cli.records.brokers import Brokers, Partition, Unavailable
from kvorum.cli.records.consumer import Consumer, Fetched
from kvorum.cli.records.member import GroupMember
from kvorum.cli.records.offsets import Position, bounds_of, resolve
from kvorum.cli.records.visible import Range

POLL_S = 0.5
COMMIT_EACH_S = 1.0
RETRY_EACH_S = 1.0
"""Time for reading between two attempts to reach a coordinator that does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The records to read. partitions: empty for all. end: None for the end that the partitions
    have now. is_endless: wait for new records."""

    topics: tuple[str, ...]
    partitions: frozenset[int]
    first: Position
    end: Position | None
    is_endless: bool
    isolation: int


class Reading(Protocol):
    """Yields the brokers' answers to fetches until all wanted records are read."""

    def answers(self) -> Iterator[Fetched]: ...

    def done(self, partition: Partition, next_offset: int) -> None:
        """The records of an answer were printed, up to this offset."""

    def close(self) -> None: ...


def ranges_of(
    brokers: Brokers, wanted: Wanted, partitions: list[Partition]
) -> dict[Partition, Range]:
    """The offsets to read. Raises CommandFailed for an offset beyond a partition's end."""
    bounds = bounds_of(brokers, partitions, isolation=wanted.isolation)
    firsts = resolve(brokers, wanted.first, bounds)
    ends: dict[Partition, int | None] = dict.fromkeys(partitions)
    if not wanted.is_endless:
        ends = {p: of_log.end for p, of_log in bounds.items()}
        if wanted.end is not None:
            limits = resolve(brokers, wanted.end, bounds)
            ends = {p: min(limits[p], of_log.end) for p, of_log in bounds.items()}
    found = {}
    for partition, first in firsts.items():
        name = f"{partition[0]}-{partition[1]}"
        of_log = bounds[partition]
        if first > of_log.end:
            raise CommandFailed(f"{name}: offset {first} is beyond its end, {of_log.end}")
        if first < of_log.start:
            warn(f"{name}: begins at offset {of_log.start}; older records were deleted")
            first = of_log.start
        found[partition] = Range(first=first, end=ends[partition])
    return found


class PlainReading:
    """Partitions of the topics, without a group."""

    def __init__(self, brokers: Brokers, wanted: Wanted) -> None:
        self._wanted = wanted
        self._consumer = Consumer(brokers, isolation=wanted.isolation)
        topics = brokers.existing(list(wanted.topics), operation="READ")
        chosen = []
        for name in wanted.topics:
            leaders = topics[name].leaders
            for number in sorted(wanted.partitions or leaders):
                if number not in leaders:
                    raise CommandFailed(
                        f"{name}-{number}: there is no such partition; {name} has {len(leaders)}"
                    )
                chosen.append((name, number))
        self._consumer.assign(ranges_of(brokers, wanted, chosen))

    def answers(self) -> Iterator[Fetched]:
        """Yield the brokers' answers until every partition is at its end."""
        while self._consumer.partitions:
            yield from self._consumer.poll(POLL_S)

    def done(self, partition: Partition, next_offset: int) -> None:
        """Do nothing: without a group there is no offset to commit."""

    def close(self) -> None:
        """Do nothing: the command closes the connections."""


class GroupReading:
    """Reads as a member of a group: the assigned partitions, from their committed offsets on."""

    def __init__(self, brokers: Brokers, wanted: Wanted, group: str) -> None:
        self._brokers = brokers
        self._wanted = wanted
        self._consumer = Consumer(brokers, isolation=wanted.isolation)
        self._member = GroupMember(brokers, group, list(wanted.topics))
        self._owned: set[Partition] = set()
        # The next offset to print of each owned partition that is read, and the group's offsets.
        self._positions: dict[Partition, int] = {}
        self._committed: dict[Partition, int] = {}
        self._commit_s = time.monotonic() + COMMIT_EACH_S
        self._retry_s = 0.0
        self._is_cut_off = False

    def answers(self) -> Iterator[Fetched]:
        """Yield the answers for the assigned partitions. Without --follow this ends when each
        assigned partition is at its end. A member without partitions waits for as long as other
        members may need to give some up."""
        began_s = time.monotonic()
        while True:
            self._keep_membership()
            # Another member hears of its loss with one heartbeat, and tells of it with the next.
            wait_s = self._brokers.timeout_s + 2 * self._member.interval_s
            is_late = time.monotonic() > began_s + wait_s
            if not self._owned and not self._wanted.is_endless and is_late:
                warn(f"group {self._member.group} has no partition left for this member")
                return
            if self._owned and not self._wanted.is_endless and not self._consumer.partitions:
                return
            if self._consumer.partitions:
                for fetched in self._consumer.poll(POLL_S):
                    if fetched.partition in self._owned:
                        yield fetched
                        self._keep_membership()
            else:
                time.sleep(0.05)

    def done(self, partition: Partition, next_offset: int) -> None:
        """Keep the offset for the next commit."""
        if partition in self._positions:
            self._positions[partition] = next_offset

    def close(self) -> None:
        """Commit the positions, and leave the group."""
        # Ctrl-C may have come between a request and its answer. On the same connection, the next
        # request would get that answer.
        self._brokers.close()
        self._commit()
        self._member.leave()

    def _keep_membership(self) -> None:
        """Do what a member owes its group now. With --follow, the partitions are read on while no
        coordinator answers; the consumer itself ends the command after an outage of them."""
        if time.monotonic() < self._retry_s:
            return
        try:
            self._serve_group()
        except (BrokerGone, Unavailable) as error:
            if not self._wanted.is_endless:
                raise
            self._retry_s = time.monotonic() + RETRY_EACH_S
            if not self._is_cut_off:
                self._is_cut_off = True
                warn(f"{error}; group {self._member.group} is asked again until it answers")
        else:
            self._is_cut_off = False

    def _serve_group(self) -> None:
        """Each step leaves a state from which the next call goes on, should it raise."""
        if time.monotonic() > self._commit_s:
            self._commit()
        self._member.heartbeat()
        while True:
            while self._member.assigned is not None and self._member.assigned != self._owned:
                self._give_up(self._owned - self._member.assigned)
                self._owned = set(self._member.assigned)
                self._member.acknowledge()
            new = self._owned - set(self._positions)
            if not new:
                return
            self._begin(new)

    def _give_up(self, lost: set[Partition]) -> None:
        if not lost:
            return
        self._commit()
        self._consumer.revoke(lost)
        for partition in lost:
            self._positions.pop(partition, None)
            self._committed.pop(partition, None)

    def _begin(self, partitions: set[Partition]) -> None:
        """Read these partitions from the group's offsets, or from where the options begin."""
        committed = self._member.committed(partitions)
        if self._member.assigned != self._owned:
            return  # a heartbeat of that call has changed the assignment
        ranges = {
            partition: Range(first=committed.get(partition, wanted.first), end=wanted.end)
            for partition, wanted in ranges_of(
                self._brokers, self._wanted, sorted(partitions)
            ).items()
        }
        self._consumer.assign(ranges)
        self._committed.update(committed)
        self._positions.update({partition: wanted.first for partition, wanted in ranges.items()})

    def _commit(self) -> None:
        """Commit every position that the group does not have, as Kafka's consumer does, even one at
        which nothing was printed.

        Bad sequence otherwise, with `-o end`: 1. Member A begins partition 0 at its end, offset 5,
        and prints nothing. 2. A leaves. 3. Record 5 is written. 4. Member B finds no offset, and
        begins at the end, 6.
        """
        self._commit_s = time.monotonic() + COMMIT_EACH_S
        changed = {p: at for p, at in self._positions.items() if self._committed.get(p) != at}
        for partition in self._member.commit(changed):
            self._committed[partition] = changed[partition]
