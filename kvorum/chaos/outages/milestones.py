"""The decisions of the cluster during a run, with their times: its milestones.

They come from the metadata log's own records and timestamps, which the run exported: a poll would
add its own interval to every time. A timestamp is the active controller's wall clock when it wrote
the record; `Header.wall_start_ms` of the history maps it to the history's clock, so controllers and
runner must share a clock, as processes of one machine do. A run without such an export (a cluster
that Kvorum did not start) takes the observer's events instead (`SeenMilestones`); `RunMilestones`
has the rule for both.

`milestones.jsonl` in a run's folder has one milestone a line after a first line `MilestoneSource`,
so that a report can be written again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from kvorum.chaos.history import Event
from kvorum.chaos.outages.observations import (
    PartitionSeen,
    QuorumSeen,
    Unanswered,
    read_observation,
)
from kvorum.runtime.errors import CorruptData

MILESTONES_FILE = "milestones.jsonl"
METADATA_FOLDER = "metadata"
RECORDS_PARQUET = "metadata_records.parquet"
MILESTONES_VERSION = 1

#: ISRs kept of a partition after every observer has passed them.
_PASSED_MAX = 100

FENCED: Final = "fenced"
UNFENCED: Final = "unfenced"
LEADER: Final = "leader"
ISR: Final = "isr"
ACTIVE_CONTROLLER: Final = "active-controller"

METADATA_LOG = "the metadata log's records and timestamps"
OBSERVER_EVENTS = "the observer's events, which come up to a tenth of a second late"

What = Literal["fenced", "unfenced", "leader", "isr", "active-controller"]


class MilestoneSource(msgspec.Struct, frozen=True, kw_only=True):
    """The first line. first_wall_ms: the log has no milestone before it; 0 if it is whole."""

    milestones: int
    source: str
    first_wall_ms: float = 0.0


class Milestone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One decision. wall_ms: milliseconds since 1970.

    fenced, unfenced: broker.
    leader: topic, partition, leader (-1 for none), epoch.
    isr: topic, partition, isr, epoch if known. active-controller: leader, epoch of the quorum.
    """

    wall_ms: float
    what: What
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
    leader: int | None = None
    epoch: int | None = None
    isr: tuple[int, ...] | None = None


Row = Mapping[str, Any]


def milestones_of(rows: Iterable[Row]) -> Iterator[Milestone]:
    """The milestones among rows of the exported metadata log, in the log's order.

    A row has the columns of `metadata.inspect.export_schema`'s table `metadata_records`.
    """
    unfenced: set[int] = set()
    isrs: dict[tuple[str, int], frozenset[int]] = {}
    for row in rows:
        match row["record_type"]:
            case "LeaderChange":
                leader = json.loads(row["payload_json"])["leaderId"]
                yield Milestone(
                    wall_ms=row["timestamp_ms"],
                    what=ACTIVE_CONTROLLER,
                    leader=leader,
                    epoch=row["epoch"],
                )
            case "RegisterBroker" | "UnregisterBroker" | "BrokerRegistrationChange":
                yield from _of_broker(row, unfenced)
            case "Partition" | "PartitionChange":
                yield from _of_partition(row, isrs)


def _of_broker(row: Row, unfenced: set[int]) -> Iterator[Milestone]:
    broker: int = row["broker_id"]
    is_fenced = json.loads(row["payload_json"]).get("is_fenced", True)
    if is_fenced is None:
        return
    # A registration fences the broker's previous process; its first registration fences nobody.
    if is_fenced and row["record_type"] == "RegisterBroker" and broker not in unfenced:
        return
    (unfenced.discard if is_fenced else unfenced.add)(broker)
    what: What = FENCED if is_fenced else UNFENCED
    yield Milestone(wall_ms=row["timestamp_ms"], what=what, broker=broker)


