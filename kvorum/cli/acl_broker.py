"""The ACLs of a cluster, reached through a broker (Kafka protocol)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvorum.cli.acl_rules import exactly
from kvorum.client.cluster.broker_backend import BrokerBackend
from kvorum.client.failures import check, refusal
from kvorum.client.rights import on_cluster
from kvorum.metadata.access.selection import selected
from kvorum.metadata.image.acl import (
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from kvorum.runtime.errors import ErrorCode

ACLS_PER_REQUEST = 1_000
"""Fewer than a cluster takes at once (10,000), so that no broker works long for one request."""

Outcome = tuple[str, str]
"""The name of an error, and its message."""
SUBJECT = "acls"
NO_AUTHORIZER = (
    "the cluster has no authorizer; set authorizer.class.name on every broker and controller to "
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer, and restart them"
)


def portions(acls: Sequence[Acl]) -> Iterator[Sequence[Acl]]:
    """The ACLs in portions, one for each request."""
    for at in range(0, len(acls), ACLS_PER_REQUEST):
        yield acls[at : at + ACLS_PER_REQUEST]


class BrokerAcls(BrokerBackend):
    """Requests through any broker; works against Apache Kafka as well."""

    def describe(self, wanted: AclFilter) -> list[Acl]:
        reply = self.connection.call("describe_acls", 29, 3, _filter(wanted), flexible=True)
        if reply.error_code == ErrorCode.SECURITY_DISABLED:
            raise refusal(reply.error_code, NO_AUTHORIZER, SUBJECT)
        check(reply.error_code, reply.error_message, SUBJECT, on_cluster("DESCRIBE"))
        self._warn_without_leader()
        found = [
            Acl(
                resource_type=ResourceType(resource.resource_type),
                resource_name=resource.resource_name,
                pattern_type=PatternType(resource.pattern_type),
                principal=acl.principal,
                host=acl.host,
                operation=AclOperation(acl.operation),
                permission=Permission(acl.permission_type),
            )
            for resource in reply.resources
            for acl in resource.acls
        ]
        return list(selected(found, AclFilter()))

    def create(self, acls: Sequence[Acl]) -> list[Outcome]:
        found: list[Outcome] = []
        for portion in portions(acls):
            creations = [
                {
                    "resource_type": acl.resource_type,
                    "resource_name": acl.resource_name,
                    "resource_pattern_type": acl.pattern_type,
                    "principal": acl.principal,
                    "host": acl.host,
                    "operation": acl.operation,
                    "permission_type": acl.permission,
                }
                for acl in portion
            ]
            values = {"creations": creations}
            reply = self.connection.call("create_acls", 30, 3, values, flexible=True)
            found += (outcome(row.error_code, row.error_message) for row in reply.results)
        return found

    def delete(self, acls: Sequence[Acl]) -> list[Outcome]:
        found: list[Outcome] = []
        for portion in portions(acls):
            values = {"filters": [_filter(exactly(acl)) for acl in portion]}
            reply = self.connection.call("delete_acls", 31, 3, values, flexible=True)
            for row in reply.filter_results:
                gone = next(iter(row.matching_acls), row)
                failed = gone if row.error_code == ErrorCode.NONE else row
                found.append(outcome(failed.error_code, failed.error_message))
        return found


def outcome(code: int, message: str | None) -> Outcome:
    """The outcome of one item. Raises CommandFailed for the errors that every item then has: the
    user may not change ACLs, or the cluster has no authorizer."""
    if code == ErrorCode.SECURITY_DISABLED:
        raise refusal(code, NO_AUTHORIZER, SUBJECT)
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise refusal(code, message, SUBJECT, on_cluster("ALTER"))
    return ErrorCode(code).name, message or ""


def _filter(wanted: AclFilter) -> dict[str, object]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }
