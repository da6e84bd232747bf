"""The requests to the controllers, their decisions, and their replies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kvorum.chaos.sim.kernel.checks import check
from kvorum.chaos.sim.quorum.model.linearizability import Outcome
from kvorum.chaos.sim.quorum.model.mirror import Mirror
from kvorum.metadata.controller.core.controller import Reply, Request
from kvorum.metadata.requests import controller_requests as r
from kvorum.metadata.requests.acl_requests import CreateAcls, DeleteAcls
from kvorum.metadata.requests.config_requests import AlterClientQuotas, AlterConfigs
from kvorum.metadata.requests.directory_requests import AssignReplicas
from kvorum.runtime.errors import ErrorCode, Rejected

_KINDS: dict[type[Any], str] = {
    r.RegisterBrokerRequest: "register",
    r.AlterPartition: "alter-isr",
    r.AllocateProducerIds: "producer-ids",
    r.CreateTopics: "create-topics",
    r.DeleteTopics: "delete-topics",
    r.CreatePartitions: "create-partitions",
    AlterConfigs: "configs",
    AlterClientQuotas: "quotas",
    CreateAcls: "create-acls",
    DeleteAcls: "delete-acls",
    r.AlterReassignments: "reassign",
    r.ListReassignments: "list",
    AssignReplicas: "assign-dirs",
    r.ElectLeaders: "elect",
    r.UpdateFeatures: "features",
    r.UnregisterBrokerRequest: "unregister",
    r.RegisterControllerRequest: "register-controller",
}

OWN = "fence"
"""The kind of a controller's own decisions: fencing, the periodic sweep, the feature levels of a
new cluster."""


def kind_of(request: Request) -> str:
    """The operation's name, as in `faults.OPERATIONS`."""
    if isinstance(request, r.Heartbeat):
        return "shut-down" if request.want_shutdown else "unfence"
    return _KINDS[type(request)]


@dataclass(slots=True, kw_only=True, eq=False)
class Attempt:
    """One request at one controller, or (request None) one of the controller's own decisions.

    base_offset, values: the records that were proposed for the request, in `epoch`; no values if
        none were.
    reply: the reply that the controller sent, None for none.
    is_decided: the controller was active when the request arrived, so it may have proposed records.
    """

    kind: str
    node_id: int
    request: Request | None = None
    epoch: int = -1
    base_offset: int = -1
    values: tuple[bytes, ...] = ()
    is_decided: bool = False
    reply: Reply | None = None

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.values)

    @property
    def told(self) -> Outcome:
        """The outcome that the reply tells. OK: the request was carried out as the reply says, item
        by item. FAILED: no part of the request was carried out."""
        reply = self.reply
        if not isinstance(reply, Rejected):
            return Outcome.UNKNOWN if reply is None else Outcome.OK
        if reply.code is ErrorCode.REQUEST_TIMED_OUT:
            return Outcome.UNKNOWN
        if reply.code is ErrorCode.NOT_CONTROLLER and self.is_decided:
            return Outcome.UNKNOWN
        return Outcome.FAILED

    def is_committed(self, committed: Mirror) -> bool:
        """True if the attempt's first record is in the log where it was proposed."""
        return self.entry_matches(committed, 0)

    def entry_matches(self, committed: Mirror, index: int) -> bool:
        """True if the attempt's record number `index` is in the log where it was proposed."""
        return committed.entry(self.base_offset + index) == (self.epoch, self.values[index])


@dataclass(slots=True, kw_only=True)
class History:
    """All attempts of a run.

    attempts: in order.
    by_place: (epoch, base offset) to the attempt that proposed there.
    tally: counts of the brokers' requests: answered, refused or unanswered.
    """

    attempts: list[Attempt] = field(default_factory=list)
    by_place: dict[tuple[int, int], Attempt] = field(default_factory=dict)
    tally: Counter[str] = field(default_factory=Counter)

    def begin(self, kind: str, node_id: int, request: Request | None = None) -> Attempt:
        """Add an attempt for a request that has reached a controller."""
        attempt = Attempt(kind=kind, node_id=node_id, request=request)
        self.attempts.append(attempt)
        return attempt

    def note_proposed(
        self, attempt: Attempt, epoch: int, base_offset: int, values: Sequence[bytes]
    ) -> None:
        """Add a batch that the controller appended for the attempt; a decision of many records has
        several."""
        if not attempt.values:
            attempt.epoch, attempt.base_offset = epoch, base_offset
        attempt.values += tuple(values)
        self.by_place[(epoch, attempt.base_offset)] = attempt

    def note_reply(self, attempt: Attempt, reply: Reply, committed: Mirror) -> None:
        """Store the reply. Check AcknowledgedSurvives, first half: an acknowledged request is
        committed at that moment."""
        check(attempt.reply is None, "AcknowledgedSurvives", f"answered twice: {brief(attempt)}")
        attempt.reply = reply
        if attempt.told is not Outcome.OK or not attempt.values:
            return
        check(
            all(attempt.entry_matches(committed, i) for i in range(len(attempt.values))),
            "AcknowledgedSurvives",
            f"acknowledged before it was committed: {brief(attempt)}",
        )


def brief(attempt: Attempt) -> str:
    """The attempt as text."""
    return (
        f"{attempt.kind} at node {attempt.node_id} epoch {attempt.epoch} offsets "
        f"{attempt.base_offset}..{attempt.end_offset}: {attempt.request} -> {attempt.reply}"
    )
