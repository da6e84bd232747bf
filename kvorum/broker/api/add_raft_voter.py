"""AddRaftVoter (80, KIP-853). Served: v0-1, by the quorum's leader, which waits until the node has
caught up. A controller has one listener, CONTROLLER. v1: with AckWhenCommitted false the answer
comes once the leader has written the change, before a majority has.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import CLUSTER_REFUSED, RequestContext, refusal_fields
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.raft.model.messages import AddVoterRequest
from kvorum.raft.model.voters import Voter
from kvorum.raft.node.control_records import LISTENER_NAME
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.kio_codec import milliseconds, uuid_bytes
from kvorum.wire.versions import Api

API = Api(
    key=80,
    name="add_raft_voter",
    min_version=0,
    max_version=1,
    first_flexible=0,
    needs_controller=True,
)
ACCESS = ((AclOperation.ALTER, ResourceType.CLUSTER),)


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    if not context.allows_on_cluster(AclOperation.ALTER):
        return refusal_fields(CLUSTER_REFUSED)
    services = context.services
    refusal: Rejected | None
    listener = next((x for x in request.listeners if x.name == LISTENER_NAME), None)
    if listener is None:
        names = [other.name for other in request.listeners] or "none"
        refusal = Rejected(
            ErrorCode.INVALID_REQUEST,
            f"node {request.voter_id} needs a listener {LISTENER_NAME}, got {names}",
        )
    else:
        voter = Voter(
            request.voter_id, uuid_bytes(request.voter_directory_id), listener.host, listener.port
        )
        cluster_id = services.cluster_id if request.cluster_id is None else request.cluster_id
        refusal = await services.controller.voters.add(
            AddVoterRequest(
                cluster_id=cluster_id,
                voter=voter,
                is_answered_early=not getattr(request, "ack_when_committed", True),
            ),
            max(milliseconds(request.timeout), 0),
        )
    return refusal_fields(refusal)
