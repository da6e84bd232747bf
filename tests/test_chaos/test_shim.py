"""The preloaded library that gives processes which are not Kvorum's the faults of a board."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time

import pytest

from kvorum.chaos.live.systems import opening, shim
from kvorum.chaos.live.systems.capabilities import KAFKA_CAPABILITIES, OF_FAULT_BOARDS
from kvorum.chaos.live.systems.opening import choose_system
from kvorum.chaos.live.systems.shim import NoShim, shim_environment, shim_library
from kvorum.runtime.fault_board import HEALTHY, Conditions, Hits, create_board
from tests.polling import eventually

HOUR_MS = 3_600_000
HOUR_US = HOUR_MS * 1_000

#: A program that evaluates the lines of its input in one namespace, and answers with the value or
#: the errno.
VICTIM = """
import errno, json, os, sys, time
names = {"os": os, "time": time}
for line in sys.stdin:
    try:
        try:
            answer = eval(line, names)
        except SyntaxError:
            answer = exec(line, names)
        answer = answer if isinstance(answer, (int, float)) else None
    except OSError as error:
        answer = errno.errorcode[error.errno]
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    try:
        return shim_library(tmp_path_factory.mktemp("cache"))
    except NoShim as reason:
        pytest.skip(str(reason))


@pytest.fixture
def board(tmp_path):
    board = create_board(str(tmp_path / "victim.board"))
    yield board
    board.close()


class Victim:
    """A Python process with the library, which knows nothing of boards."""

    def __init__(self, library, board, folder) -> None:
        environment = shim_environment(library, board=board.path, directory=folder)
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-c", VICTIM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def send(self, line: str) -> None:
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def answer(self) -> object:
        return json.loads(self._process.stdout.readline())

    def does(self, line: str) -> object:
        self.send(line)
        return self.answer()

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


@pytest.fixture
def victim(library, board, tmp_path):
    """A process with the descriptors `inside` and `outside` of its data directory, and `folder`."""
    data = tmp_path / "data"
    data.mkdir()
    # The data directory is given by a symbolic link, as /tmp is on macOS; the kernel resolves links
    # in file names.
    link = tmp_path / "link"
    link.symlink_to(data)
    victim = Victim(library, board, link)
    flags = "os.O_RDWR | os.O_CREAT"
    victim.does(f"inside = os.open({str(data / 'log')!r}, {flags})")
    victim.does(f"outside = os.open({str(tmp_path / 'data-too')!r}, {flags})")
    victim.does(f"folder = os.open({str(data)!r}, os.O_RDONLY)")
    yield victim
    victim.close()


def test_an_idle_board_changes_nothing(victim, board):
    assert victim.does("os.write(inside, b'abc')") == 3
    assert victim.does("os.fsync(inside)") is None
    assert victim.does("os.ftruncate(inside, 1)") is None
    assert abs(victim.does("time.time()") - time.time()) < 60
    assert board.hits() == Hits(delayed_syncs=0, failed_calls=0)


@pytest.mark.parametrize("call", ["os.fsync(inside)", "os.fdatasync(inside)", "os.fsync(folder)"])
def test_syncs_of_the_data_directory_fail(victim, board, call):
    board.set(Conditions(sync_errno=errno.EIO))
    assert victim.does(call) == "EIO"
    assert victim.does("os.fsync(outside)") is None
    assert victim.does("os.write(inside, b'x')") == 1
    assert board.hits().failed_calls == 1
    board.set(HEALTHY)
    assert victim.does(call) is None


@pytest.mark.parametrize(
    "call",
    [
        "os.write(FD, b'more')",
        "os.pwrite(FD, b'more', 0)",
        "os.writev(FD, [b'mo', b're'])",
        "os.pwritev(FD, [b'mo', b're'], 0)",
        "os.ftruncate(FD, 9)",
    ],
)
def test_every_way_to_change_a_file_fails(victim, board, call):
    board.set(Conditions(write_errno=errno.EROFS))
    assert victim.does(call.replace("FD", "inside")) == "EROFS"
    assert victim.does(call.replace("FD", "outside")) != "EROFS"
    assert victim.does("os.fsync(inside)") is None
    board.set(HEALTHY)
    assert victim.does(call.replace("FD", "inside")) in (4, None)


