"""RemoveRaftVoter (81, KIP-853). Served: v0, by the quorum's leader; a leader that is removed
itself first transfers leadership."""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import CLUSTER_REFUSED, RequestContext, refusal_fields
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.raft.model.messages import RemoveVoterRequest
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.ids import UUID_ZERO
from kvorum.wire.kio_codec import uuid_bytes
from kvorum.wire.versions import Api

API = Api(
    key=81,
    name="remove_raft_voter",
    min_version=0,
    max_version=0,
    first_flexible=0,
    needs_controller=True,
)
ACCESS = ((AclOperation.ALTER, ResourceType.CLUSTER),)

TIMEOUT_MS = 5_000
"""Limit for the change, as the request has no field for one."""


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    if not context.allows_on_cluster(AclOperation.ALTER):
        return refusal_fields(CLUSTER_REFUSED)
    services = context.services
    directory_id = uuid_bytes(request.voter_directory_id)
    # To the quorum, the zero id means the voter with any directory; in Kafka, it names no voter.
    has_directory = directory_id != UUID_ZERO
    refusal = await services.controller.voters.remove(
        RemoveVoterRequest(
            cluster_id=services.cluster_id if request.cluster_id is None else request.cluster_id,
            node_id=request.voter_id,
            directory_id=directory_id,
            is_dry_run=not has_directory,
        ),
        TIMEOUT_MS,
    )
    if refusal is None and not has_directory:
        refusal = Rejected(
            ErrorCode.INVALID_REQUEST,
            f"which directory of node {request.voter_id}? see describe --replication",
        )
    return refusal_fields(refusal)
