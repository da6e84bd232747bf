"""Refusals of `kvorum dev`: one line, exit code 2, and no process was started."""

from __future__ import annotations

import json
import os
import socket
import sys

import pytest

from kvorum.cli.main import main
from kvorum.launch.cluster.cluster_file import read_cluster_file
from kvorum.launch.cluster.plan import node_count
from kvorum.launch.cluster.this_machine import plan_cluster
from kvorum.launch.dev import supervisor
from tests.test_launch.node_folders import known_cluster


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def spawn(*_: object, **__: object) -> None:
        raise AssertionError("a process would have been started")

    monkeypatch.setattr(supervisor, "spawn", spawn)


def refusal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> str:
    """The one line that `kvorum dev ARGUMENTS` says."""
    monkeypatch.setattr(sys, "argv", ["kvorum", "dev", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    captured = capsys.readouterr()
    assert end.value.code == 2, captured.err
    assert captured.out == ""
    assert captured.err.startswith("kvorum: ")
    assert len(captured.err.splitlines()) == 1, captured.err
    return captured.err


def test_directory_that_cannot_be_made_is_refused(monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    said = refusal(monkeypatch, capsys, "--data-dir", tmp_path / "file")
    assert f"cannot use data directory {tmp_path}/file: File exists" in said
    said = refusal(monkeypatch, capsys, "--data-dir", tmp_path / "file" / "below")
    assert f"cannot use data directory {tmp_path}/file/below: Not a directory" in said


def test_read_only_directory_is_refused(monkeypatch, capsys, tmp_path):
    # Not made read-only by its mode, because a superuser could still write.
    monkeypatch.setattr(os, "access", lambda _, mode: not mode & os.W_OK)
    said = refusal(monkeypatch, capsys, "--data-dir", tmp_path)
    assert f"cannot write to data directory {tmp_path}: permission denied" in said


def test_foreign_directory_is_refused_and_left_alone(monkeypatch, capsys, tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    said = refusal(monkeypatch, capsys, "--data-dir", tmp_path)
    assert "is not empty and holds no cluster.json (it holds 'thesis.tex')" in said
    assert os.listdir(tmp_path) == ["thesis.tex"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"version": 9, "nodes": []}'])
def test_damaged_cluster_file_is_refused(monkeypatch, capsys, tmp_path, text):
    (tmp_path / "cluster.json").write_text(text)
    assert str(tmp_path / "cluster.json") in refusal(monkeypatch, capsys, "--data-dir", tmp_path)


def test_node_directory_of_another_cluster_is_refused(monkeypatch, capsys, tmp_path):
    cluster_id = known_cluster(tmp_path)
    (tmp_path / "broker-102").mkdir()
    (tmp_path / "broker-102" / "meta.properties").write_text(
        "version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=102\n"
        "directory.id=BBBBBBBBBBBBBBBBBBBBBA\n"
    )
    said = refusal(monkeypatch, capsys, "--data-dir", tmp_path, "--port", 31_000)
    assert "broker-102 belongs to cluster AAAAAAAAAAAAAAAAAAAAAA" in said
    assert f"cluster.id={cluster_id}" in said


def test_node_directory_of_another_node_is_refused(monkeypatch, capsys, tmp_path):
    cluster_id = known_cluster(tmp_path)
    (tmp_path / "broker-102").mkdir()
    (tmp_path / "broker-102" / "meta.properties").write_text(
        f"version=1\ncluster.id={cluster_id}\nnode.id=103\ndirectory.id=BBBBBBBBBBBBBBBBBBBBBA\n"
    )
    said = refusal(monkeypatch, capsys, "--data-dir", tmp_path, "--port", 31_000)
    assert "belongs to node 103" in said


def test_voter_set_may_not_change_and_brokers_may_not_shrink(monkeypatch, capsys, tmp_path):
    known_cluster(tmp_path)
    said = refusal(monkeypatch, capsys, "--data-dir", tmp_path, "--controllers", 5)
    assert "has 3 controllers, not 5" in said
    said = refusal(monkeypatch, capsys, "--data-dir", tmp_path, "--brokers", 2)
    assert "has 3 brokers; starting only 2" in said
    assert said.rstrip().endswith("start it with --brokers 3 or more")


def test_a_known_cluster_keeps_its_numbers_of_nodes_unless_told(tmp_path):
    known_cluster(tmp_path, controllers=1, brokers=5)
    known = read_cluster_file(str(tmp_path))
    assert [node_count(known, role, None) for role in ("controller", "broker")] == [1, 5]
    assert node_count(known, "broker", 6) == 6
    assert node_count(None, "broker", None) == 3


@pytest.mark.parametrize("place", ["nowhere", "file"])
def test_a_ready_file_without_a_folder_is_refused_before_a_start(
    monkeypatch, capsys, tmp_path, place
):
    (tmp_path / "file").touch()
    path = tmp_path / place / "ready"
    said = refusal(
        monkeypatch, capsys, "--data-dir", tmp_path / "data", "--port", 31_000, "--ready-file", path
    )
    assert f"--ready-file {path}: there is no folder {path.parent}" in said
    assert not (tmp_path / "data").exists()


def test_pid_of_a_launcher_that_is_gone_keeps_nobody_out(tmp_path):
    """The pid may be a stranger's by now; here it is this test's own."""
    known_cluster(tmp_path)
    document = json.loads((tmp_path / "cluster.json").read_text())
    document["launcher_pid"] = os.getpid()
    (tmp_path / "cluster.json").write_text(json.dumps(document))
    plan = plan_cluster(controllers=3, brokers=3, data_dir=str(tmp_path), port=31_000)
    assert plan.cluster_id == document["cluster_id"] and not plan.is_new


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("log.segment.byte=1", "unknown property 'log.segment.byte' (did you mean "),
        ("log.segment.bytes=big", "property 'log.segment.bytes' must be a whole number, not 'big'"),
        ("unclean.leader.election.enable=maybe", "must be a boolean (true or false), not 'maybe'"),
        ("node.id=7", "'node.id' is decided by the launcher"),
        ("cluster.id=x", "'cluster.id' is decided by the launcher"),
        ("no-equals-sign", "'no-equals-sign' is not of the form key=value"),
        ("controller.quorum.request.timeout.ms=5000", "controller.quorum.fetch.timeout.ms must"),
    ],
)
def test_settings_that_cannot_be_are_refused(monkeypatch, capsys, tmp_path, setting, words):
    data_dir = tmp_path / "data"
    assert words in refusal(
        monkeypatch, capsys, "--data-dir", data_dir, "--port", 31_000, "--set", setting
    )


def test_several_unknown_settings_are_named_in_one_line(monkeypatch, capsys, tmp_path):
    said = refusal(monkeypatch, capsys, "--data-dir", tmp_path, "--set", "a=1", "--set", "b=2")
    assert "unknown property 'a', unknown property 'b'" in said


@pytest.mark.parametrize("option", ["--controllers", "--brokers"])
@pytest.mark.parametrize("count", [0, -1, 100])
def test_counts_out_of_range_are_refused(monkeypatch, capsys, tmp_path, option, count):
    said = refusal(monkeypatch, capsys, "--data-dir", tmp_path, option, count)
    assert f"{option}={count} must lie between 1 and 99" in said


def test_ports_above_the_last_are_refused(monkeypatch, capsys, tmp_path):
    said = refusal(monkeypatch, capsys, "--data-dir", tmp_path, "--port", 65_534)
    assert "would get port 65" in said and "above 65535" in said


def test_port_given_to_two_nodes_is_refused(monkeypatch, capsys, tmp_path):
    arguments = ["--data-dir", tmp_path, "--port", 31_000, "--controller-port", 31_002]
    said = refusal(monkeypatch, capsys, *arguments)
    assert "controller-1 and broker-103 would both get port 31002" in said


def test_every_port_in_use_is_named(monkeypatch, capsys, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        said = refusal(
            monkeypatch, capsys, "--data-dir", tmp_path, "--controllers", 1, "--brokers", 1,
            "--port", port, "--controller-port", 31_000 if port != 31_000 else 31_500,
        )  # fmt: skip
    assert f"cannot listen on 127.0.0.1:{port} for broker-101 (Address already in use)" in said
    assert os.listdir(tmp_path) == []


def test_links_file_that_is_none_is_refused(monkeypatch, capsys, tmp_path):
    (tmp_path / "links.json").write_text("[1]")
    said = refusal(
        monkeypatch, capsys, "--data-dir", tmp_path / "d", "--links", tmp_path / "links.json"
    )
    assert "links.json is not a links file" in said


def test_links_of_unknown_nodes_are_refused(monkeypatch, capsys, tmp_path):
    links = {"broker-101": {"peers": {"broker-999": "127.0.0.1:1"}}}
    (tmp_path / "links.json").write_text(json.dumps(links))
    said = refusal(
        monkeypatch, capsys, "--data-dir", tmp_path / "d", "--links", tmp_path / "links.json"
    )
    assert "links of broker-101 name unknown nodes: broker-999" in said


def test_restart_without_a_cluster_is_refused(monkeypatch, capsys, tmp_path):
    said = refusal(monkeypatch, capsys, "restart", "broker-101", "--data-dir", tmp_path)
    assert f"there is no cluster in {tmp_path}" in said
    assert read_cluster_file(str(tmp_path)) is None
    # --data-dir may also stand in front of `restart`, as in `kvorum dev --data-dir`.
    said = refusal(monkeypatch, capsys, "--data-dir", tmp_path, "restart", "broker-101")
    assert f"there is no cluster in {tmp_path}" in said
