"""The checks of answers when they leave a node."""

from __future__ import annotations

from kvorum.chaos.sim.kernel.checks import check
from kvorum.chaos.sim.quorum.checks.checked_node import CheckedNode
from kvorum.chaos.sim.quorum.checks.quorum_checks import QuorumChecks
from kvorum.chaos.sim.quorum.model.state import is_among
from kvorum.raft.model.messages import (
    FetchRequest,
    FetchResponse,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)


def check_reply(
    checks: QuorumChecks, node: CheckedNode, request: Request, response: Response
) -> None:
    """Check VoteOnDisk: a vote that leaves a node is on its disk, for that candidate and epoch.
    Check ObserverSeesCommitted: an observer is sent committed records only."""
    if isinstance(request, FetchRequest) and isinstance(response, FetchResponse):
        end_offset = response.spans[-1].last_offset + 1 if response.spans else 0
        check(
            end_offset <= checks.committed.end_offset
            or is_among(node.mirror.voters, request.replica_id, request.replica_directory_id),
            "ObserverSeesCommitted",
            f"node {node.node_id} sends {request.replica_id}, which does not vote, records up "
            f"to {end_offset} of {checks.committed.end_offset}",
        )
        return
    if not isinstance(request, VoteRequest) or not isinstance(response, VoteResponse):
        return
    if request.is_pre_vote or not response.is_granted:
        return
    vote = checks.votes[request.epoch].get((node.node_id, node.config.directory_id))
    candidate = request.candidate_id, request.candidate_directory_id
    check(
        vote == candidate and node.saved_vote.epoch == request.epoch,
        "VoteOnDisk",
        f"node {node.node_id} grants a vote to {request.candidate_id} in epoch "
        f"{request.epoch} and has {node.saved_vote} on disk",
    )
