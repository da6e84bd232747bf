"""`kvorum metadata` over files: every command, its messages on stderr, and its exit codes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest

from kvorum.cli.main import main
from kvorum.metadata.image.records import BrokerRegistrationChange
from kvorum.metadata.inspect.tree import content
from kvorum.runtime.disk import OsDisk
from tests.test_metadata.folders import (
    records_of_seed,
    replayed,
    segments_in,
    write_log,
    write_snapshot,
)

RECORDS = records_of_seed(7)
END = len(RECORDS)
BASE = 30


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A node's data directory with its log from 0 on and a snapshot."""
    path = tmp_path_factory.mktemp("node")
    folder = str(path / "__cluster_metadata-0")
    write_log(OsDisk(), RECORDS, folder=folder).close()
    write_snapshot(OsDisk(), replayed(RECORDS, BASE), folder=folder)
    return path


@pytest.fixture
def kvorum(monkeypatch, capsys):
    """Runs `kvorum metadata ARGUMENTS`: (exit code, stdout, stderr)."""

    def run(*arguments, typed=None):
        monkeypatch.setattr(sys, "argv", ["kvorum", "metadata", *map(str, arguments)])
        if typed is not None:
            monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return end.value.code, captured.out, captured.err

    return run


def snapshot_in(node):
    return next((node / "__cluster_metadata-0").glob("*.checkpoint"))


@pytest.fixture(params=["directory", "inner", "snapshot"])
def place(request, node):
    """(options, the offset that they show)."""
    return {
        "directory": (["--directory", node], END),
        "inner": (["--directory", node / "__cluster_metadata-0", "--at-offset", 51], 51),
        "snapshot": (["--snapshot", snapshot_in(node)], BASE),
    }[request.param]


def test_every_command_reads_every_place(kvorum, place, tmp_path):
    options, offset = place
    image = replayed(RECORDS, offset)
    name = min(image.topic_ids)
    for arguments in (["ls", "/topics"], ["cat", "/topics"], ["tree", "/topics", "--depth", "2"],
                      ["find", "leader"], ["shell"], ["export", "--out", tmp_path / "e"],
                      ["snapshot", "--out", tmp_path / "s"]):  # fmt: skip
        code, out, err = kvorum(*arguments, *options, typed="ls /topics\n")
        assert code == 0, err
        assert arguments[0] in ("export", "snapshot") or name in out or "/leader = " in out
        assert err == "" or (err.count("\n") == 1 and "nobody knows here whether it is comm" in err)
    code, out, _ = kvorum("cat", "/", *options)
    assert json.loads(out) == content(image, "/")
    code, out, _ = kvorum("tree", "/topics", "-o", "json", *options)
    assert json.loads(out) == content(image, "/topics")
    code, out, _ = kvorum("find", "leader", "--value", "101", "-o", "json", *options)
    assert all(row["value"] == 101 and row["path"].endswith("/leader") for row in json.loads(out))
    again = kvorum("cat", "/", "--snapshot", next((tmp_path / "s").iterdir()))
    assert json.loads(again[1]) == content(image, "/")


def test_offset_out_of_reach_exits_with_1_and_the_range(kvorum, node):
    code, out, err = kvorum("ls", "/", "--directory", node, "--at-offset", END + 1)
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].endswith(f"no image at offset {END + 1}: it reaches 0 to {END}")
    snapshot = snapshot_in(node)
    code, _, err = kvorum("cat", "/", "--snapshot", snapshot, "--at-offset", 3)
    assert (code, err) == (
        1, f"kvorum: {snapshot} has no image at offset 3: it reaches {BASE}\n"
    )  # fmt: skip


def test_two_sources_at_once_are_wrong_use(kvorum, node):
    code, _, err = kvorum("ls", "/", "--directory", node, "-b", "localhost:1")
    assert code == 2 and "--directory and --bootstrap-server name two" in err
    code, _, err = kvorum("ls", "/", "--directory", node, "--snapshot", snapshot_in(node))
    assert code == 2 and "give one source" in err


