"""`kvorum health`: is the cluster well, and if not, where?"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from kvorum.cli.common import cluster_options, is_structured, show
from kvorum.cli.watch import one_answer, watchable
from kvorum.client.failures import EXIT_NO_QUORUM, CommandFailed, each_warning_once
from kvorum.metadata.inspect.health import ClusterView, Finding, health_of, named

_PAUSE_S = 0.5


@click.command()
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Wait so long for a healthy cluster.",
)
@watchable
@cluster_options
def health(wait_s: float, **options: Any) -> None:
    """Check leader, voters, brokers, partitions, disks.

    Healthy: the quorum has a leader, all voters are level with it, no broker is fenced, every
    partition has a leader and all its replicas in sync, apart from those that a reassignment is
    adding, and no data directory is offline. Exit code 4 if something is not.
    """
    show_findings(options["output"], findings_until(options, time.monotonic() + wait_s))


def show_findings(
    output: str, findings: Sequence[Finding], *, counted: Sequence[Finding] | None = None
) -> None:
    """Print the checks. counted: those that decide; all by default. Raises CommandFailed, with exit
    code 4, if one of these is not healthy."""
    decisive = findings if counted is None else counted
    bad = [finding.check for finding in decisive if not finding.is_healthy]
    rows = [asdict(finding) for finding in findings]
    if is_structured(output):
        show(output, {"is_healthy": not bad, "checks": rows})
    else:
        for row in rows:
            row["state"] = "ok" if row.pop("is_healthy") else "NOT OK"
        show(output, rows, ["check", "state", "detail"])
    if bad:
        raise CommandFailed(f"not healthy: {', '.join(bad)}", EXIT_NO_QUORUM)


def findings_until(options: dict[str, Any], until_s: float) -> list[Finding]:
    """The checks as soon as the cluster is healthy, or at that time. Raises CommandFailed if no
    node can be reached then."""
    with each_warning_once():
        return _looked(options, until_s)


def _looked(options: dict[str, Any], until_s: float) -> list[Finding]:
    while True:
        is_last = time.monotonic() >= until_s
        try:
            with one_answer():
                view = read_view(options)
                findings = [*health_of(view), log_directories(view.brokers, options["timeout"])]
            if is_last or all(finding.is_healthy for finding in findings):
                return findings
        except CommandFailed:
            if is_last:
                raise
        time.sleep(_PAUSE_S)


def read_view(options: dict[str, Any]) -> ClusterView:
    """The cluster's present state, as it reports it. Raises CommandFailed if no node can be
    reached."""
    from kvorum.cli.backends import open_backend
    from kvorum.cli.partition_backends import partitions_of, reassigning

    backend = open_backend(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
    quorum, no_quorum = None, ""
    before_ms = time.time_ns() // 1_000_000
    try:
        quorum = backend.quorum()
    except CommandFailed as error:
        if error.exit_code != EXIT_NO_QUORUM:
            raise
        no_quorum = str(error)
    after_ms = time.time_ns() // 1_000_000
    topics = backend.topics(None)
    return ClusterView(
        quorum=quorum,
        no_quorum=no_quorum,
        brokers=backend.brokers(),
        topics=topics,
        min_isr=backend.min_isr([str(topic["topic"]) for topic in topics]),
        reassigning={} if quorum is None else reassigning(partitions_of(backend)),
        asked_ms=(before_ms, after_ms),
    )


def log_directories(brokers: Sequence[Mapping[str, Any]], timeout_s: float) -> Finding:
    """The check of the active brokers' data directories. A broker that does not tell is named and
    not counted: it may be another check's, or the user may lack the right."""
    from kvorum.cli.broker_directories import BrokerDirectories
    from kvorum.client.connection import KafkaConnection
    from kvorum.runtime.errors import ErrorCode, error_code_of

    online, offline, untold = 0, [], []
    for broker in brokers:
        if broker["is_fenced"]:
            continue
        broker_id = broker["broker_id"]
        try:
            connection = KafkaConnection([(broker["host"], broker["port"])], timeout_s)
            try:
                found = BrokerDirectories(broker_id, connection).described()
            finally:
                connection.close()
        except CommandFailed as error:
            untold.append(f"broker {broker_id} ({error.error or error.reason})")
            continue
        for directory in found:
            if directory.error == ErrorCode.NONE:
                online += 1
            else:
                reason = directory.reason or error_code_of(directory.error).name
                offline.append(f"broker {broker_id} {directory.path} ({reason})")
    detail = f"{online} of {online + len(offline)} online"
    if offline:
        detail += f"; offline: {named(offline)}"
    if untold:
        detail += f"; unknown: {named(untold)}"
    return Finding(check="log directories", is_healthy=not offline, detail=detail)
