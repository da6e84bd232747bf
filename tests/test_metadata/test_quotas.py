"""Client quotas: changes, filters, and that quotas survive log and snapshot."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.metadata.configs.quotas import (
    MATCH_ANY,
    MATCH_DEFAULT,
    MATCH_EXACT,
    QuotaFilter,
    filter_problem,
    matching,
)
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.features import ELIGIBLE_LEADER_REPLICAS as ELIGIBLE
from kvorum.metadata.image.features import METADATA_VERSION, limited
from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.metadata.image.record_codec import decode_record, encode_record
from kvorum.metadata.image.records import ClientQuota
from kvorum.metadata.image.snapshot_job import records_of
from kvorum.metadata.inspect.tree import content
from kvorum.metadata.requests.config_requests import (
    AlterClientQuotas,
    QuotaAlteration,
    QuotaOperation,
)
from kvorum.metadata.requests.controller_requests import FeatureUpdate, UpdateFeatures, UpdateKind
from kvorum.runtime.errors import ErrorCode
from tests.test_metadata.worlds import World

ALICE = (("user", "alice"),)
ANY_USER = (("user", None),)
APP = (("client-id", "app"),)
ALICE_APP = (("client-id", "app"), ("user", "alice"))
ADDRESS = (("ip", "10.0.0.1"),)
RATE = "producer_byte_rate"


def quota_world():
    """A world at the level of metadata.version that has quotas."""
    return World(brokers=())


def alter(world, *entries, validate_only=False):
    return world.ask(
        AlterClientQuotas(
            entries=tuple(
                QuotaAlteration(
                    entity=entity,
                    operations=tuple(QuotaOperation(key=k, value=v) for k, v in ops.items()),
                )
                for entity, ops in entries
            ),
            validate_only=validate_only,
        )
    )


def quotas_of(image):
    return {entity: dict(quotas) for entity, quotas in image.client_quotas.items()}


def test_quotas_are_set_changed_and_removed_per_entity():
    world = quota_world()
    alter(world, (ALICE, {RATE: 1024.0, "request_percentage": 12.5}), (ANY_USER, {RATE: 1.0}))
    alter(world, (ALICE, {RATE: None}), (ANY_USER, {RATE: None}))
    assert quotas_of(world.image) == {ALICE: {"request_percentage": 12.5}}


def test_an_entity_is_the_same_in_any_order_of_its_parts():
    world = quota_world()
    (first,) = alter(world, (ALICE_APP[::-1], {RATE: 1.0}))
    assert first.entity == ALICE_APP[::-1], "answered as it was asked"
    alter(world, (ALICE_APP, {RATE: 2.0}))
    assert quotas_of(world.image) == {ALICE_APP: {RATE: 2.0}}


def test_what_changes_nothing_writes_nothing():
    world = quota_world()
    alter(world, (ALICE, {RATE: 1.0}))
    written = len(world.records)
    alter(world, (ALICE, {RATE: 1.0}), (APP, {RATE: None}))
    alter(world, (ALICE, {RATE: 2.0}), validate_only=True)
    assert len(world.records) == written


@pytest.mark.parametrize(
    ("entity", "operations", "part"),
    [
        ((), {RATE: 1.0}, "empty client quota entity"),
        ((("group", "g"),), {RATE: 1.0}, "Unhandled client quota entity type"),
        ((("user", "a"), ("user", "b")), {RATE: 1.0}, "more than once"),
        ((("user", ""),), {RATE: 1.0}, "empty user name"),
        ((("ip", "10.0.0.1"), ("user", "a")), {RATE: 1.0}, "cannot be combined"),
        ((("ip", "nowhere"),), {"connection_creation_rate": 1.0}, "not an IP address"),
        (ALICE, {"connection_creation_rate": 1.0}, "Invalid configuration key"),
        (ADDRESS, {RATE: 1.0}, "Invalid configuration key"),
        (ALICE, {"no_such": None}, "Invalid configuration key"),
        (ALICE, {RATE: 0.0}, "greater than 0"),
        (ALICE, {RATE: -1.0}, "greater than 0"),
        (ALICE, {RATE: math.nan}, "greater than 0"),
        (ALICE, {RATE: math.inf}, "greater than 0"),
        (ALICE, {RATE: 1.5}, "whole number"),
        (ALICE, {RATE: 1e20}, "too large"),
        (ADDRESS, {"connection_creation_rate": 3e9}, "too large"),
    ],
)
def test_a_bad_quota_is_refused_by_itself(entity, operations, part):
    world = quota_world()
    bad, good = alter(world, (entity, operations), (APP, {RATE: 1.0}))
    assert bad.error is ErrorCode.INVALID_REQUEST
    assert part in bad.message
    assert good.error is ErrorCode.NONE
    assert quotas_of(world.image) == {APP: {RATE: 1.0}}


def test_a_key_or_an_entity_given_twice_is_refused():
    world = quota_world()
    twice = tuple(QuotaOperation(key=RATE, value=v) for v in (1.0, 2.0))
    (result,) = world.ask(
        AlterClientQuotas(entries=(QuotaAlteration(entity=ALICE, operations=twice),))
    )
    assert "Duplicate quota key" in result.message
    results = alter(world, (ALICE_APP, {RATE: 1.0}), (ALICE_APP[::-1], {RATE: 2.0}))
    assert [r.error for r in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert not world.image.client_quotas


def test_quotas_survive_their_records_and_a_snapshot():
    world = quota_world()
    alter(world, (ALICE_APP, {RATE: 1.0}), (ANY_USER, {RATE: 2.0}), (ALICE, {RATE: 3.0}))
    delta = Delta(EMPTY_IMAGE)
    delta.replay_all(decode_record(encode_record(record)) for record in records_of(world.image))
    again = delta.apply(end_offset=world.image.end_offset, epoch=world.image.epoch)
    assert again.client_quotas == world.image.client_quotas
    assert delta.changed_quotas == set(world.image.client_quotas)
    assert not delta.is_empty
    record = ClientQuota(ANY_USER, RATE, None)
    assert decode_record(encode_record(record)) == record
    assert content(world.image, "client_quotas/user=<default>") == {RATE: 2.0}


def test_an_older_metadata_version_has_no_quotas():
    world = World(brokers=(), supported=limited(26))
    results = alter(world, (ALICE, {RATE: 1.0}), (APP, {RATE: 1.0}))
    assert [r.error for r in results] == [ErrorCode.UNSUPPORTED_VERSION] * 2
    assert "metadata.version 27, it is 26" in results[0].message
    assert not world.image.client_quotas


def test_a_downgrade_that_would_lose_quotas_is_refused():
    world = quota_world()
    alter(world, (ALICE, {RATE: 1.0}))
    downgrade = UpdateFeatures(
        updates=(
            FeatureUpdate(name=ELIGIBLE, max_level=0, kind=UpdateKind.SAFE_DOWNGRADE),
            FeatureUpdate(name=METADATA_VERSION, max_level=26, kind=UpdateKind.SAFE_DOWNGRADE),
        )
    )
    _, refused = world.ask(downgrade)
    assert refused.error is ErrorCode.INVALID_UPDATE_VERSION
    assert "client quotas, such as those of user=alice" in refused.message
    alter(world, (ALICE, {RATE: None}))
    _, done = world.ask(downgrade)
    assert done.error is ErrorCode.NONE
    assert world.image.features[METADATA_VERSION] == 26


@pytest.mark.parametrize(
    ("components", "error", "part"),
    [
        ((("", MATCH_ANY, None),), ErrorCode.INVALID_REQUEST, "empty entity type"),
        ((("user", MATCH_ANY, None),) * 2, ErrorCode.INVALID_REQUEST, "more than once"),
        ((("group", MATCH_ANY, None),), ErrorCode.UNSUPPORTED_VERSION, "not supported"),
        ((("user", 3, None),), ErrorCode.INVALID_REQUEST, "Unknown match type 3"),
        ((("user", MATCH_EXACT, None),), ErrorCode.INVALID_REQUEST, "needs a name"),
        ((("user", MATCH_ANY, "a"),), ErrorCode.INVALID_REQUEST, "the others have none"),
        ((("user", MATCH_DEFAULT, "a"),), ErrorCode.INVALID_REQUEST, "the others have none"),
        (
            (("user", MATCH_ANY, None), ("ip", MATCH_ANY, None)),
            ErrorCode.INVALID_REQUEST,
            "ip goes with neither",
        ),
    ],
)
def test_filters_that_make_no_sense(components, error, part):
    refused = filter_problem(_filters(components))
    assert refused is not None
    assert refused.code is error
    assert part in refused.message


_NAMES = st.sampled_from(["a", "b", None])
_ENTITIES = st.dictionaries(st.sampled_from(["user", "client-id"]), _NAMES, min_size=1).map(
    lambda parts: tuple(sorted(parts.items()))
)
_COMPONENTS = st.dictionaries(
    st.sampled_from(["user", "client-id"]),
    st.sampled_from([(MATCH_EXACT, "a"), (MATCH_DEFAULT, None), (MATCH_ANY, None)]),
).map(lambda parts: [(kind, *match) for kind, match in parts.items()])


@given(st.sets(_ENTITIES), _COMPONENTS, st.booleans())
def test_a_filter_finds_what_a_slow_reading_of_it_finds(entities, components, is_strict):
    delta = Delta(EMPTY_IMAGE)
    delta.replay_all(ClientQuota(entity, RATE, 1.0) for entity in sorted(entities, key=repr))
    image = delta.apply(end_offset=1, epoch=1)
    filters = _filters(components)
    assert filter_problem(filters) is None
    found = [entity for entity, _ in matching(image, filters, is_strict=is_strict)]
    wanted = set()
    for entity in entities:
        parts = dict(entity)
        fits = all(
            kind in parts and {0: parts[kind] == name, 1: parts[kind] is None, 2: True}[match]
            for kind, match, name in components
        )
        if fits and (not is_strict or set(parts) == {c[0] for c in components}):
            wanted.add(entity)
    assert set(found) == wanted
    assert len(found) == len(wanted)


def _filters(components):
    return tuple(QuotaFilter(entity_type=t, match_type=m, match=n) for t, m, n in components)