def test_a_full_disk_counts_the_bytes_by_which_files_grow(victim, board):
    assert victim.does("os.write(inside, b'0123456789')") == 10
    board.set(Conditions(room_bytes=6))
    assert victim.does("os.pwrite(inside, b'ABCDEF', 8)") == 6
    assert victim.does("os.write(inside, b'abcd')") == 4
    assert victim.does("os.pwritev(inside, [b'xy', b'z'], 14)") == "ENOSPC"
    assert victim.does("os.write(outside, b'anything')") == 8
    assert victim.does("os.pwritev(inside, [b'x', b'y'], 14)") == 2
    assert victim.does("os.write(inside, b'z')") == 1
    assert victim.does("os.lseek(inside, 0, os.SEEK_END)") == 16
    assert victim.does("os.write(inside, b'z')") == "ENOSPC"
    board.set(HEALTHY)
    assert victim.does("os.write(inside, b'z')") == 1


def test_a_file_open_for_appending_grows_at_its_end(victim, board, tmp_path):
    path = tmp_path / "data" / "appended"
    path.write_bytes(b"0123456789")
    victim.does(f"appending = os.open({str(path)!r}, os.O_WRONLY | os.O_APPEND)")
    board.set(Conditions(room_bytes=0))
    assert victim.does("os.write(appending, b'x')") == "ENOSPC"


def test_a_slow_fsync_waits_and_ends_with_its_fault(victim, board):
    board.set(Conditions(sync_delay_us=HOUR_US))
    assert victim.does("os.fsync(outside)") is None
    victim.send("os.fdatasync(inside)")
    eventually(lambda: board.hits().delayed_syncs == 1, "the fsync waits")
    board.set(HEALTHY)
    assert victim.answer() is None


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS, 1_999, -1_999, 1])
def test_the_wall_clock_steps_and_the_monotonic_clock_does_not(victim, board, step_ms):
    real, coarse = "time.clock_gettime(time.CLOCK_REALTIME)", "time.clock_gettime(5)"
    board.set(Conditions(clock_offset_ms=step_ms))
    for reading in ("time.time()", real, coarse):
        before = time.time()
        stepped = victim.does(reading) - step_ms / 1000
        # The coarse clock lags by a tick.
        assert before - 0.1 <= stepped <= time.time()
    before_s = time.monotonic()
    assert before_s <= victim.does("time.monotonic()") <= time.monotonic()
    board.set(HEALTHY)
    before = time.time()
    assert before <= victim.does(real) <= time.time()


@pytest.mark.parametrize("content", [b"", b"no board"])
def test_a_process_whose_faults_would_be_missing_does_not_start(library, tmp_path, content):
    board = tmp_path / "board"
    board.write_bytes(content)
    environment = shim_environment(library, board=str(board), directory=tmp_path)
    done = subprocess.run(
        ["true"], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "kvorum fault shim: KVORUM_FAULT_BOARD is no fault board" in done.stderr


def test_the_library_is_built_once(library, monkeypatch):
    monkeypatch.setattr(shim.subprocess, "run", lambda *_, **__: pytest.fail("compiled again"))
    assert shim_library(library.parent) == library


def test_a_machine_without_a_compiler_says_so_and_kafka_loses_these_faults(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoShim, match="need a C compiler, and none of cc, gcc, clang is on PATH"):
        shim_library()
    monkeypatch.setattr(opening, "find_java", lambda: "java")
    (tmp_path / "kafka_2.13-4.3.1.jar").touch()
    chosen = choose_system("kafka", kafka_libs=str(tmp_path))
    assert chosen.capabilities == KAFKA_CAPABILITIES - OF_FAULT_BOARDS
    assert set(chosen.lacks) == OF_FAULT_BOARDS and chosen.shim is None


def test_a_compiler_that_fails_is_quoted(tmp_path, monkeypatch):
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'dlfcn.h: no such file' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(NoShim, match=r"faults\.c, which .*/cc does not compile: dlfcn\.h: no such"):
        shim_library(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
