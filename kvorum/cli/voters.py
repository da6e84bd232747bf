"""`kvorum quorum add-voter` and `remove-voter`: the user gives the node's id, the leader knows the
rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click

from kvorum.cli.common import cluster_options, show
from kvorum.client.failures import (
    EXIT_FAILED,
    EXIT_NO_QUORUM,
    EXIT_NOT_AUTHORIZED,
    EXIT_UNREACHABLE,
    CommandFailed,
)
from kvorum.runtime.text import split_address

ASK_AGAIN_S = 0.2
NEW_LEADER_S = 0.6
"""Time within which an observer finds a new leader."""

_ID = click.option(
    "--id", "node_id", type=click.IntRange(0, (1 << 31) - 1), required=True, help="Id of the node."
)
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Check and show; change nothing.")


class NotFollowing(CommandFailed):
    """The node does not fetch from the leader; after an election the node may only need a
    moment."""


@click.command("add-voter")
@_ID
@_DRY_RUN
@cluster_options
def add_voter(node_id: int, dry_run: bool, **options: Any) -> None:
    """Make a controller that follows the quorum one of its voters.

    Waits until the controller has caught up, and shows its progress. Then the change is made, and
    the command ends when the new voter set has committed it.
    """
    change(options, lambda leader: _add_request(leader, node_id, dry_run), "AddVoter", dry_run)


@click.command("remove-voter")
@_ID
@_DRY_RUN
@cluster_options
def remove_voter(node_id: int, dry_run: bool, **options: Any) -> None:
    """Remove a voter from the quorum. The node continues to follow the log as an observer.

    If the node is the leader, it first hands over.
    """
    change(
        options, lambda leader: _remove_request(leader, node_id, dry_run), "RemoveVoter", dry_run
    )


def change(
    options: dict[str, Any], make_request: Callable[[Any], Any], method: str, dry_run: bool
) -> None:
    """Send a change of the voter set to the leader until it is made or refused for good.

    A temporary refusal, such as that of a node that has not caught up, is retried within the
    timeout as long as there is progress.
    """
    from kvorum.cli.backends import open_controllers
    from kvorum.runtime.errors import ErrorCode

    client = open_controllers(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
    deadline = time.monotonic() + options["timeout"]
    progress = _Progress()
    has_begun = False
    seen_by = time.monotonic() + NEW_LEADER_S
    while True:
        try:
            leader = client.describe()
        except CommandFailed as error:
            # Not for the first request: without a leader the command fails at once.
            is_passing = has_begun and error.exit_code == EXIT_NO_QUORUM
            if not is_passing or time.monotonic() > deadline:
                raise
            continue
        try:
            request = make_request(leader)
        except NotFollowing:
            if time.monotonic() > (deadline if has_begun else seen_by):
                raise
            time.sleep(ASK_AGAIN_S)
            continue
        has_begun = True
        if progress.show(leader, request):
            deadline = time.monotonic() + options["timeout"]
        left_s = max(deadline - time.monotonic(), ASK_AGAIN_S)
        reply = _call(client, leader, method, request, left_s)
        code = ErrorCode.NONE if reply is None else ErrorCode(reply.error)
        if reply is not None and code is ErrorCode.NONE:
            break
        passing = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT)
        reason = "the leader went away" if reply is None else reply.message
        if (reply is not None and code not in passing) or time.monotonic() > deadline or dry_run:
            if reply is None:
                raise CommandFailed(
                    "the leader gave no answer in time; the change may still come true: see "
                    "kvorum quorum status",
                    EXIT_NO_QUORUM,
                )
            raise CommandFailed(f"{code.name}: {reason}", EXIT_FAILED)
        time.sleep(ASK_AGAIN_S)
    before = sorted(v.node_id for v in leader.voters)
    row = {
        "changed": not dry_run,
        "voters_before": before,
        "voters_after": sorted(v.node_id for v in reply.voters),
        "leader_epoch": reply.epoch,
    }
    show(options["output"], row)


def _call(client: Any, leader: Any, method: str, request: Any, timeout_s: float) -> Any:
    """The leader's answer, None if the connection was lost before it came."""
    import grpc

    from kvorum.client.controllers import open_channel
    from kvorum.rpc import raft_pb2_grpc as pb_grpc

    address = client.address_of(leader.leader_id)
    with open_channel(address) as channel:
        try:
            return getattr(pb_grpc.RaftStub(channel), method)(request, timeout=timeout_s)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.PERMISSION_DENIED:
                raise CommandFailed(str(error.details()), EXIT_NOT_AUTHORIZED) from error
            if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                raise CommandFailed(
                    f"controller {leader.leader_id} at {address} is of a build without {method}",
                    EXIT_UNREACHABLE,
                ) from error
            return None


