"""One log's clean, from the plan to the swap: what the log gives the job, and what it takes back.

The log cleaner of a broker calls these on the loop, and runs the job (`cleaner.py`) in a thread.
"""

from __future__ import annotations

from kvorum.storage.cleaning.cleanable_range import CleaningPlan, plan_cleaning
from kvorum.storage.cleaning.cleaner import CleanerConfig, CleaningJob
from kvorum.storage.log.log import Log


def plan(
    log: Log, *, checkpoint: int | None, high_watermark: int, now_ms: int
) -> CleaningPlan | None:
    """What a clean would do; None if nothing may be cleaned, or the log is not compacted.

    checkpoint: `end_offset` of the last clean that was done, None if there was none.
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
    """The job that carries out `plan`, which was just made. See `cleaner.py`."""
    items = log.segments.items
    cleaned = [s for s in items if s.base_offset < plan.first_uncleanable_offset]
    # Not what they wrote behind these segments: that may be cut yet. Bad sequence: 1. only that
    # is kept, 2. a new replica copies up to it, 3. and leads: it knows nothing of a producer.
    known = log.segments.keep_producers(len(cleaned)).ends()
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
    """`CleaningJob.swap` has returned: read the new segment instead of the old ones."""
    log.segments.apply_swap(delete_at_ms=now_ms + log.config.file_delete_delay_ms)


def end(log: Log, job: CleaningJob) -> None:
    """The job is done, cancelled or has failed, and its thread has returned."""
    log.segments.end_cleaning(job)
