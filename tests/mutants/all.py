"""Every mutant that `make mutants` runs."""

from __future__ import annotations

from tests.mutants import (
    absurd_requests,
    acls,
    broker_fencing,
    compaction,
    consumer_groups,
    decisions,
    following,
    groups,
    links,
    log_engine,
    log_limits,
    metadata_events,
    migration,
    partitions,
    quorum,
    record_limits,
    restarts,
    secrets,
    security,
    transactions,
    transport,
    upkeep,
)
from tests.mutants.model import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *absurd_requests.MUTANTS,
    *acls.MUTANTS,
    *quorum.MUTANTS,
    *decisions.MUTANTS,
    *broker_fencing.MUTANTS,
    *transport.MUTANTS,
    *log_engine.MUTANTS,
    *log_limits.MUTANTS,
    *metadata_events.MUTANTS,
    *record_limits.MUTANTS,
    *partitions.MUTANTS,
    *following.MUTANTS,
    *upkeep.MUTANTS,
    *restarts.MUTANTS,
    *secrets.MUTANTS,
    *security.MUTANTS,
    *links.MUTANTS,
    *compaction.MUTANTS,
    *groups.MUTANTS,
    *consumer_groups.MUTANTS,
    *migration.MUTANTS,
    *transactions.MUTANTS,
)
