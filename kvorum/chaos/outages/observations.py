"""The observations of a history: their kinds, and the details of each. Pure.

An observation is an event `observe`. Its details name the kind as `what`. In the first three kinds
`observer` is the node that was asked. The kinds:

  partition   one broker's own view of the event's topic and partition: leader, leader_epoch, isr,
              replicas
  quorum      one node's own view of the quorum: leader_id, leader_epoch, high_watermark. The high
              watermark is that of a leader which answers for itself, -1 in any other answer: a
              follower's high watermark may lag, so it proves nothing. Only that leader's answer has
              log_end_offsets: the log end offset of each voter by its id
  unanswered  the node stopped answering (type info, with the error); written once, until it answers
              again
  watermark   high_watermark of the event's partition, as a consumer saw it
  group       group, state and members: the [topic, partition] pairs of each member, as the group's
              coordinator describes them
  drained     group: this share group got all that it can get of the event's topic
  final-read  start_offset, next_offset and end_offset of the read after healing

A leader, leader id, epoch or high watermark that is not known is -1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kvorum.chaos.history import OBSERVE, Event, details_of

PARTITION: Final = "partition"
QUORUM: Final = "quorum"
UNANSWERED: Final = "unanswered"

UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSeen:
    """A partition as one broker's metadata shows it. Leader, isr and replicas are broker ids."""

    observer: str
    topic: str
    partition: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]

    def details(self) -> dict[str, object]:
        """The details of the event; its topic and partition are fields of the event."""
        return {
            "what": PARTITION,
            "observer": self.observer,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "isr": list(self.isr),
            "replicas": list(self.replicas),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumSeen:
    """The quorum as one node describes it. log_end_offsets: (voter id, offset), ascending."""

    observer: str
    leader_id: int
    leader_epoch: int
    high_watermark: int
    log_end_offsets: tuple[tuple[int, int], ...] = ()

    def details(self) -> dict[str, object]:
        details: dict[str, object] = {
            "what": QUORUM,
            "observer": self.observer,
            "leader_id": self.leader_id,
            "leader_epoch": self.leader_epoch,
            "high_watermark": self.high_watermark,
        }
        if self.log_end_offsets:
            details["log_end_offsets"] = {
                str(voter): offset for voter, offset in self.log_end_offsets
            }
        return details


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """A node stopped answering."""

    observer: str
    error: str

    def details(self) -> dict[str, object]:
        """The details of the event; the error is a field of the event."""
        return {"what": UNANSWERED, "observer": self.observer}


Observation = PartitionSeen | QuorumSeen | Unanswered


def read_observation(event: Event) -> Observation | None:
    """The observation of the cluster that an event carries; None for every other event.

    A missing or malformed field reads as unknown.
    """
    if event.f != OBSERVE:
        return None
    details = details_of(event)
    observer = str(details.get("observer", ""))
    match details.get("what"):
        case "partition" if event.partition is not None:
            return PartitionSeen(
                observer=observer,
                topic=event.topic or "",
                partition=event.partition,
                leader=_whole(details.get("leader")),
                leader_epoch=_whole(details.get("leader_epoch")),
                isr=_numbers(details.get("isr")),
                replicas=_numbers(details.get("replicas")),
            )
        case "quorum":
            return QuorumSeen(
                observer=observer,
                leader_id=_whole(details.get("leader_id")),
                leader_epoch=_whole(details.get("leader_epoch")),
                high_watermark=_whole(details.get("high_watermark")),
                log_end_offsets=_offsets(details.get("log_end_offsets")),
            )
        case "unanswered":
            return Unanswered(observer=observer, error=event.error or "")
        case _:
            return None


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else UNKNOWN


def _offsets(value: object) -> tuple[tuple[int, int], ...]:
    if not isinstance(value, Mapping):
        return ()
    known = {str(voter): offset for voter, offset in value.items() if str(voter).isdigit()}
    return tuple(sorted((int(voter), _whole(offset)) for voter, offset in known.items()))


def _numbers(value: object) -> tuple[int, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    return tuple(item for item in value if isinstance(item, int) and not isinstance(item, bool))
