"""The authorizer: may this user, from this host, perform this operation on this resource? Pure.

The rules are those of Kafka's StandardAuthorizer (KIP-11, KIP-290, KIP-801): super users may do
everything; a DENY of any matching pattern beats every ALLOW; READ, WRITE, DELETE and ALTER imply
DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS, for ALLOW only; without a match the answer is
no, but a resource that no ACL names is open if `allow.everyone.if.no.acl.found` is true.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kvorum.metadata.access.hosts import host_matches, plain_address
from kvorum.metadata.image.acl import (
    ANYBODY,
    USER_PREFIX,
    WILDCARD,
    Acl,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)

CACHED_NAME_CHARACTERS_MAX = 256
"""Answers about longer names are not remembered: topics have none, and clients may ask for names of
32 KiB."""
CACHED_ANSWERS_MAX = 100_000
"""Answers that are kept until ACLs change; beyond, all are forgotten. A client that asks for ever
new names costs no more memory than this."""

_IMPLIED_BY: dict[AclOperation, frozenset[AclOperation]] = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}
"""Operation -> the operations whose ALLOW implies it."""

_NO_NAME = ""
"""A name that no ACL can have, and that no prefix matches."""

_Question = tuple[str, str, int, int, str]
_ByPrincipal = dict[str, dict[Acl, None]]


@dataclass(slots=True)
class _OfType:
    """The ACLs of a type of resource.

    literal, prefixed: by name, then by principal.
    lengths: how many names in `prefixed` have each length.
    of: by principal alone.
    """

    literal: dict[str, _ByPrincipal] = field(default_factory=dict)
    prefixed: dict[str, _ByPrincipal] = field(default_factory=dict)
    lengths: Counter[int] = field(default_factory=Counter)
    of: dict[str, dict[Acl, None]] = field(default_factory=dict)

    def add(self, acl: Acl) -> None:
        is_literal = acl.pattern_type == PatternType.LITERAL
        patterns = self.literal if is_literal else self.prefixed
        if not is_literal and acl.resource_name not in patterns:
            self.lengths[len(acl.resource_name)] += 1
        patterns.setdefault(acl.resource_name, {}).setdefault(acl.principal, {})[acl] = None
        self.of.setdefault(acl.principal, {})[acl] = None

    def remove(self, acl: Acl) -> None:
        is_literal = acl.pattern_type == PatternType.LITERAL
        patterns = self.literal if is_literal else self.prefixed
        principals = patterns[acl.resource_name]
        del principals[acl.principal][acl]
        del self.of[acl.principal][acl]
        if not principals[acl.principal]:
            del principals[acl.principal]
        if not principals:
            del patterns[acl.resource_name]
            if not is_literal:
                self.lengths[len(acl.resource_name)] -= 1
                self.lengths += Counter()  # drops lengths that no name has any more

    def matching(self, name: str) -> Iterator[_ByPrincipal]:
        """The ACLs of each pattern that matches a resource of this name."""
        for literal in (name, WILDCARD):
            if literal in self.literal:
                yield self.literal[literal]
        for length in self.lengths:
            if length <= len(name) and name[:length] in self.prefixed:
                yield self.prefixed[name[:length]]


class Authorizer:
    """Answers by the ACLs that it was given, and remembers its answers until they change.

    super_users: principals such as `User:admin`.
    allow_if_no_acl: allow.everyone.if.no.acl.found. Users are named without `User:`; hosts are
        clients' addresses.
    """

    def __init__(self, *, super_users: Iterable[str] = (), allow_if_no_acl: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self._types: dict[int, _OfType] = {kind: _OfType() for kind in ResourceType}
        self._answers: dict[_Question, bool] = {}
        self._answers_by_type: dict[tuple[str, str, int, int], bool] = {}

    # --- ACLs --------------------------------------------------------------------------------

    def replace(self, acls: Iterable[Acl]) -> None:
        """Answer by these ACLs, which are all different, and no others from now on."""
        self._types = {kind: _OfType() for kind in ResourceType}
        self.change(added=acls)

    def change(self, *, added: Iterable[Acl] = (), removed: Iterable[Acl] = ()) -> None:
        """Take ACLs in and out.

        added: none that is there already.
        removed: only such as are.
        """
        for acl in removed:
            self._types[acl.resource_type].remove(acl)
        for acl in added:
            self._types[acl.resource_type].add(acl)
        self._answers.clear()
        self._answers_by_type.clear()

    # --- answers -----------------------------------------------------------------------------

    def is_allowed(
        self,
        user: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """True if the user may perform the operation on the resource."""
        question = (user, host, operation, resource_type, name)
        answer = self._answers.get(question)
        if answer is None:
            answer = self._decide(user, plain_address(host), operation, resource_type, name)
            if len(name) > CACHED_NAME_CHARACTERS_MAX:
                return answer
            if len(self._answers) >= CACHED_ANSWERS_MAX:
                self._answers.clear()
            self._answers[question] = answer
        return answer

    def is_allowed_on_any(
        self, user: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """True if there may be a resource of the type on which the user may perform the operation
        (KIP-679): an ALLOW that no DENY covers wholly."""
        question = (user, host, operation, resource_type)
        answer = self._answers_by_type.get(question)
        if answer is None:
            answer = self._decide_on_any(user, plain_address(host), operation, resource_type)
            if len(self._answers_by_type) >= CACHED_ANSWERS_MAX:
                self._answers_by_type.clear()
            self._answers_by_type[question] = answer
        return answer

    def operations(
        self, user: str, host: str, resource_type: ResourceType, name: str,
        among: Iterable[AclOperation],
    ) -> list[AclOperation]:  # fmt: skip
        """The operations of `among` that the user may perform on the resource (KIP-430)."""
        return [
            operation
            for operation in among
            if self.is_allowed(user, host, operation, resource_type, name)
        ]

    def _decide(
        self, user: str, address: str, operation: AclOperation, kind: ResourceType, name: str
    ) -> bool:
        principal = USER_PREFIX + user
        if principal in self._super_users:
            return True
        has_acls = is_allowed = False
        for principals in self._types[kind].matching(name):
            has_acls = True
            for whose in (principal, ANYBODY):
                for acl in principals.get(whose, ()):
                    if not _covers(acl, address, operation):
                        continue
                    if acl.permission == Permission.DENY:
                        return False
                    is_allowed = True
        return is_allowed or (self._allow_if_no_acl and not has_acls)

    def _decide_on_any(
        self, user: str, address: str, operation: AclOperation, kind: ResourceType
    ) -> bool:
        # Look first at a resource that no ACL names. Super users may use it, and users with an
        # ALLOW for `*`; with allow_if_no_acl every user, unless an ACL for `*` exists.
        if self._decide(user, address, operation, kind, _NO_NAME):
            return True
        found = [
            acl
            for whose in (USER_PREFIX + user, ANYBODY)
            for acl in self._types[kind].of.get(whose, ())
            if _covers(acl, address, operation)
        ]
        denied = [acl for acl in found if acl.permission == Permission.DENY]
        return any(
            acl.permission == Permission.ALLOW and not any(_hides(deny, acl) for deny in denied)
            for acl in found
        )


def _covers(acl: Acl, address: str, operation: AclOperation) -> bool:
    """True if the ACL speaks of this operation from this address."""
    if acl.operation not in (AclOperation.ALL, operation) and not (
        acl.permission == Permission.ALLOW and acl.operation in _IMPLIED_BY.get(operation, ())
    ):
        return False
    return host_matches(acl.host, address)


def _hides(deny: Acl, allow: Acl) -> bool:
    """True if the DENY matches every resource that the ALLOW matches."""
    if deny.pattern_type == PatternType.PREFIXED:
        is_all = allow.pattern_type == PatternType.LITERAL and allow.resource_name == WILDCARD
        return not is_all and allow.resource_name.startswith(deny.resource_name)
    if deny.resource_name == WILDCARD:
        return True
    return allow.pattern_type == PatternType.LITERAL and allow.resource_name == deny.resource_name
