"""Creating and deleting ACLs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kvorum.metadata.controller.core.controller import ControllerConfig
from kvorum.metadata.controller.decide import acls as decisions
from kvorum.metadata.image.acl import (
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from kvorum.metadata.image.features import METADATA_VERSION, limited
from kvorum.metadata.image.records import AccessControlEntry, RemoveAccessControlEntry
from kvorum.metadata.requests.acl_requests import (
    AclCreation,
    AclSelection,
    CreateAcls,
    DeleteAcls,
    DeletedAcls,
)
from kvorum.metadata.requests.controller_requests import FeatureUpdate, UpdateFeatures, UpdateKind
from kvorum.runtime.errors import ErrorCode, Rejected
from tests.test_metadata.acls import acl
from tests.test_metadata.worlds import World

ANY = {
    "resource_type": 1, "resource_name": None, "pattern_type": 1, "principal": None,
    "host": None, "operation": 1, "permission": 1,
}  # fmt: skip
AT_MOST_TWO = ControllerConfig(kvorum_controller_request_records_max=2)
ORDERS, PAY = acl(), acl("pay", principal="User:bob", operation=AclOperation.WRITE)


def creation(**changed: Any) -> AclCreation:
    return AclCreation(**(dataclasses.asdict(ORDERS) | changed))


def creations(*acls: Any) -> tuple[AclCreation, ...]:
    return tuple(AclCreation(**dataclasses.asdict(each)) for each in acls)


def create(world: World, *asked: AclCreation) -> list[tuple[ErrorCode, str]]:
    return [(r.error, r.message) for r in world.ask(CreateAcls(creations=asked))]


def delete(world: World, *filters: dict[str, Any]) -> tuple[DeletedAcls, ...] | Rejected:
    asked = tuple(AclSelection(**(ANY | changed)) for changed in filters)
    return world.ask(DeleteAcls(filters=asked))


def world_with(*acls: Any) -> World:
    world = World(brokers=())
    assert create(world, *creations(*acls)) == [(ErrorCode.NONE, "")] * len(acls)
    return world


def acls_of(world: World) -> set[Any]:
    return set(world.image.acl_ids)


def test_acls_are_created_each_with_an_id_of_its_own() -> None:
    world = world_with(ORDERS, PAY)
    assert acls_of(world) == {ORDERS, PAY}
    assert len(world.image.acls) == 2
    assert all(len(acl_id) == 16 for acl_id in world.image.acls)


def test_an_acl_that_exists_or_comes_twice_is_created_without_a_second_record() -> None:
    world = world_with(ORDERS)
    asked = creations(ORDERS, PAY, PAY)
    assert create(world, *asked) == [(ErrorCode.NONE, "")] * 3
    records = [r for r in world.records if isinstance(r, AccessControlEntry)]
    assert [record.acl for record in records] == [ORDERS, PAY]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"resource_type": 0}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 8}, "Invalid resourceType UNKNOWN"),
        ({"pattern_type": 0}, "Invalid patternType UNKNOWN"),
        ({"pattern_type": 1}, "Invalid patternType ANY"),
        ({"pattern_type": 2}, "Invalid patternType MATCH"),
        ({"pattern_type": 5}, "Invalid patternType UNKNOWN"),
        ({"operation": 0}, "Invalid operation UNKNOWN"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"operation": 16}, "Invalid operation UNKNOWN"),
        ({"permission": 0}, "Invalid permissionType UNKNOWN"),
        ({"permission": 1}, "Invalid permissionType ANY"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        (
            {"resource_type": 4, "resource_name": "x", "operation": 7},
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        (
            {"principal": "alice"},
            "Could not parse principal from `alice` (no colon is present separating the principal "
            "type from the principal name)",
        ),
        (
            {"host": "10.0.0.0/33"},
            "Invalid CIDR notation '10.0.0.0/33': a range of hosts has a form like 10.0.0.0/8",
        ),
        ({"host": ""}, "Host pattern cannot be null or empty"),
        ({"host": "h" * 8193}, "A name, principal or host is longer than 8192 bytes"),
        ({"resource_name": "é" * 4097}, "A name, principal or host is longer than 8192 bytes"),
    ],
)
def test_an_unsound_acl_is_refused_and_spoils_no_other(
    changed: dict[str, Any], message: str
) -> None:
    world = World(brokers=())
    results = create(world, creation(**changed), creation())
    assert results == [(ErrorCode.INVALID_REQUEST, message), (ErrorCode.NONE, "")]
    assert acls_of(world) == {ORDERS}


def test_any_operation_principal_type_prefix_and_range_may_be_named() -> None:
    extras = (
        acl(resource_type=ResourceType.GROUP, operation=AclOperation.WRITE),
        acl(principal=":alice"),
        acl(principal="User:"),
        acl(principal="Group:admins"),
        acl(principal="User:CN=a:b,O=c"),
        acl(principal="User:*", permission=Permission.DENY, host="10.0.0.0/8"),
        acl(host="::1"),
        acl(pattern_type=PatternType.PREFIXED),
        acl("*"),
        acl("kafka-cluster", resource_type=ResourceType.CLUSTER, operation=AclOperation.ALL),
    )
    assert acls_of(world_with(*extras)) == set(extras)


def test_a_request_creates_as_many_acls_as_the_controller_allows() -> None:
    world = World(brokers=(), config=AT_MOST_TWO)
    create(world, *creations(ORDERS))
    names = ("a", "b", "c", "orders", "a")
    results = create(world, *creations(*(acl(name) for name in names)))
    assert [error for error, _ in results] == [
        ErrorCode.NONE, ErrorCode.NONE, ErrorCode.POLICY_VIOLATION, ErrorCode.NONE, ErrorCode.NONE,
    ]  # fmt: skip
    assert results[2][1] == "more than 2 ACLs in one request; send several"
    assert acls_of(world) == {ORDERS, acl("a"), acl("b")}


def test_the_bytes_of_a_request_have_a_limit_too() -> None:
    """A batch above a segment's size, 8 MiB, would end the active controller, and the next one."""
    world = World(brokers=())
    asked = [creation(resource_name=f"{number:08192}") for number in range(900)]
    refused = world.ask(CreateAcls(creations=tuple(asked)))
    assert isinstance(refused, Rejected)
    assert refused.code is ErrorCode.POLICY_VIOLATION
    assert "more than 7340032 bytes of metadata" in refused.message
    assert not world.image.acls
    assert len(create(world, *asked[:800])) == len(world.image.acls) == 800


