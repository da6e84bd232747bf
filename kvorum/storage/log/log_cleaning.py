"""The clean of one log: from the plan, through the job, to the swap in memory.

The log cleaner of a broker calls these functions on the event loop, and runs the job (`cleaner.py`)
in a thread.
"""

from __future__ import annotations

from kvorum.storage.cleaning.cleanable_range import CleaningPlan, plan_cleaning
from kvorum.storage.cleaning.cleaner import CleanerConfig, CleaningJob
from kvorum.storage.log.log import Log


def plan(
    log: Log, *, checkpoint: int | None, high_watermark: int, now_ms: int
) -> CleaningPlan | None:
    """The plan of a clean; None if nothing may be cleaned, or the log is not compacted.

    checkpoint: `end_offset` of the last finished clean, None if there was none.
    """
    compaction = log.config.compaction
    prefix = log.segments.sealed_prefix()
    if compaction is None or not prefix or log.segments.is_cleaning:
        return None
    return plan_cleaning(
        log.segments.items[: len(prefix) + 1],
        checkpoint=checkpoint,
        start_offset=log.start_offset,
        stable_offset=log.last_stable_offset(high_watermark),
        config=compaction,
        now_ms=now_ms,
    )


def begin(log: Log, plan: CleaningPlan, config: CleanerConfig, *, now_ms: int) -> CleaningJob:
    """Create the job that carries out `plan`, which was just made. See `cleaner.py`."""
    items = log.segments.items
    cleaned = [s for s in items if s.base_offset < plan.first_uncleanable_offset]
    # Only the producers' last batches within these segments count; later batches may still be
    # truncated. Bad sequence if only later ones were kept:
    # 1. A clean removes a producer's last batch from these segments.
    # 2. A new replica copies the log up to their end.
    # 3. The replica becomes leader and does not know that producer.
    known = log.segments.ensure_producer_snapshot(len(cleaned)).ends()
    alive = log.producers.entries
    job = CleaningJob(
        log.disk,
        log.directory,
        segments=cleaned,
        plan=plan,
        aborted=[entry for segment in items for entry in segment.aborted],
        producers={key: end for key, end in known.items() if key in alive},
        log_config=log.config,
        config=config,
        now_ms=now_ms,
    )
    log.segments.begin_cleaning(job)
    return job


def apply_swap(log: Log, now_ms: int) -> None:
    """Read the new segment instead of the old ones, after `CleaningJob.swap` has returned."""
    log.segments.apply_swap(delete_at_ms=now_ms + log.config.file_delete_delay_ms)


def end(log: Log, job: CleaningJob) -> None:
    """End a job that is done, cancelled or failed; its thread must have returned."""
    log.segments.end_cleaning(job)
