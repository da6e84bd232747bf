"""Starts that cannot succeed, or not yet: the node says why in one sentence and leaves nothing half
done.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvorum.runtime.config import dump_properties
from tests.live.by_hand import HandMade
from tests.live.cluster import Command, run_kvorum
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandMade]:
    made = HandMade(tmp_path_factory.mktemp("starts"), controllers=1)
    try:
        made.start("controller-1", "broker-101")
        eventually(
            lambda: run_kvorum("health", "-b", made.bootstrap).returncode == 0, "it is healthy"
        )
        yield made
    finally:
        made.close()


def broker_file(made: HandMade, folder: Path, **changes: object) -> str:
    """A properties file like broker 101's with changes; underscores stand for dots."""
    properties = {**made.properties("broker-101"), "log.dirs": str(folder / "data")}
    properties["listeners"] = f"PLAINTEXT://127.0.0.1:{made.ports.broker + 5}"
    properties |= {name.replace("_", "."): value for name, value in changes.items()}
    (folder / "broker.toml").write_text(dump_properties(properties))
    return str(folder / "broker.toml")


def last_line(file: str, *options: str, code: int = 2) -> str:
    done = run_kvorum("broker", "--config", file, *options)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert "Traceback" not in done.stderr
    # The node's directory is as before the start, so that a corrected one begins anew.
    assert (code == 2) != (Path(file).parent / "data").exists()
    return done.stderr.splitlines()[-1]


def test_a_node_id_that_is_in_use_is_refused_by_the_controller(
    made: HandMade, tmp_path: Path
) -> None:
    file = broker_file(made, tmp_path)
    line = last_line(file, "--set", "initial.broker.registration.timeout.ms=1000")
    assert line == (
        "kvorum: cannot join the cluster: another process is registered as broker 101 and is "
        f"alive, at {made.bootstrap}; stop it, or give this one a node.id of its own"
    )
    assert run_kvorum("health", "-b", made.bootstrap).returncode == 0


def test_a_process_under_a_living_id_waits_in_vain_for_another_controller(
    made: HandMade, tmp_path: Path
) -> None:
    """A new active controller has heard of no broker; the second process must not be quicker."""
    node = Command("broker", "--config", broker_file(made, tmp_path), error_file=tmp_path / "err")
    try:
        eventually(lambda: "waits for the end of an earlier process" in node.errors(), "it waits")
        made.kill("controller-1")
        made.start("controller-1")
        eventually(
            lambda: run_kvorum("health", "-b", made.bootstrap).returncode == 0, "it is healthy"
        )
        assert node.is_running()
        assert "registered broker_epoch" not in node.errors()
    finally:
        node.close()


def test_a_broker_without_a_quorum_ends_so_that_a_supervisor_starts_it_again(
    made: HandMade, tmp_path: Path
) -> None:
    nobody = f"127.0.0.1:{made.ports.broker + 7}"
    file = broker_file(made, tmp_path, node_id=102, controller_quorum_bootstrap_servers=nobody)
    line = last_line(file, "--set", "initial.broker.registration.timeout.ms=1000", code=1)
    assert line.startswith("kvorum: cannot join the cluster: no active controller within 1000 ms: ")
    assert "see that a majority of the controllers runs, then start this broker again" in line


def test_a_controllers_id_is_refused_to_a_broker(made: HandMade, tmp_path: Path) -> None:
    done = run_kvorum("broker", "--config", broker_file(made, tmp_path, node_id=1))
    # Whichever the broker hears first: that the leader of the quorum has its id, or that the active
    # controller refuses its registration.
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()
    assert done.stderr.splitlines()[-1].endswith(" of its own")
    assert "node 1 " in done.stderr.splitlines()[-1]


def test_an_address_of_nobody_and_one_in_use_are_refused(made: HandMade, tmp_path: Path) -> None:
    foreign = last_line(broker_file(made, tmp_path, listeners="PLAINTEXT://192.0.2.1:9092"))
    assert foreign.startswith("kvorum: cannot listen on 192.0.2.1:9092, ")
    taken = last_line(broker_file(made, tmp_path, listeners=f"PLAINTEXT://{made.bootstrap}"))
    assert taken.startswith(f"kvorum: cannot listen on {made.bootstrap}, ")


def test_a_metrics_port_in_use_is_refused(made: HandMade, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        file = broker_file(made, tmp_path, node_id=109, metrics_listener=f"HTTP://{address}")
        assert address in last_line(file)


def test_a_directory_that_cannot_be_made_is_refused(made: HandMade, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "data"
    line = last_line(broker_file(made, tmp_path, node_id=109, log_dirs=str(path)))
    assert str(path) in line


@pytest.mark.parametrize("property_name", ["listeners", "metrics.listener"])
@pytest.mark.parametrize("role", ["broker", "controller"])
def test_a_host_without_an_address_yet_is_waited_for(
    made: HandMade, tmp_path: Path, role: str, property_name: str
) -> None:
    properties = made.properties("broker-101" if role == "broker" else "controller-1")
    name = str(properties["listeners"]).partition("://")[0]
    address = f"127.0.0.1:{made.ports.broker + 6}"
    if property_name == "listeners":
        address = "not-yet.invalid:9092"
    else:
        properties["metrics.listener"] = "HTTP://not-yet.invalid:9404"
    properties |= {"listeners": f"{name}://{address}", "log.dirs": str(tmp_path / "d")}
    properties["node.id"] = 109
    if role == "controller":
        properties.pop("controller.quorum.bootstrap.servers")
        properties["controller.quorum.voters"] = f"109@{address}"
    (tmp_path / "node.toml").write_text(dump_properties(properties))
    node = Command(role, "--config", str(tmp_path / "node.toml"), error_file=tmp_path / "err")
    try:
        words = "waits for an address of its host not-yet.invalid"
        eventually(lambda: words in node.errors(), "the log says so")
        assert node.is_running()
        node.send(signal.SIGTERM)
        assert node.wait() == 0, node.errors()
        assert not (tmp_path / "d").exists()
    finally:
        node.close()


def test_controllers_without_an_address_yet_are_waited_for(made: HandMade, tmp_path: Path) -> None:
    servers = "c1.invalid:9192,c2.invalid:9192"
    file = broker_file(made, tmp_path, node_id=109, controller_quorum_bootstrap_servers=servers)
    node = Command("broker", "--config", file, error_file=tmp_path / "err")
    try:
        eventually(lambda: "c1.invalid" in node.errors(), "the log names a controller")
        assert node.is_running()
        node.send(signal.SIGTERM)
        assert node.wait() == 0, node.errors()
    finally:
        node.close()


def test_a_cluster_id_and_a_node_id_can_be_corrected_after_a_refused_start(
    made: HandMade, tmp_path: Path
) -> None:
    """The last test of this module: broker 102 stays registered."""
    file = broker_file(made, tmp_path, node_id=102)
    foreign = last_line(file, "--set", "cluster.id=H8cXxonAvNgrLxjJFXJs9g")
    assert "correct its cluster.id, or the addresses of its controllers" in foreign
    last_line(file, "--set", "node.id=101", "--set", "initial.broker.registration.timeout.ms=1000")
    node = Command("broker", "--config", file, error_file=tmp_path / "err")
    try:
        eventually(lambda: "unfenced" in node.errors(), "it joins as broker 102")
    finally:
        node.close()
    assert (tmp_path / "data" / "meta.properties").exists()