def _add_request(leader: Any, node_id: int, dry_run: bool) -> Any:
    from kvorum.rpc import raft_pb2 as pb

    found = [o for o in leader.observers if o.node_id == node_id]
    if any(voter.node_id == node_id for voter in leader.voters):
        hint = ""
        if found:
            hint = (
                ", with another directory than the one that runs now; if that disk is lost, "
                f"remove it first: kvorum quorum remove-voter --id {node_id}"
            )
        raise CommandFailed(f"DUPLICATE_VOTER: node {node_id} is a voter already{hint}")
    newest = max(found, key=lambda o: o.last_fetch_timestamp_ms, default=None)
    # A voter that was removed while it was dead is listed, but has never fetched as an observer.
    if newest is None or newest.last_fetch_timestamp_ms < 0:
        known = sorted(o.node_id for o in leader.observers if o.address)
        raise NotFollowing(
            f"node {node_id} does not follow the quorum: is it running? Controllers that do and "
            f"are no voters: {known or 'none'}"
        )
    if not newest.address:
        raise CommandFailed(f"node {node_id} is a broker; only a controller can vote")
    known_at = split_address(newest.address)
    if known_at is None:
        raise CommandFailed(f"node {node_id} says that it listens on {newest.address!r}")
    host, port = known_at
    voter = pb.Voter(node_id=node_id, directory_id=newest.directory_id, host=host, port=port)
    return pb.AddVoterRequest(cluster_id=leader.cluster_id, voter=voter, is_dry_run=dry_run)


def _remove_request(leader: Any, node_id: int, dry_run: bool) -> Any:
    from kvorum.rpc import raft_pb2 as pb

    voter = next((v for v in leader.voters if v.node_id == node_id), None)
    if voter is None:
        voters = sorted(v.node_id for v in leader.voters)
        raise CommandFailed(f"VOTER_NOT_FOUND: node {node_id} is not among the voters {voters}")
    return pb.RemoveVoterRequest(
        cluster_id=leader.cluster_id,
        node_id=node_id,
        directory_id=voter.directory_id,
        is_dry_run=dry_run,
    )


class _Progress:
    """The progress of a replica that is to become a voter, printed on stderr when it changes."""

    def __init__(self) -> None:
        self._said = ""
        self._most = -1

    def show(self, leader: Any, request: Any) -> bool:
        """Print the progress if it changed. Returns True if the replica has advanced."""
        voter = getattr(request, "voter", None)
        if voter is None:
            return False
        # A leader that is being removed is among the observers.
        replicas = [*leader.voters, *leader.observers]
        end = max(r.log_end_offset for r in replicas if r.node_id == leader.leader_id)
        for replica in leader.observers:
            if (replica.node_id, replica.directory_id) != (voter.node_id, voter.directory_id):
                continue
            have = max(replica.log_end_offset, 0)
            text = f"node {voter.node_id} has {have} of {end}"
            if text != self._said:
                self._said = text
                click.echo(text, err=True)
            # The leader's end offset advances under load; only the replica's own counts as
            # progress.
            has_moved = bool(have > self._most)
            self._most = max(self._most, have)
            return has_moved
        return False
