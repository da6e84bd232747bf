"""The numbers that a controller counts while it works. Pure.

Only the active controller decides, so a standby's numbers stand still.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvorum.metadata.image.records import NO_LEADER, RECOVERING, PartitionChange, Record
from kvorum.runtime.metrics import Histogram


class ControllerMetrics:
    """Counters of one controller.

    claims: times that it became active.
    decisions: requests that it decided.
    decision_s: time of each.
    failed_decisions: by bugs of ours.
    elections: partition leaders chosen, unclean_elections among them.
    timed_out_heartbeats: brokers fenced because their sessions ended, and not at their own wish.
    """

    def __init__(self) -> None:
        self.claims = 0
        self.decisions = 0
        self.failed_decisions = 0
        self.elections = 0
        self.unclean_elections = 0
        self.timed_out_heartbeats = 0
        self.decision_s = Histogram()

    def note_records(self, records: Sequence[Record]) -> None:
        """Count the elections among the records of a decision."""
        for record in records:
            if isinstance(record, PartitionChange) and record.leader not in (None, NO_LEADER):
                self.elections += 1
                self.unclean_elections += record.leader_recovery_state == RECOVERING
