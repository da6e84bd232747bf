"""The rules of the quorum, each with an edit that breaks it."""

from __future__ import annotations

from tests.mutants import elections_and_replication, snapshots_and_voters

MUTANTS = elections_and_replication.MUTANTS + snapshots_and_voters.MUTANTS
