"""The access that each gRPC method of a controller requires. Pure.

Every method requires an operation on the resource CLUSTER. Controllers and brokers have
CLUSTER_ACTION, which is enough for every method: a broker authorizes its client before it forwards
the request. The other operations are for commands that talk to controllers directly. Kafka's API
would require access to single topics, which are not known before the request is read. A controller
requires ALTER on the cluster instead: a user with ALTER can create ACLs, and so grant themselves
every other access.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvorum.metadata.image.acl import AclOperation

_NODES = (AclOperation.CLUSTER_ACTION,)
_ALTER = (*_NODES, AclOperation.ALTER)
_DESCRIBE = (*_NODES, AclOperation.DESCRIBE)

_RAFT = {
    "Vote": _NODES,
    "BeginQuorumEpoch": _NODES,
    "EndQuorumEpoch": _NODES,
    "Fetch": _NODES,
    "FetchSnapshot": _NODES,
    "UpdateVoter": _NODES,
    "AddVoter": _ALTER,
    "RemoveVoter": _ALTER,
}
_CONTROLLER = {
    "RegisterBroker": _NODES,
    "Heartbeat": _NODES,
    "AlterPartition": _NODES,
    "AllocateProducerIds": _NODES,
    "AssignReplicas": _NODES,
    "RegisterController": _NODES,
}
_ADMIN = {
    "CreateTopics": (*_NODES, AclOperation.CREATE),
    "DeleteTopics": _ALTER,
    "CreatePartitions": _ALTER,
    "AlterReassignments": _ALTER,
    "ListReassignments": _DESCRIBE,
    "ElectLeaders": _ALTER,
    "AlterConfigs": _ALTER,
    "AlterClientQuotas": (*_NODES, AclOperation.ALTER_CONFIGS),
    "AlterScramCredentials": _ALTER,
    "CreateAcls": _ALTER,
    "DeleteAcls": _ALTER,
    # The requester is part of the message: whoever may call these can get a token of anybody.
    "CreateDelegationToken": _NODES,
    "RenewDelegationToken": _NODES,
    "ExpireDelegationToken": _NODES,
    "UpdateFeatures": _ALTER,
    "UnregisterBroker": _ALTER,
    "UnregisterController": _ALTER,
    "DescribeQuorum": _DESCRIBE,
    # The answer has all metadata, with the keys of users who log in by SCRAM.
    "ReadMetadataLog": _NODES,
    "ReadElectionTimeline": _DESCRIBE,
    "DescribeLoggers": (*_NODES, AclOperation.DESCRIBE_CONFIGS),
    "AlterLoggers": (*_NODES, AclOperation.ALTER_CONFIGS),
    "ReadFlightRecord": _NODES,
}

ACCESS_OF: Mapping[str, tuple[AclOperation, ...]] = {
    f"/kvorum.rpc.{service}/{method}": operations
    for service, methods in (("Raft", _RAFT), ("Controller", _CONTROLLER), ("Admin", _ADMIN))
    for method, operations in methods.items()
}
"""Path of a method -> operations on the cluster, of which one is enough. A refusal and the audit
log name the last one."""
