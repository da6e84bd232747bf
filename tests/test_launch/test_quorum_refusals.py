"""Each wrong directory, file or setting of the quorum has its own refusal, and harms nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvorum.runtime.ids import new_uuid, uuid_text
from tests.live.by_hand import HandMade
from tests.live.cluster import Command, run_kvorum
from tests.polling import eventually

pytestmark = [pytest.mark.timeout(120)]


@pytest.fixture
def dynamic(tmp_path: Path) -> Iterator[HandMade]:
    made = HandMade(tmp_path, controllers=1, brokers=1)
    yield made
    made.close()


@pytest.fixture
def static(tmp_path: Path) -> Iterator[HandMade]:
    made = HandMade(tmp_path, controllers=1, brokers=1, is_static=True)
    yield made
    made.close()


def lead_once(cluster: HandMade) -> None:
    cluster.start("controller-1")
    eventually(lambda: cluster.try_quorum("status").returncode == 0, "it leads")
    cluster.stop("controller-1")


def test_both_kinds_of_voters_or_none_are_refused(dynamic: HandMade) -> None:
    voters = f"1@{dynamic.address('controller-1')}"
    dynamic.change("controller-1", controller_quorum_voters=voters)
    assert "and not both" in dynamic.refusal("controller-1")
    dynamic.change(
        "controller-1", controller_quorum_voters=None, controller_quorum_bootstrap_servers=None
    )
    said = dynamic.refusal("controller-1")
    assert "give either controller.quorum.voters" in said
    assert said.endswith("for a node to find its quorum")


def test_dynamic_directory_under_a_static_configuration_is_refused(dynamic: HandMade) -> None:
    voters = f"1@{dynamic.address('controller-1')}"
    dynamic.change(
        "controller-1", controller_quorum_voters=voters, controller_quorum_bootstrap_servers=None
    )
    assert "belongs to a quorum with dynamic voters" in dynamic.refusal("controller-1")


def test_static_directory_under_a_dynamic_configuration_is_refused(static: HandMade) -> None:
    lead_once(static)
    static.change(
        "controller-1",
        controller_quorum_voters=None,
        controller_quorum_bootstrap_servers=static.address("controller-1"),
    )
    assert "belongs to a quorum with static voters" in static.refusal("controller-1")


def test_directory_that_nobody_prepared_is_refused(dynamic: HandMade) -> None:
    dynamic.wipe("controller-1")
    said = dynamic.refusal("controller-1")
    assert "is not prepared for a controller with dynamic voters; kvorum init does" in said
    assert not dynamic.data("controller-1").exists() or not any(
        dynamic.data("controller-1").iterdir()
    )


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("cluster.id", "belongs to cluster"),
        ("node.id", "belongs to node 1, the configuration says node.id=7"),
    ],
)
def test_directory_of_another_is_refused(dynamic: HandMade, key: str, said: str) -> None:
    other = 7 if key == "node.id" else uuid_text(bytes(range(16)))
    dynamic.change("controller-1", **{key.replace(".", "_"): other})
    assert said in dynamic.refusal("controller-1")


def test_directory_id_that_is_none_is_refused(dynamic: HandMade) -> None:
    path = dynamic.data("controller-1") / "meta.properties"
    lines = [line for line in path.read_text().splitlines() if "directory.id" not in line]
    path.write_text("\n".join([*lines, "directory.id=garbage"]) + "\n")
    said = dynamic.refusal("controller-1", code=1)
    assert "meta.properties: directory.id: not a uuid: 'garbage'" in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a quorum-state file"),
        (b'{"leaderId":1,"leaderEpo', "not a quorum-state file"),
        (b'{"leaderId":1,"leaderEpoch":3,"votedId":-1,"data_version":9}', "is of a newer build"),
        (b'{"leaderId":1,"leaderEpoch":3,"votedId":-7,"data_version":0}', "votedId -7"),
        (b'{"leaderId":1,"leaderEpoch":-4,"votedId":-1,"data_version":0}', "leaderEpoch -4"),
        (b'{"leaderId":-1,"leaderEpoch":0,"votedId":-1,"data_version":0}', "says epoch 0"),
    ],
    ids=["empty", "truncated", "newer", "odd", "negative", "older"],
)
def test_quorum_state_that_cannot_be_trusted_stops_the_node(
    static: HandMade, content: bytes, said: str
) -> None:
    lead_once(static)
    path = static.data("controller-1") / "__cluster_metadata-0" / "quorum-state"
    path.write_bytes(content)
    refusal = static.refusal("controller-1", code=1)
    assert str(path) in refusal and said in refusal
    assert path.read_bytes() == content


def test_init_refuses_a_folder_in_use_and_a_static_cluster_cannot_grow(static: HandMade) -> None:
    again = run_kvorum("init", str(static.conf))
    assert again.returncode == 2
    assert "is not empty; choose another folder, or --add to it" in again.stderr
    more = run_kvorum("init", str(static.conf), "--add", "controller")
    assert more.returncode == 2
    assert "a controller cannot be added to it" in more.stderr
    broker = run_kvorum("init", str(static.conf), "--add", "broker")
    assert broker.returncode == 0, broker.stderr
    assert (static.conf / "broker-102.toml").is_file()


def test_init_again_refuses_a_directory_that_holds_data(dynamic: HandMade) -> None:
    done = run_kvorum("init", str(dynamic.conf), "--again", "1")
    assert done.returncode == 2
    assert "still holds data" in done.stderr


def test_a_listener_that_is_not_the_checkpoints_is_said_at_the_start(dynamic: HandMade) -> None:
    port = dynamic.ports.controller
    dynamic.change("controller-1", listeners=f"CONTROLLER://localhost:{port}")
    dynamic.start("controller-1")
    errors = dynamic.folder / "controller-1.err"
    eventually(lambda: "role=" in errors.read_text(), "it runs")
    said = [line for line in errors.read_text().splitlines() if " ERROR " in line]
    assert len(said) == 1
    log = dynamic.data("controller-1") / "__cluster_metadata-0"
    assert f"node 1 listens on localhost:{port}, but the bootstrap checkpoint in {log}" in said[0]
    assert f"has it at 127.0.0.1:{port}" in said[0] and "kvorum init FOLDER --contr" in said[0]


def test_copied_directory_is_no_second_voter(dynamic: HandMade) -> None:
    lead_once(dynamic)
    copy = dynamic.folder / "copy"
    shutil.copytree(dynamic.data("controller-1"), copy)
    meta = copy / "meta.properties"
    text = meta.read_text()
    old = next(line for line in text.splitlines() if line.startswith("directory.id="))
    import random

    meta.write_text(text.replace(old, f"directory.id={uuid_text(new_uuid(random.Random(1)))}"))
    dynamic.change("controller-1", log_dirs=str(copy))
    dynamic.start("controller-1")
    errors = dynamic.folder / "controller-1.err"
    seen = len(errors.read_text())
    eventually(lambda: "controller=1 " in errors.read_text()[seen:], "it runs")
    # Its log says that only the disk it was copied from may vote.
    assert dynamic.try_quorum("status").returncode == 4


def test_two_processes_on_copies_of_one_directory_do_not_both_vote_on(tmp_path: Path) -> None:
    made = HandMade(tmp_path, controllers=3, brokers=0)
    second = None
    try:
        names = ("controller-1", "controller-2", "controller-3")
        made.start(*names)
        eventually(lambda: made.try_quorum("status").returncode == 0, "it has a leader")
        errors = made.running["controller-1"].errors
        eventually(lambda: "controller=1 registered" in errors(), "it is registered")
        copy = tmp_path / "copy"
        shutil.copytree(made.data("controller-1"), copy, ignore=shutil.ignore_patterns(".lock"))
        port = made.ports.controller + 7
        options = ("--set", f"log.dirs={copy}", "--set", f"listeners=CONTROLLER://127.0.0.1:{port}")
        file = str(made.file("controller-1"))
        second = Command(
            "controller", "--config", file, *options, error_file=tmp_path / "second.err"
        )
        eventually(lambda: not made.running["controller-1"].is_running(), "the first one ends")
        assert made.running.pop("controller-1").wait() == 1
        assert errors().splitlines()[-1] == (
            f"kvorum: another process has registered as controller 1, at 127.0.0.1:{port}: two "
            "processes must not vote as one; stop it, and give it no copy of this data directory"
        )
        assert second.is_running()
    finally:
        if second is not None:
            second.close()
        made.close()


@pytest.mark.parametrize("option", ["--controllers", "--brokers", "--controller-port"])
def test_init_add_refuses_what_only_a_new_cluster_can_take(dynamic: HandMade, option: str) -> None:
    for what in (("--add", "controller"), ("--again", "1")):
        done = run_kvorum("init", str(dynamic.conf), *what, option, "5")
        assert done.returncode == 2
        assert f"{option} is for a new cluster" in done.stderr


def test_init_says_where_it_cannot_write() -> None:
    done = run_kvorum("init", "/proc/kvorum")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "kvorum: cannot write /proc/kvorum: No such file or directory\n"


def test_a_torn_tail_is_cut_with_a_line_in_the_log(dynamic: HandMade) -> None:
    lead_once(dynamic)
    (segment,) = (dynamic.data("controller-1") / "__cluster_metadata-0").glob("*.log")
    size = segment.stat().st_size
    with segment.open("ab") as file:
        file.write(b"\0" * 33)
    dynamic.start("controller-1")
    eventually(lambda: dynamic.try_quorum("status").returncode == 0, "it leads again")
    told = [
        line for line in dynamic.running["controller-1"].errors().splitlines() if "torn" in line
    ]
    assert len(told) == 1 and "WARNING" in told[0]
    assert f"{segment}: torn tail of 33 bytes cut at byte {size}" in told[0]


def test_a_clean_stop_leaves_no_traceback(dynamic: HandMade) -> None:
    dynamic.start("controller-1", "broker-101")
    eventually(lambda: dynamic.replica(101) is not None, "the broker follows")
    running = dynamic.running["controller-1"]
    dynamic.stop("controller-1")  # with streams of the broker open
    dynamic.kill("broker-101")
    assert "Traceback" not in running.errors()


def test_a_directory_without_its_identity_names_the_way_out(dynamic: HandMade) -> None:
    lead_once(dynamic)
    meta = dynamic.data("controller-1") / "meta.properties"
    meta.write_text("")
    assert "restore the file from a copy" in dynamic.refusal("controller-1", code=1)
    meta.unlink()
    refusal = dynamic.refusal("controller-1", code=1)
    assert "holds a metadata log but no meta.properties" in refusal
    assert "kvorum init --again" in refusal


def test_static_voters_name_an_address_each(static: HandMade) -> None:
    static.change("controller-1", controller_quorum_voters="1@@127.0.0.1:9093")
    assert "'@127.0.0.1:9093' is not host:port" in static.refusal("controller-1")


def test_a_metadata_log_taken_away_from_under_its_identity_is_refused(dynamic: HandMade) -> None:
    lead_once(dynamic)
    log = dynamic.data("controller-1") / "__cluster_metadata-0"
    (segment,) = log.glob("*.log")
    segment.unlink()
    assert ".log at byte 0: it is gone, though 0" in dynamic.refusal("controller-1", code=1)
    for name in log.glob("0*"):
        name.unlink()
    assert "files of the log are gone" in dynamic.refusal("controller-1", code=1)
    shutil.rmtree(log)
    assert "this disk must not vote any more" in dynamic.refusal("controller-1", code=1)


def test_an_added_controller_starts_with_the_folder_that_init_made(dynamic: HandMade) -> None:
    done = run_kvorum("init", str(dynamic.conf), "--add", "controller")
    assert done.returncode == 0, done.stderr
    dynamic.start("controller-1", "controller-2")
    dynamic.wait_caught_up(2, "Observer")
