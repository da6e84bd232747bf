"""The ACLs of a cluster, reached through a controller (gRPC)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from kvorum.cli.acl_broker import SUBJECT, Outcome, outcome, portions
from kvorum.cli.acl_rules import exactly
from kvorum.client.cluster.controller_backend import ControllerBackend
from kvorum.metadata.access.selection import selected
from kvorum.metadata.image.acl import Acl, AclFilter
from kvorum.metadata.requests.acl_requests import (
    AclCreation,
    AclSelection,
    CreateAcls,
    DeleteAcls,
)
from kvorum.metadata.rpc.calls import CREATE_ACLS, DELETE_ACLS


class ControllerAcls(ControllerBackend):
    """Requests through any controller: changes go to the leader, reads to any controller that
    answers."""

    def describe(self, wanted: AclFilter) -> list[Acl]:
        return list(selected(self._image().acls.values(), wanted))

    def create(self, acls: Sequence[Acl]) -> list[Outcome]:
        found: list[Outcome] = []
        for portion in portions(acls):
            creations = tuple(AclCreation(**dataclasses.asdict(acl)) for acl in portion)
            reply = self.request(CREATE_ACLS, CreateAcls(creations=creations), SUBJECT)
            found += (outcome(each.error, each.message) for each in reply)
        return found

    def delete(self, acls: Sequence[Acl]) -> list[Outcome]:
        found: list[Outcome] = []
        for portion in portions(acls):
            filters = tuple(AclSelection(**dataclasses.asdict(exactly(acl))) for acl in portion)
            reply = self.request(DELETE_ACLS, DeleteAcls(filters=filters), SUBJECT)
            found += (outcome(each.error, each.message) for each in reply)
        return found
