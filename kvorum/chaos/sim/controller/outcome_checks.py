"""Checks the replies of a run against the committed records. Pure.

AcknowledgedSurvives: an acknowledged request is committed as a whole, and did for each item what
the reply says. RefusedLeftNoTrace: a refused request, or item, changed nothing. UnknownIsWhole: a
request with an unknown outcome is committed as a whole or not at all. ProducerIdBlockOnce: no id
was handed out twice.
"""

from __future__ import annotations

import itertools

from kvorum.chaos.sim.controller.history import Attempt, History, brief
from kvorum.chaos.sim.controller.item_checks import problem_of
from kvorum.chaos.sim.controller.reference import Reference
from kvorum.chaos.sim.kernel.checks import check
from kvorum.chaos.sim.quorum.model.linearizability import Outcome
from kvorum.chaos.sim.quorum.model.mirror import Mirror
from kvorum.metadata.requests.controller_requests import ProducerIdBlock


def check_outcomes(history: History, committed: Mirror, reference: Reference) -> None:
    """Check a whole run. Raises CheckFailed."""
    for attempt in history.attempts:
        check_attempt(attempt, committed, reference)
    check_blocks(history)


def check_attempt(attempt: Attempt, committed: Mirror, reference: Reference) -> None:
    """Check one request."""
    there = [attempt.entry_matches(committed, i) for i in range(len(attempt.values))]
    told = attempt.told
    if told is Outcome.FAILED:
        check(not any(there), "RefusedLeftNoTrace", brief(attempt))
        return
    check(all(there) or not any(there), "UnknownIsWhole", brief(attempt))
    if told is Outcome.UNKNOWN:
        return
    check(all(there), "AcknowledgedSurvives", brief(attempt))
    before = reference.at(attempt.base_offset)
    after = reference.at(attempt.end_offset)
    found = problem_of(attempt, before, after)
    if found is not None:
        check(False, found[0], f"{found[1]}: {brief(attempt)}")


def check_blocks(history: History) -> None:
    """Check that the blocks of producer ids that were handed out do not overlap."""
    blocks = sorted(
        (attempt.reply.start, attempt.reply.start + attempt.reply.length)
        for attempt in history.attempts
        if isinstance(attempt.reply, ProducerIdBlock)
    )
    for (_, end), (start, _) in itertools.pairwise(blocks):
        check(end <= start, "ProducerIdBlockOnce", f"{start} lies in a block up to {end}")
