"""A log some of whose .log files have gone, though what was in them had been flushed."""

from __future__ import annotations

import pytest

from runtime.errors import CorruptData
from tests.test_storage.test_recovery import DIRECTORY, filled, new_disk, opened


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("left", [(), (0,), (0, 3)])
def test_a_log_that_lost_flushed_records_with_their_files_is_damaged(
    left: tuple[int, ...], is_clean: bool
) -> None:
    disk = new_disk()
    log = filled(disk, 10)
    log.flush()
    log.close()
    for base in {0, 3, 6, 9} - set(left):
        disk.remove(f"{DIRECTORY}/{base:020d}.log")
    with pytest.raises(CorruptData, match=r"end at \d, and were flushed up to 10: .* are gone"):
        opened(disk, recovery_point=10, is_clean=is_clean)


def test_an_empty_log_that_begins_where_it_was_flushed_up_to_has_lost_nothing() -> None:
    log = opened(new_disk(), log_start_offset=10, recovery_point=10)
    assert (log.start_offset, log.end_offset) == (10, 10)
