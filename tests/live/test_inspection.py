"""`kvorum metadata` against a live cluster, a directory in use, and the copied disk of a stopped
node.
"""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.clients import Topics
from tests.live.cluster import Cluster, run_kvorum
from tests.polling import DEADLINE_S, eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

NODE = "controller-1"
#: Snapshots come quickly, and the oldest ones go.
SETTINGS = (
    "metadata.log.max.record.bytes.between.snapshots=20000",
    "metadata.max.retention.bytes=150000",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("inspection")
    with Cluster(folder, controllers=1, brokers=2, settings=SETTINGS) as cluster:
        topics = Topics(cluster.bootstrap)
        topics.create("orders", partitions=3, replicas=2)
        topics.create("events", partitions=1, replicas=1)
        yield cluster


def data_of(cluster: Cluster, name: str = NODE) -> Path:
    return Path(cluster.nodes()[name]["directory"])


def metadata(*arguments: Any, typed: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "kvorum", "metadata", *map(str, arguments)],
        input=typed,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def files_below(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of change of every file and folder."""
    return {
        str(path): (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns)
        for path in [folder, *folder.rglob("*")]
    }


def every_command(source: list[Any], out: Path) -> None:
    """Run each reading command once; each must show the topics."""
    for arguments in (["ls", "/topics"], ["cat", "/topics"], ["tree", "/topics"],
                      ["find", "orders"], ["dump"]):  # fmt: skip
        assert "orders" in metadata(*arguments, *source).stdout, arguments
    assert "orders" in metadata("shell", *source, typed="cd topics\nls\n").stdout
    exported = json.loads(metadata("export", "--out", out, "-o", "json", *source).stdout)
    assert all(Path(row["file"]).exists() for row in exported)
    metadata("snapshot", "--out", out, *source)


@pytest.mark.parametrize("way", ["broker", "controller"])
def test_every_command_is_live(cluster: Cluster, tmp_path: Path, way: str) -> None:
    by_way = {
        "broker": ["-b", cluster.bootstrap],
        "controller": ["--bootstrap-controller", cluster.bootstrap_controller],
    }
    source = by_way[way]
    every_command(source, tmp_path)
    end = json.loads(metadata("cat", "/provenance/end_offset", *source).stdout)
    made = f"made-via-{way}"
    Topics(cluster.bootstrap).create(made, replicas=1)
    lines = metadata("diff", end, "live", *source).stdout.splitlines()
    assert any(line.startswith(f"+ /topics/{made} ") for line in lines)
    before = metadata("ls", "/topics", "--at-offset", end, *source)
    assert f"{made}/" not in before.stdout and before.stderr == ""
    assert f"{made}/" in metadata("ls", "/topics", *source).stdout


def test_a_shell_sees_what_comes_while_it_is_open(cluster: Cluster) -> None:
    command = [sys.executable, "-m", "kvorum", "metadata", "shell", "-b", cluster.bootstrap]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as shell:
        assert shell.stdin is not None and shell.stdout is not None
        shell.stdin.write("cat /topics/orders/id\n")
        assert shell.stdout.readline().startswith('"')
        Topics(cluster.bootstrap).create("meanwhile", replicas=1)
        shell.stdin.write("find /topics/meanwhile\nexit\n")
        assert shell.stdout.readline() == "/topics/meanwhile/\n"
        assert shell.wait(DEADLINE_S) == 0


def test_a_directory_in_use_is_neither_written_nor_locked(cluster: Cluster, tmp_path: Path) -> None:
    folder = data_of(cluster)
    # Pause the node, which writes to its files, while they are compared.
    cluster.signal(NODE, signal.SIGSTOP)
    try:
        before = files_below(folder)
        every_command(["--directory", folder], tmp_path)
        assert files_below(folder) == before
    finally:
        cluster.signal(NODE, signal.SIGCONT)
    done = metadata("ls", "/topics", "--directory", folder)
    assert "nobody knows here whether it is committed" in done.stderr
    # A shell that has the folder open keeps nobody from taking the node's lock.
    command = [sys.executable, "-m", "kvorum", "metadata", "shell", "--directory", str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, bufsize=1,
    ) as shell:  # fmt: skip
        assert shell.stdin is not None and shell.stdout is not None
        shell.stdin.write("pwd\n")
        assert shell.stdout.readline() == "/\n"
        cluster.kill(NODE)
        cluster.restart(NODE)
        Topics(cluster.bootstrap).create("after-restart", replicas=1)
        shell.stdin.write("refresh\nfind /topics/after-restart\nexit\n")
        assert "/topics/after-restart/" in shell.communicate(timeout=DEADLINE_S)[0]


def test_a_broker_holds_the_metadata_too(cluster: Cluster) -> None:
    folder = data_of(cluster, "broker-101")
    eventually(
        lambda: "orders/" in metadata("ls", "/topics", "--directory", folder).stdout,
        "the broker's own copy of the log has the topic",
    )


def test_a_terminal_completes_paths_and_keeps_what_was_typed(
    cluster: Cluster, tmp_path: Path
) -> None:
    pytest.importorskip("readline")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb"}
    command = [sys.executable, "-m", "kvorum", "metadata", "shell"]
    command += ["--directory", str(data_of(cluster))]
    shell = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen = ""

    def read_more() -> None:
        nonlocal seen
        if select.select([ours], [], [], 1)[0]:
            seen += os.read(ours, 4096).decode()

    def wait_for(text: str) -> None:
        nonlocal seen
        eventually(lambda: text in seen, f"the shell says {text!r}", meanwhile=read_more)
        seen = seen.partition(text)[2]

    try:
        wait_for("kvorum:/> ")
        os.write(ours, b"cd /topics/ord\t\n")
        wait_for("kvorum:/topics/orders> ")
        os.write(ours, b"ls /nowhere\n")
        wait_for("no such path in the metadata: /nowhere")
        os.write(ours, b"exit\n")
        assert shell.wait(DEADLINE_S) == 0
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
    kept = (tmp_path / "kvorum" / "metadata_shell_history").read_text().splitlines()
    assert kept[-3:] == ["cd /topics/orders/", "ls /nowhere", "exit"]


def test_time_travel_reaches_as_far_back_as_the_oldest_snapshot(cluster: Cluster) -> None:
    topics = Topics(cluster.bootstrap)

    def first_offset() -> int:
        reach = metadata("shell", "-b", cluster.bootstrap, typed="at\n").stdout
        return int(reach.rpartition("reaches ")[2].split()[0])

    number = 0
    while first_offset() == 0:
        number += 1
        assert number < 40, "the log was not trimmed"
        topics.create(f"wide-{number}", partitions=200, replicas=1)
        # Its folder is read while the node appends, takes snapshots and removes old ones.
        done = metadata("ls", "/topics", "--directory", data_of(cluster))
        assert "orders/" in done.stdout
    first = first_offset()
    done = metadata("ls", "--at-offset", first - 1, "-b", cluster.bootstrap, code=1)
    assert f"the cluster has no image at offset {first - 1}: it reaches {first}" in done.stderr
    assert "orders/" in metadata(
        "ls", "/topics", "--at-offset", first, "-b", cluster.bootstrap
    ).stdout  # fmt: skip


def test_the_copied_disk_of_a_stopped_cluster_shows_what_the_cluster_showed(
    cluster: Cluster, tmp_path: Path
) -> None:
    live = json.loads(metadata("cat", "/topics", "-b", cluster.bootstrap).stdout)
    folder = data_of(cluster)
    assert cluster.stop() == 0
    copied = tmp_path / "copied"
    shutil.copytree(folder, copied)
    before = files_below(copied)
    every_command(["--directory", copied], tmp_path / "out")
    assert files_below(copied) == before
    assert (
        json.loads(metadata("cat", "/topics/orders/id", "--directory", copied).stdout)
        == (live["orders"]["id"])
    )
    shown = json.loads(metadata("cat", "/topics", "--directory", copied).stdout)
    assert shown.keys() == live.keys()
    done = run_kvorum("metadata", "diff", str(copied), str(folder))
    assert (done.returncode, done.stdout) == (0, "")
