"""Group members on raw requests: each reports every answer, so that tests can check it.

They divide the partitions of an existing topic, and commit rising offsets for their partitions,
starting from the group's committed ones. A member that gets any error joins again.
"""

from __future__ import annotations

import random
import struct
import threading
from collections import defaultdict
from typing import Any, NamedTuple

from kvorum.runtime.errors import ErrorCode
from tests.test_broker.raw_client import RawClient

PARTITIONS = 8
SESSION_TIMEOUT_MS = 3_000
REBALANCE_TIMEOUT_MS = 4_000
_SUBSCRIPTION = struct.pack(">hih5si", 0, 1, 5, b"storm", -1)


class Again(Exception):
    """A request failed: the member must join again."""


class Owned(NamedTuple):
    generation_id: int
    mark: int
    member_id: str
    partitions: tuple[int, ...]


class Story:
    """Observations of all members. acknowledged: highest offset committed, by partition."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owned: list[Owned] = []
        self.acknowledged: dict[int, int] = defaultdict(int)
        self.commits = 0
        self.lost: list[str] = []

    def read(self, partition: int, offset: int, acknowledged: int) -> None:
        if offset < acknowledged:
            self.lost.append(f"partition {partition}: read {offset} after {acknowledged}")

    def owned_twice(self) -> list[str]:
        """Partitions with two owners in one generation, and generations of two assignments."""
        found = []
        marks: dict[int, int] = {}
        owners: dict[tuple[int, int], str] = {}
        for row in self.owned:
            if marks.setdefault(row.generation_id, row.mark) != row.mark:
                found.append(f"generation {row.generation_id} was assigned twice")
            for partition in row.partitions:
                owner = owners.setdefault((row.generation_id, partition), row.member_id)
                if owner != row.member_id:
                    found.append(f"{partition} in {row.generation_id}: {owner}, {row.member_id}")
        return found


class Member(threading.Thread):
    def __init__(self, name: str, ports: list[int], group_id: str, story: Story, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self._ports = ports
        self._group_id = group_id
        self._story = story
        self._rng = random.Random(seed)
        self._client: RawClient | None = None
        self._stopping = threading.Event()
        self._member_id = ""
        self._generation_id = -1

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._live()
            except (Again, OSError, EOFError):
                self._close()
                self._stopping.wait(0.02 + 0.05 * self._rng.random())
        self._close()

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # --- one membership ----------------------------------------------------------------------

    def _live(self) -> None:
        self._client = self._coordinator()
        while not self._stopping.is_set():
            self._join()
            partitions = self._assignment
            offsets = self._committed(partitions)
            for _ in range(self._rng.randrange(5, 60)):
                if not self._is_in_generation() or self._stopping.is_set():
                    break
                for partition in partitions:
                    offsets[partition] += 1
                    self._commit(partition, offsets[partition])
                self._stopping.wait(0.01)
            else:
                if self._rng.random() < 0.3:
                    self._leave()

    def _call(self, name: str, version: int, values: dict[str, Any]) -> Any:
        assert self._client is not None
        return self._client.call(name, version, {"group_id": self._group_id, **values})

    def _coordinator(self) -> RawClient:
        client = RawClient(self._rng.choice(self._ports))
        try:
            values = {"key_type": 0, "coordinator_keys": [self._group_id]}
            (found,) = client.call("find_coordinator", 4, values).coordinators
        finally:
            client.close()
        if found.error_code != 0:
            raise Again
        return RawClient(found.port)

    def _me(self) -> dict[str, Any]:
        return {
            "member_id": self._member_id,
            "generation_id": self._generation_id,
            "group_instance_id": None,
        }

    def _join(self) -> None:
        values = {
            "session_timeout": SESSION_TIMEOUT_MS,
            "rebalance_timeout": REBALANCE_TIMEOUT_MS,
            "protocol_type": "consumer",
            "protocols": [{"name": "by-hand", "metadata": _SUBSCRIPTION}],
            "reason": None,
        }
        answer = self._call("join_group", 9, {**values, **self._me()})
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            answer = self._call("join_group", 9, {**values, **self._me()})
        if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if answer.error_code != 0:
            raise Again
        self._member_id, self._generation_id = answer.member_id, answer.generation_id
        mark = self._rng.getrandbits(60)
        ids = [member.member_id for member in answer.members]
        assignments = [
            {
                "member_id": member_id,
                "assignment": struct.pack(">q", mark) + bytes(range(i, PARTITIONS, len(ids))),
            }
            for i, member_id in enumerate(ids)
        ]
        values = {"protocol_type": "consumer", "protocol_name": "by-hand"}
        answer = self._call("sync_group", 5, {**values, **self._me(), "assignments": assignments})
        if answer.error_code != 0:
            raise Again
        (mark,) = struct.unpack(">q", answer.assignment[:8])
        self._assignment = tuple(answer.assignment[8:])
        with self._story.lock:
            row = Owned(self._generation_id, mark, self._member_id, self._assignment)
            self._story.owned.append(row)

    def _is_in_generation(self) -> bool:
        error = self._call("heartbeat", 4, self._me()).error_code
        if error == ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        if error != 0:
            raise Again
        return True

    def _leave(self) -> None:
        member = {"member_id": self._member_id, "group_instance_id": None, "reason": None}
        self._call("leave_group", 5, {"members": [member]})
        self._member_id, self._generation_id = "", -1

    # --- offsets -----------------------------------------------------------------------------

    def _committed(self, partitions: tuple[int, ...]) -> dict[int, int]:
        with self._story.lock:
            before = {p: self._story.acknowledged[p] for p in partitions}
        topics = [{"name": "storm", "partition_indexes": list(partitions)}]
        group = {"group_id": self._group_id, "member_id": None, "member_epoch": -1}
        values = {"groups": [{**group, "topics": topics}], "require_stable": True}
        assert self._client is not None
        (answer,) = self._client.call("offset_fetch", 9, values).groups
        if answer.error_code != 0:
            raise Again
        offsets = {
            row.partition_index: max(row.committed_offset, 0) for row in answer.topics[0].partitions
        }
        with self._story.lock:
            for partition, offset in offsets.items():
                self._story.read(partition, offset, before[partition])
        return offsets

    def _commit(self, partition: int, offset: int) -> None:
        row = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        values = {
            "generation_id_or_member_epoch": self._generation_id,
            "member_id": self._member_id,
            "group_instance_id": None,
            "topics": [{"name": "storm", "partitions": [row]}],
        }
        answer = self._call("offset_commit", 9, values)
        if answer.topics[0].partitions[0].error_code != 0:
            raise Again
        with self._story.lock:
            self._story.commits += 1
            self._story.acknowledged[partition] = max(self._story.acknowledged[partition], offset)
