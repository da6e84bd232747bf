"""Decides who may call a controller's methods, before a message is read or anything changes."""

from __future__ import annotations

from typing import Any

from kvorum.metadata.access.audit import AuditLog
from kvorum.metadata.access.authorizer import Authorizer
from kvorum.metadata.access.nodes import NodePrincipals
from kvorum.metadata.access.services import ACCESS_OF
from kvorum.metadata.image.acl import CLUSTER_NAME, Acl, AclOperation, ResourceType
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage


class ControllerGuard:
    """Asks an authorizer that follows the committed image. Super users need no ACL, so that the
    quorum can be elected before there is an image."""

    def __init__(
        self,
        authorizer: Authorizer,
        audit: AuditLog | None = None,
        *,
        nodes: NodePrincipals | None = None,
    ) -> None:
        """nodes: None lets everybody with CLUSTER_ACTION send in the name of every node."""
        self._authorizer = authorizer
        self._nodes = nodes
        self._audit = audit or AuditLog()
        self._acls = EMPTY_IMAGE.acls

    def refusal(self, path: str, user: str, host: str) -> str | None:
        """Why this user may not call the method at `path`, in a sentence; None if it may."""
        operations = ACCESS_OF.get(path)
        if not operations:
            return f"{path} is refused: no access is declared for it"
        is_allowed = any(
            self._authorizer.is_allowed(user, host, operation, ResourceType.CLUSTER, CLUSTER_NAME)
            for operation in operations
        )
        needed = operations[-1]
        if self._audit.notes(is_allowed):
            self._audit.note_access(
                user, host, needed, ResourceType.CLUSTER, CLUSTER_NAME,
                is_allowed=is_allowed, method=path,
            )  # fmt: skip
        if is_allowed:
            return None
        way_out = (
            "controllers and brokers must be super.users, or have CLUSTER_ACTION"
            if needed is AclOperation.CLUSTER_ACTION
            else f"a user needs the operation {needed.name} on the cluster by an ACL (kvorum acls "
            "create ... --cluster), or a place in super.users"
        )
        return (
            f"{path} is refused to User:{user} from {host}, who may not {needed.name} the cluster; "
            f"{way_out}"
        )

    def refusal_of_message(self, path: str, message: Any, user: str, host: str) -> str | None:
        """Why this user may not send this message to the method at `path`; None if it may."""
        refusal = None if self._nodes is None else self._nodes.refusal(path, message, user)
        if refusal is not None and self._audit.notes(is_allowed=False):
            self._audit.note_access(
                user, host, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME,
                is_allowed=False, method=path, reason=refusal,
            )  # fmt: skip
        return refusal

    def update(self, image: ClusterImage) -> bool:
        """Answer by the image's ACLs from now on; True if they have changed."""
        before, acls = self._acls, image.acls
        if acls is before:
            return False
        added: list[Acl] = [acl for key, acl in acls.items() if key not in before]
        removed = [acl for key, acl in before.items() if key not in acls]
        self._acls = acls
        if not (added or removed):
            return False
        self._authorizer.change(added=added, removed=removed)
        return True
