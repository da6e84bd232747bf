"""The plugin of pytest: a cluster for the whole session, and the fixture `kvorum` for a test.

Options in pytest's ini file: kvorum_controllers, kvorum_brokers, kvorum_secure, kvorum_settings
(KEY=VALUE lines); on the command line: --kvorum-system. Nothing is imported or started before a
test asks for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kvorum.chaos.testing.cluster import Cluster

_PREFIX_BYTES_MAX = 100
_REPORTED = pytest.StashKey["Cluster"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the module's docstring."""
    group = parser.getgroup("kvorum", "a Kafka-compatible cluster for tests")
    group.addoption(
        "--kvorum-system",
        default="kvorum",
        choices=("kvorum", "kafka"),
        help="The system behind the fixture `kvorum`: Kvorum, or Apache Kafka from its jars.",
    )
    parser.addini("kvorum_controllers", "Controllers of the session's cluster.", default="3")
    parser.addini(
        "kvorum_secure",
        "TLS, users and ACLs for the session's cluster.",
        type="bool",
        default=False,
    )
    parser.addini("kvorum_brokers", "Brokers of the session's cluster.", default="3")
    parser.addini(
        "kvorum_settings", "KEY=VALUE for every node, one a line.", type="linelist", default=[]
    )


@pytest.fixture(scope="session")
def kvorum_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """The cluster of the session, or of one worker of pytest-xdist. Its data and logs are in
    pytest's own temporary folder."""
    try:
        from kvorum.chaos.testing.cluster import Cluster
    except ModuleNotFoundError as error:
        raise pytest.UsageError(
            f"the fixture kvorum needs {error.name}: pip install 'kvorum[chaos]'"
        ) from error

    config = request.config
    settings = dict(_pair(line) for line in config.getini("kvorum_settings"))
    cluster = Cluster(
        controllers=_count(config, "kvorum_controllers"),
        brokers=_count(config, "kvorum_brokers"),
        system=config.getoption("--kvorum-system"),
        settings=settings,
        secure=_flag(config, "kvorum_secure"),
        directory=tmp_path_factory.mktemp("kvorum"),
    )
    with cluster:
        yield cluster


@pytest.fixture
def kvorum(request: pytest.FixtureRequest, kvorum_cluster: Cluster) -> Iterator[Cluster]:
    """The session's cluster for one test, with a topic prefix of the test's own.

    After the test every fault ends, the test's topics and users are deleted, and every node runs
    again. The report of a failed test has the state of the cluster at its failure, and the test's
    own faults.
    """
    kvorum_cluster.topic_prefix = _prefix_of(request.node)
    kvorum_cluster.forget_faults()
    request.node.stash[_REPORTED] = kvorum_cluster
    try:
        yield kvorum_cluster
    finally:
        kvorum_cluster.heal()
        kvorum_cluster.delete_topics()
        if request.config.getini("kvorum_secure"):
            kvorum_cluster.users.clear()
        kvorum_cluster.topic_prefix = ""
        kvorum_cluster.wait_until("all-alive")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Attach the cluster's report to a test that failed."""
    report = yield
    if report.when == "call" and report.failed:
        cluster = item.stash.get(_REPORTED, None)
        if cluster is not None:
            report.sections.append(("kvorum", _text_of(cluster)))
    return report


def _text_of(cluster: Cluster) -> str:
    from kvorum.runtime.errors import KvorumError

    try:
        return cluster.report()
    except (KvorumError, OSError) as error:
        # The test's own failure must not be replaced by that of its report.
        return f"no report of the cluster: {error}"


def _prefix_of(item: pytest.Item) -> str:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    words = [*([worker] if worker else []), item.name]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(words))[:_PREFIX_BYTES_MAX] + "."


def _count(config: pytest.Config, name: str) -> int:
    text = config.getini(name)
    if not str(text).isdigit() or int(text) < 1:
        raise pytest.UsageError(f"{name} must be a whole number from 1, got {text!r}")
    return int(text)


def _flag(config: pytest.Config, name: str) -> bool:
    try:
        return bool(config.getini(name))
    except (ValueError, pytest.UsageError) as error:
        raise pytest.UsageError(f"{name} must be true or false: {error}") from error


def _pair(line: str) -> tuple[str, str]:
    key, equals, value = line.partition("=")
    if not equals or not key.strip():
        raise pytest.UsageError(f"kvorum_settings: {line!r} is not KEY=VALUE")
    return key.strip(), value.strip()