def test_diff_of_offsets_and_of_sources(kvorum, node):
    at = next(i for i, r in enumerate(RECORDS) if isinstance(r, BrokerRegistrationChange))
    broker_id = RECORDS[at].broker_id
    code, out, _ = kvorum("diff", at, at + 1, "--directory", node)
    changed = [line for line in out.splitlines() if line.startswith(f"~ /brokers/{broker_id}/")]
    assert code == 0 and out.splitlines() == changed and changed
    code, out, _ = kvorum("diff", at, at + 1, "--directory", node, "-o", "json")
    for each in json.loads(out):
        assert each["change"] == "changed" and each["path"].startswith(f"/brokers/{broker_id}/")
        assert each["before"] == content(replayed(RECORDS, at), each["path"])
        assert each["after"] == content(replayed(RECORDS, at + 1), each["path"])
    code, out, _ = kvorum("diff", snapshot_in(node), f"{node}@{BASE}")
    assert (code, out) == (0, "")
    code, out, _ = kvorum("diff", snapshot_in(node), node)
    assert code == 0 and out
    code, _, err = kvorum("diff", "1", "nowhere@3", "--directory", node)
    assert code == 2 and "'nowhere@3' is no offset, no path that exists, and not live" in err


def test_dump_names_types_and_offsets(kvorum, node):
    code, out, _ = kvorum("dump", "--directory", node)
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [line["offset"] for line in lines] == list(range(END))
    assert lines[0]["type"] == "LeaderChange"
    assert [line["type"] for line in lines[1:]] == [type(r).__name__ for r in RECORDS[1:]]
    assert list(lines[1]) == ["offset", "epoch", "timestamp_ms", "type", "version", "data"]
    code, out, _ = kvorum("dump", "--directory", node, "--from", 5, "--to", 8)
    assert [json.loads(line)["offset"] for line in out.splitlines()] == [5, 6, 7]
    code, out, err = kvorum("dump", "--snapshot", snapshot_in(node), "--from", 5)
    assert (code, out) == (2, "")
    assert "kvorum snapshot inspect --records" in " ".join(err.split())


def test_script_for_the_shell_ends_at_its_first_error_with_the_line(kvorum, node):
    script = "cd /topics\nat 40\npwd\nls nowhere\npwd\n"
    code, out, err = kvorum("shell", "--directory", node, typed=script)
    assert code == 1 and out.splitlines()[-1] == "/topics" and len(out.splitlines()) == 2
    assert err.splitlines()[-1] == ("kvorum: line 4: no such path in the metadata: /topics/nowhere")
    code, out, _ = kvorum("shell", "--directory", node, typed="pwd\nexit\nls /nowhere\n")
    assert (code, out) == (0, "/\n")


def test_damage_and_torn_tails_are_told_by_file_and_byte(kvorum, tmp_path):
    folder = str(tmp_path / "__cluster_metadata-0")
    write_log(OsDisk(), RECORDS, folder=folder).close()
    last = segments_in(OsDisk(), folder)[-1]
    whole = OsDisk().read_bytes(last)
    with open(last, "ab") as file:
        file.write(b"half a batch")
    code, out, err = kvorum("ls", "/topics", "--directory", tmp_path)
    assert code == 0 and out
    assert f"kvorum: {last}: torn tail of 12 bytes at byte {len(whole)} is left alone" in err
    assert OsDisk().read_bytes(last) == whole + b"half a batch"
    first = segments_in(OsDisk(), folder)[0]
    with open(first, "r+b") as file:
        file.seek(90)
        file.write(b"\xff\xff\xff")
    code, out, err = kvorum("ls", "/topics", "--directory", tmp_path)
    assert (code, out) == (1, "") and err.startswith(f"kvorum: {first} at byte ")


def test_folder_without_metadata_is_refused(kvorum, tmp_path):
    code, _, err = kvorum("ls", "--directory", tmp_path)
    assert code == 1 and "name a node's data directory or its __cluster_metadata-0" in err


def test_lines_typed_are_kept_in_the_state_folder(monkeypatch, tmp_path):
    from kvorum.cli.metadata_shell import history_path

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert history_path() == str(tmp_path / "kvorum" / "metadata_shell_history")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    assert history_path() == "/home/ada/.local/state/kvorum/metadata_shell_history"


def test_a_reader_that_has_seen_enough_ends_the_command_without_a_word(node):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "kvorum", "metadata", "dump", "--directory", str(node)]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and "Broken pipe" not in done.stderr
