"""StreamsGroupTopologyDescriptionUpdate (93). Served: v0, if streams.version is 1 (KIP-1331).

A member pushes the description of its topology after a heartbeat's answer has asked for it. Errors:
the coordinator errors 14 to 16, UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND, INVALID_REQUEST (of another
epoch, or with unknown nodes), STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED (it does not fit into a
record), UNSUPPORTED_VERSION, GROUP_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext, refusal_fields
from kvorum.broker.api.group_calls import ask
from kvorum.broker.api.streams_calls import feature_refusal
from kvorum.broker.groups.steps.refusals import is_blank
from kvorum.broker.groups.streams.description import (
    DescribedSubtopology,
    GlobalStore,
    Node,
    TopologyDescription,
)
from kvorum.broker.groups.streams.requests import UpdateTopologyDescription
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.versions import Api

API = Api(
    key=93,
    name="streams_group_topology_description_update",
    min_version=0,
    max_version=0,
    first_flexible=0,
)
ACCESS = ((AclOperation.READ, ResourceType.GROUP),)


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    refused: Rejected | ErrorCode | None = feature_refusal(context)
    if refused is None and is_blank(request.group_id):
        refused = Rejected(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    if refused is not None:
        return refusal_fields(refused)
    body = UpdateTopologyDescription(
        group_id=request.group_id,
        member_id=request.member_id,
        topology_epoch=request.topology_epoch,
        description=_description_of(request.topology_description),
    )
    said = await ask(context, request.group_id, body, needs=AclOperation.READ)
    return refusal_fields(said)


def _description_of(told: Any) -> TopologyDescription:
    return TopologyDescription(
        subtopologies=tuple(
            DescribedSubtopology(part.subtopology_id, tuple(map(_node_of, part.nodes)))
            for part in told.subtopologies
        ),
        global_stores=tuple(
            GlobalStore(_node_of(store.source), _node_of(store.processor))
            for store in told.global_stores
        ),
    )


def _node_of(node: Any) -> Node:
    return Node(
        node.name,
        node.node_type,
        tuple(node.source_topics),
        node.sink_topic,
        tuple(node.stores),
        tuple(node.successors),
    )
