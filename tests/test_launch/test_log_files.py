"""Log files of a dev cluster that have grown."""

from __future__ import annotations

import os

from kvorum.launch.daemon.log_files import rotate


def test_a_large_file_is_put_aside_and_its_writer_goes_on(tmp_path):
    path = tmp_path / "broker-101.log"
    writer = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for number in range(5):
            os.write(writer, b"%d" % number * 100)
            assert rotate(str(path), bytes_max=50, kept=3)
            assert path.read_bytes() == b""
        os.write(writer, b"last")
        assert not rotate(str(path), bytes_max=50, kept=3)
    finally:
        os.close(writer)
    assert path.read_bytes() == b"last"
    kept = {name: (tmp_path / name).read_bytes()[:1] for name in sorted(os.listdir(tmp_path))}
    assert kept == {
        "broker-101.log": b"l", "broker-101.log.1": b"4", "broker-101.log.2": b"3",
        "broker-101.log.3": b"2",
    }  # fmt: skip


def test_a_file_that_is_not_there_is_left_alone(tmp_path):
    assert not rotate(str(tmp_path / "none"), bytes_max=0)
