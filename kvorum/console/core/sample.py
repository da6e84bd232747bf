"""One look at the cluster: the quorum's own words, and the image of its metadata. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvorum.console.core.replica_log import ReplicaLog
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumNode:
    """A node of the quorum as its leader knows it. kind: voter or observer. Times are wall clock
    (ms since 1970), -1 for never; end_offset is -1 if no leader reports it."""

    node_id: int
    kind: str
    end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A controller's answer about itself.

    role: Raft's, in lower case.
    leaderless_ms: how long it has had no leader.
    log: its own metadata log; None if it did not tell.
    """

    role: str
    epoch: int
    leaderless_ms: int
    log: ReplicaLog | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineLine:
    """A line of a controller's election timeline."""

    at_ms: int
    node_id: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The cluster at one moment.

    leader_id: -1 without a leader; no_quorum then says why.
    nodes: voters, then observers.
    answers: of the controllers that answered, by id.
    addresses: host:port of controllers.
    image: the committed metadata.
    first_offset: the lowest offset that has an image.
    hidden: what the user may not see (quorum, elections, min_isr), with the right that shows it.
    protocol: of the user's connections; it tells which listener of a broker is the user's.
    """

    taken_ms: int
    cluster_id: str = ""
    leader_id: int = -1
    leader_epoch: int = -1
    high_watermark: int = -1
    no_quorum: str = ""
    nodes: tuple[QuorumNode, ...] = ()
    answers: Mapping[int, Answer] = field(default_factory=dict)
    addresses: Mapping[int, str] = field(default_factory=dict)
    timeline: tuple[TimelineLine, ...] = ()
    image: ClusterImage = EMPTY_IMAGE
    first_offset: int = 0
    hidden: Mapping[str, str] = field(default_factory=dict)
    protocol: str = "PLAINTEXT"