def test_deletion_is_by_filter_and_each_filter_tells_what_it_matched() -> None:
    other = acl("orders", principal="User:bob")
    world = world_with(ORDERS, PAY, other)
    results = delete(world, {"principal": "User:bob"}, {"resource_name": "orders"})
    assert results == (
        DeletedAcls(acls=(other, PAY)),
        DeletedAcls(acls=(ORDERS, other)),
    )
    assert acls_of(world) == set()
    assert sum(isinstance(r, RemoveAccessControlEntry) for r in world.records) == 3


def test_a_filter_without_a_gap_deletes_that_acl_alone() -> None:
    prefixed = acl(pattern_type=PatternType.PREFIXED)
    world = world_with(ORDERS, prefixed)
    exact = dataclasses.asdict(ORDERS)
    assert delete(world, exact, exact) == (DeletedAcls(acls=(ORDERS,)),) * 2
    assert acls_of(world) == {prefixed}
    assert delete(world, exact) == (DeletedAcls(),)


@pytest.mark.parametrize(
    "gap",
    [
        {"resource_type": 1}, {"resource_name": None}, {"pattern_type": 1}, {"pattern_type": 2},
        {"principal": None}, {"host": None}, {"operation": 1}, {"permission": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_filter_with_one_gap_deletes_all_that_fit(gap: dict[str, Any]) -> None:
    (field,) = gap
    others = {
        "resource_type": ResourceType.GROUP, "resource_name": "o", "principal": "User:bob",
        "pattern_type": PatternType.PREFIXED, "host": "::1",
        "operation": AclOperation.DESCRIBE, "permission": Permission.DENY,
    }  # fmt: skip
    variants = [acl(**{name: value}) for name, value in others.items()]
    world = world_with(ORDERS, *variants)
    (result,) = delete(world, dataclasses.asdict(ORDERS) | gap)
    assert set(result.acls) == {ORDERS, acl(**{field: others[field]})}
    assert acls_of(world) == {ORDERS, *variants} - set(result.acls)


def test_match_finds_what_matches_a_resource() -> None:
    everything, prefix = acl("*"), acl("ord", pattern_type=PatternType.PREFIXED)
    world = world_with(ORDERS, PAY, everything, prefix)
    (result,) = delete(world, {"pattern_type": 2, "resource_name": "orders"})
    assert set(result.acls) == {ORDERS, everything, prefix}
    assert acls_of(world) == {PAY}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"resource_type": 0}, "Unknown patternFilter."),
        ({"pattern_type": 9}, "Unknown patternFilter."),
        ({"operation": 0}, "Unknown entryFilter."),
        ({"permission": 4}, "Unknown entryFilter."),
    ],
)
def test_an_unknown_filter_is_refused_and_spoils_no_other(
    changed: dict[str, Any], message: str
) -> None:
    world = world_with(ORDERS, PAY)
    results = delete(world, changed, {"resource_name": "pay"})
    assert results == (
        DeletedAcls(error=ErrorCode.INVALID_REQUEST, message=message),
        DeletedAcls(acls=(PAY,)),
    )
    assert acls_of(world) == {ORDERS}


