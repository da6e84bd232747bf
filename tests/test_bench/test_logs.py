"""The arithmetic of `python -m bench.logs`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.logs.figures import FIGURES, STARTS, markdown, rows, unclean_read_ratio
from bench.logs.measure import _bytes_from, _read_mb
from kvorum.runtime.disk import OsDisk
from kvorum.storage.format.batch import build_batch


def test_goals_are_judged_on_medians_and_a_failure_is_no_goal_met() -> None:
    samples = {"idle_percent": [1.0, 1.5, 9.0], "idle_files": [0, 0, 1], "clean_read_mb": [0.5]}
    table = {row[0]: row[2:] for row in rows(samples, {STARTS: "broken"})}
    titles = {figure.key: figure.title for figure in FIGURES}
    assert table[titles["idle_percent"]] == ("1.50 (1.00-9.00)", "≤ 2", "met")
    assert table[titles["idle_files"]] == ("0 (0-1.00)", "≤ 0", "met")
    assert table[titles["clean_read_mb"]] == ("0.50, failed once or more", "≤ 1", "missed")
    assert table[titles["clean_restart_s"]] == ("-, failed once or more", "≤ 1", "missed")
    assert titles["idle_restart_s"] not in table
    text = markdown(machine={"cores": "2"}, method=["so"], table=rows(samples, {}), failures={})
    assert "## Failed" not in text and "| cores | 2 |" in text


def test_nothing_to_recover_is_no_ratio() -> None:
    assert unclean_read_ratio(30, 20) == 1.5
    with pytest.raises(ValueError, match="nothing to recover"):
        unclean_read_ratio(30, 0)


def test_what_lies_past_an_offset_is_counted_in_whole_batches(tmp_path: Path) -> None:
    batches = [build_batch([(None, b"x")] * 2, timestamp_ms=0, base_offset=at) for at in (0, 2, 4)]
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join(batches))
    size = len(batches[0])
    assert [_bytes_from(path, at) // size for at in range(7)] == [3, 3, 2, 2, 1, 1, 0]


def test_what_a_process_has_read_is_known(tmp_path: Path) -> None:
    import os

    (tmp_path / "f").write_bytes(bytes(2_000_000))
    before = _read_mb(os.getpid())
    OsDisk().read_bytes(str(tmp_path / "f"))
    assert 2 <= _read_mb(os.getpid()) - before < 3