def _of_partition(row: Row, isrs: dict[tuple[str, int], frozenset[int]]) -> Iterator[Milestone]:
    topic, partition = row["topic"], row["partition"]
    if topic is None:
        return
    if row["leader"] is not None:
        yield Milestone(
            wall_ms=row["timestamp_ms"],
            what=LEADER,
            topic=topic,
            partition=partition,
            leader=row["leader"],
            epoch=row["leader_epoch"],
        )
    if row["isr"] is not None and isrs.get((topic, partition)) != frozenset(row["isr"]):
        isrs[topic, partition] = frozenset(row["isr"])
        yield Milestone(
            wall_ms=row["timestamp_ms"],
            what=ISR,
            topic=topic,
            partition=partition,
            epoch=row["leader_epoch"],
            isr=tuple(row["isr"]),
        )


class SeenMilestones:
    """Milestones from the observer's events. A stale broker that repeats what others have left
    behind adds none.

    Two brokers see the same changes, each with gaps and at its own pace. So each observer has a
    place in the partition's sequence of ISRs: what it reports is looked for from that place on, and
    is new only if it is not there.
    """

    def __init__(self, wall_start_ms: float) -> None:
        self._wall_start_ms = wall_start_ms
        self._epochs: dict[tuple[str, int], int] = {}
        self._isrs: dict[tuple[str, int], list[frozenset[int]]] = {}
        self._places: dict[tuple[str, int], dict[str, int]] = {}
        self._quorum_epoch = -1

    def add(self, event: Event) -> list[Milestone]:
        """The facts that the event shows for the first time."""
        seen = read_observation(event)
        wall_ms = self._wall_start_ms + event.time_ms
        match seen:
            case PartitionSeen():
                return self._partition(seen, wall_ms)
            case QuorumSeen() if seen.leader_id >= 0 and seen.leader_epoch > self._quorum_epoch:
                self._quorum_epoch = seen.leader_epoch
                return [
                    Milestone(
                        wall_ms=wall_ms,
                        what=ACTIVE_CONTROLLER,
                        leader=seen.leader_id,
                        epoch=seen.leader_epoch,
                    )
                ]
            case Unanswered():
                # A node that is gone for long must not hold up `_forget`.
                for places in self._places.values():
                    places.pop(seen.observer, None)
                return []
            case _:
                return []

    def _partition(self, seen: PartitionSeen, wall_ms: float) -> list[Milestone]:
        key = (seen.topic, seen.partition)
        known = self._epochs.get(key)
        if known is not None and seen.leader_epoch < known:
            return []
        found: list[Milestone] = []
        if (known is None or seen.leader_epoch > known) and seen.leader >= 0:
            self._epochs[key] = seen.leader_epoch
            found.append(
                Milestone(
                    wall_ms=wall_ms,
                    what=LEADER,
                    topic=seen.topic,
                    partition=seen.partition,
                    leader=seen.leader,
                    epoch=seen.leader_epoch,
                )
            )
        if self._is_new_isr(key, seen):
            found.append(
                Milestone(
                    wall_ms=wall_ms,
                    what=ISR,
                    topic=seen.topic,
                    partition=seen.partition,
                    epoch=seen.leader_epoch,
                    isr=seen.isr,
                )
            )
        return found

    def _is_new_isr(self, key: tuple[str, int], seen: PartitionSeen) -> bool:
        isrs = self._isrs.setdefault(key, [])
        places = self._places.setdefault(key, {})
        isr = frozenset(seen.isr)
        place = places.get(seen.observer, 0)
        if isr in isrs[place:]:
            places[seen.observer] = isrs.index(isr, place)
            return False
        isrs.append(isr)
        places[seen.observer] = len(isrs) - 1
        self._forget(key)
        return True

    def _forget(self, key: tuple[str, int]) -> None:
        """Drop what every observer has passed, so that a day's churn needs no memory."""
        places = self._places[key]
        passed = min(places.values())
        if passed > _PASSED_MAX:
            del self._isrs[key][:passed]
            for observer in places:
                places[observer] -= passed