def test_a_request_deletes_as_many_acls_as_the_controller_allows_or_none() -> None:
    world = World(brokers=(), config=AT_MOST_TWO)
    for name in "abc":
        create(world, *creations(acl(name)))
    refused = delete(world, {"resource_name": "a"}, {})
    assert refused == Rejected(
        ErrorCode.INVALID_REQUEST, "Cannot remove more than 2 acls in a single delete operation."
    )
    assert len(world.image.acls) == 3
    twice = delete(world, {"resource_name": "a"}, {"resource_name": "b"}, {"resource_name": "a"})
    assert [len(result.acls) for result in twice] == [1, 1, 1]


def test_filters_with_gaps_have_a_limit_since_each_looks_at_all_acls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decisions, "COMPARISONS_MAX", 4)
    world = world_with(ORDERS, PAY)
    names = [{"resource_name": name} for name in "abc"]
    refused = delete(world, *names)
    assert isinstance(refused, Rejected)
    assert refused.code is ErrorCode.POLICY_VIOLATION
    assert refused.message.startswith("more than 2 filters with gaps in one request, with 2 ACLs")
    # Equal filters, and those without a gap, cost nothing.
    exact = dataclasses.asdict(ORDERS)
    assert len(delete(world, *names[:2], *names[:2], exact)) == 5


def test_filters_that_match_the_same_acls_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "LISTED_MAX", 4)
    world = world_with(ORDERS, PAY)
    refused = delete(world, {}, {}, {})
    assert isinstance(refused, Rejected)
    assert refused.code is ErrorCode.POLICY_VIOLATION
    assert acls_of(world) == {ORDERS, PAY}
    assert len(delete(world, {}, {})) == 2


def test_acls_need_the_level_that_has_records_for_them() -> None:
    world = World(brokers=(), supported=limited(28))
    words = "ACLs need metadata.version 29, it is 28; upgrade it with `kvorum features upgrade`"
    assert create(world, creation()) == [(ErrorCode.UNSUPPORTED_VERSION, words)]
    assert delete(world, {}) == Rejected(ErrorCode.UNSUPPORTED_VERSION, words)
    assert not world.image.acls


def test_the_level_goes_not_down_while_there_are_acls() -> None:
    world = world_with(ORDERS)
    update = FeatureUpdate(name=METADATA_VERSION, max_level=28, kind=UpdateKind.SAFE_DOWNGRADE)
    down = UpdateFeatures(updates=(update,))
    (refused,) = world.ask(down)
    assert refused.error is ErrorCode.INVALID_UPDATE_VERSION
    assert "cannot record ACLs, such as those of User:alice" in refused.message
    delete(world, {})
    (done,) = world.ask(down)
    assert done.error is ErrorCode.NONE