class RunMilestones:
    """The milestones of one run, for its report and for a lake, and their source in words.

    logged: those of the metadata log; a warm cluster's log begins with the decisions of earlier
    runs, which are left out. The observer's events count only where the log says nothing: before
    its first record if it was trimmed, or always if the run exported none.
    """

    def __init__(
        self, exported: tuple[MilestoneSource, Sequence[Milestone]] | None, wall_start_ms: float
    ) -> None:
        """exported: of `milestones_in`.
        wall_start_ms: of the history's header.
        """
        self.source = OBSERVER_EVENTS
        self.logged: list[Milestone] = []
        self._seen = SeenMilestones(wall_start_ms)
        self._seen_until_ms = float("inf")
        if exported is not None:
            source, milestones = exported
            self.source = source.source or METADATA_LOG
            self.logged = [item for item in milestones if item.wall_ms >= wall_start_ms]
            self._seen_until_ms = source.first_wall_ms - wall_start_ms

    def seen(self, event: Event) -> list[Milestone]:
        """The milestones that an event of the observer adds."""
        found = self._seen.add(event)
        return found if event.time_ms < self._seen_until_ms else []


def write_milestones(path: str, source: MilestoneSource, milestones: Iterable[Milestone]) -> None:
    """Write the file, replacing an earlier one as a whole."""
    part = Path(f"{path}.part")
    with part.open("wb") as file:
        file.write(msgspec.json.encode(source) + b"\n")
        for milestone in milestones:
            file.write(msgspec.json.encode(milestone) + b"\n")
    part.replace(path)


def read_milestones(path: str) -> tuple[MilestoneSource, list[Milestone]]:
    """The file's content. Raises CorruptData, with the line number, for a line that is none."""
    decode = msgspec.json.Decoder(Milestone).decode
    milestones: list[Milestone] = []
    position = number = 0
    with open(path, "rb") as file:
        try:
            for number, line in enumerate(file, 1):
                if number == 1:
                    source = msgspec.json.decode(line, type=MilestoneSource)
                    if source.milestones != MILESTONES_VERSION:
                        raise ValueError(f"version {source.milestones} is not known")
                else:
                    milestones.append(decode(line))
                position += len(line)
        except ValueError as error:
            reason = f"line {number} is no milestone: {error}; delete the file to make it again"
            raise CorruptData(path, position, reason) from error
    if number == 0:
        raise CorruptData(path, 0, "an empty file; delete it to make it again")
    return source, milestones


def milestones_in(run_dir: str) -> tuple[MilestoneSource, list[Milestone]] | None:
    """The milestones of a run's folder, made from its exported metadata when they are missing.

    None if the run exported no metadata log. Raises CorruptData for damaged files.
    """
    path = Path(run_dir) / MILESTONES_FILE
    if not path.exists():
        records = Path(run_dir) / METADATA_FOLDER / RECORDS_PARQUET
        if not records.exists():
            return None
        _make(str(records), str(path))
    return read_milestones(str(path))


def _make(records: str, path: str) -> None:
    import pyarrow as pa
    import pyarrow.dataset as ds

    try:
        rows = ds.dataset(records).head(1).to_pylist()
        first = rows[0] if rows else {"offset": 0, "timestamp_ms": 0}
        source = MilestoneSource(
            milestones=MILESTONES_VERSION,
            source=METADATA_LOG,
            # A log that was trimmed begins at a snapshot.
            first_wall_ms=first["timestamp_ms"] if first["offset"] > 0 else 0,
        )
        write_milestones(path, source, milestones_of(_rows(records)))
    except (pa.ArrowException, KeyError) as error:
        raise CorruptData(records, 0, f"not the export of a metadata log: {error}") from error


def _rows(records: str) -> Iterator[Row]:
    import pyarrow.dataset as ds

    columns = [
        "epoch", "timestamp_ms", "record_type", "topic", "partition", "broker_id", "leader", "isr",
        "leader_epoch", "payload_json",
    ]  # fmt: skip
    for batch in ds.dataset(records).to_batches(columns=columns):
        yield from batch.to_pylist()
