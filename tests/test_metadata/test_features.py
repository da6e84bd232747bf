"""Feature levels: nodes that may join, levels that may be finalised, and those of a new cluster."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.metadata.controller.core.controller import Controller, ControllerConfig
from kvorum.metadata.controller.decide.features import bootstrap
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.features import (
    ELIGIBLE_LEADER_REPLICAS,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    RELEASES,
    SHARE_VERSION,
    STREAMS_VERSION,
    SUPPORTED,
    TRANSACTION_VERSION,
    FeatureRange,
    level_of,
    limited,
    missing_need,
    of_quorum,
    unsupported,
)
from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.metadata.image.loader import check_features
from kvorum.metadata.image.record_codec import UnreadableRecord, decode_record, encode_record
from kvorum.metadata.image.records import Endpoint, FeatureLevel, RegisterController
from kvorum.metadata.requests.controller_requests import (
    FeatureUpdate,
    RegisterBrokerRequest,
    RegisterControllerRequest,
    UnregisterControllerRequest,
    UnregisteredController,
    UpdateFeatures,
    UpdateKind,
)
from kvorum.runtime.errors import ErrorCode, Rejected
from tests.test_metadata.worlds import CLUSTER_ID

OLD = limited(26)
HOST = (Endpoint("CONTROLLER", "localhost", 9093),)


class Cluster:
    """A controller whose decisions are committed at once, and nodes of one build or another."""

    def __init__(self, *, supported=SUPPORTED, voters=(1, 2, 3)):
        config = ControllerConfig()
        self.controller = Controller(
            config, cluster_id=CLUSTER_ID, rng=random.Random(1), supported_features=supported
        )
        self.controller.voter_ids = voters
        self.controller.claim(1, 0, 0)
        self.controller.begin()
        self._commit()

    def _commit(self):
        self.controller.note_committed(self.controller.speculative)

    @property
    def image(self):
        return self.controller.committed

    def ask(self, request):
        reply = self.controller.decide(request, 0).reply
        self._commit()
        return reply

    def join(self, broker_id, features=SUPPORTED, incarnation=1):
        return self.ask(
            RegisterBrokerRequest(
                broker_id=broker_id,
                cluster_id=CLUSTER_ID,
                incarnation_id=bytes([incarnation]) * 16,
                endpoints=HOST,
                features=features,
            )
        )

    def join_controller(self, node_id, features=SUPPORTED, incarnation=1, cluster_id=CLUSTER_ID):
        return self.ask(
            RegisterControllerRequest(
                controller_id=node_id,
                cluster_id=cluster_id,
                incarnation_id=bytes([incarnation]) * 16,
                endpoints=HOST,
                features=features,
            )
        )

    def update(self, *, kind=UpdateKind.UPGRADE, validate_only=False, **levels):
        names = {"metadata": METADATA_VERSION, "elr": ELIGIBLE_LEADER_REPLICAS}
        updates = tuple(
            FeatureUpdate(name=names.get(name, name), max_level=level, kind=kind)
            for name, level in levels.items()
        )
        return self.ask(UpdateFeatures(updates=updates, validate_only=validate_only))

    def unregister_controller(self, node_id):
        return self.ask(UnregisterControllerRequest(controller_id=node_id))

    @property
    def levels(self):
        return dict(self.image.features)


def an_old_cluster():
    """Three controllers and a broker of the older build; all of them restarted since."""
    cluster = Cluster(supported=OLD)
    for node_id in (1, 2, 3):
        cluster.join_controller(node_id, OLD)
    cluster.join(101, OLD)
    cluster.controller._supported_features = SUPPORTED
    return cluster


def test_a_new_cluster_begins_with_all_that_its_first_controller_can():
    assert Cluster().levels == {
        METADATA_VERSION: 33, ELIGIBLE_LEADER_REPLICAS: 1, TRANSACTION_VERSION: 2,
        GROUP_VERSION: 1, KRAFT_VERSION: 1, SHARE_VERSION: 2, STREAMS_VERSION: 1,
    }  # fmt: skip
    assert Cluster(supported=OLD).levels == {METADATA_VERSION: 26}


@pytest.mark.parametrize("is_dynamic", [True, False])
def test_a_quorum_keeps_the_kind_of_voters_that_it_was_made_with(is_dynamic):
    cluster = Cluster(supported=of_quorum(SUPPORTED, is_dynamic=is_dynamic))
    assert cluster.levels.get(KRAFT_VERSION) == (1 if is_dynamic else None)
    kind = UpdateKind.SAFE_DOWNGRADE if is_dynamic else UpdateKind.UPGRADE
    (refused,) = cluster.update(kind=kind, **{KRAFT_VERSION: int(not is_dynamic)})
    assert refused.error is ErrorCode.INVALID_UPDATE_VERSION
    assert refused.message.startswith(f"kraft.version cannot be {int(not is_dynamic)}: the voters")
    (same,) = cluster.update(**{KRAFT_VERSION: int(is_dynamic)})
    assert same.error is ErrorCode.NONE


def test_the_levels_of_a_release_are_finalised_in_one_request():
    """As kafka-features upgrade --release-version 4.4 asks."""
    cluster = Cluster(supported=limited(30))
    cluster.controller._supported_features = SUPPORTED
    for node_id in (1, 2, 3):
        cluster.join_controller(node_id)
    levels = {f.name: f.max_level for f in SUPPORTED}
    assert {one.error for one in cluster.update(**levels)} == {ErrorCode.NONE}
    assert cluster.levels == levels


def test_a_controller_that_is_gone_is_unregistered():
    cluster = Cluster(voters=(1,))
    cluster.join_controller(1)
    cluster.join_controller(2)
    assert cluster.unregister_controller(2) == UnregisteredController()
    assert list(cluster.image.controllers) == [1]
    assert cluster.unregister_controller(2).code is ErrorCode.CONTROLLER_ID_NOT_REGISTERED


def test_a_voter_is_not_unregistered():
    cluster = Cluster(voters=(1, 2))
    cluster.join_controller(2)
    refused = cluster.unregister_controller(2)
    assert refused.code is ErrorCode.INVALID_REQUEST
    assert "controller 2 is a voter" in refused.message
    assert list(cluster.image.controllers) == [2]


def test_a_controller_is_not_unregistered_below_the_level_that_records_it():
    cluster = Cluster(supported=limited(32), voters=())
    cluster.join_controller(2)
    assert cluster.unregister_controller(2).code is ErrorCode.UNSUPPORTED_VERSION
    assert list(cluster.image.controllers) == [2]


def test_a_second_controller_finds_the_cluster_begun():
    cluster = Cluster(supported=OLD)
    controller = cluster.controller
    controller.renounce()
    controller.claim(2, cluster.image.end_offset, 0)
    assert controller.begin() == ()


def test_metadata_from_before_features_stays_at_the_lowest_level():
    cluster = Cluster()
    cluster.join(101)
    image = cluster.image
    delta = Delta(image)
    for name in image.features:
        delta.replay(FeatureLevel(name, 0))
    without = delta.apply(end_offset=image.end_offset, epoch=1)
    assert bootstrap(without, cluster.controller._context()) == ()
    assert level_of(without.features, METADATA_VERSION) == min(RELEASES)


def test_a_node_that_cannot_read_the_finalised_level_may_not_join():
    cluster = Cluster()
    for refused in (cluster.join(101, OLD), cluster.join_controller(2, OLD)):
        assert isinstance(refused, Rejected)
        assert refused.code is ErrorCode.UNSUPPORTED_VERSION
        assert "run a newer Kvorum there" in refused.message
    assert "broker 101 cannot join" in cluster.join(101, OLD).message
    assert (
        "metadata.version 33 is in force, it supports 26 to 26"
        in cluster.join(
            101,
            (
                FeatureRange(METADATA_VERSION, 26, 26),
                FeatureRange(ELIGIBLE_LEADER_REPLICAS, 0, 1),
                FeatureRange(GROUP_VERSION, 0, 1),
                FeatureRange(KRAFT_VERSION, 0, 1),
            ),
        ).message
    )
    assert not cluster.image.brokers and not cluster.image.controllers


def test_a_node_that_tells_nothing_counts_as_one_of_the_lowest_level():
    assert isinstance(Cluster().join(101, ()), Rejected)
    assert not isinstance(Cluster(supported=OLD).join(101, ()), Rejected)


def test_a_controller_registers_once_a_process():
    cluster = Cluster()
    cluster.join_controller(2)
    end = cluster.image.end_offset
    cluster.join_controller(2)
    assert cluster.image.end_offset == end
    cluster.join_controller(2, incarnation=2)
    assert cluster.image.end_offset == end + 1
    assert cluster.image.controllers[2].incarnation_id == b"\x02" * 16


def test_a_controller_of_another_cluster_is_refused():
    assert Cluster().join_controller(2, cluster_id="other").code is (
        ErrorCode.INCONSISTENT_CLUSTER_ID
    )


def test_a_rolling_upgrade_waits_for_the_last_node():
    cluster = an_old_cluster()
    for node_id in (1, 2, 3):
        (refused,) = cluster.update(metadata=27)
        assert refused.error is ErrorCode.INVALID_UPDATE_VERSION
        assert "supports only 26 to 26" in refused.message
        cluster.join_controller(node_id, SUPPORTED, incarnation=2)
    (refused,) = cluster.update(metadata=27)
    assert refused.message == "metadata.version 27: broker 101 supports only 26 to 26"
    cluster.join(101, SUPPORTED, incarnation=2)
    assert [one.error for one in cluster.update(metadata=27, elr=1)] == [ErrorCode.NONE] * 2
    assert cluster.levels == {METADATA_VERSION: 27, ELIGIBLE_LEADER_REPLICAS: 1}


def test_a_voter_that_has_not_registered_stands_in_the_way():
    cluster = Cluster(supported=OLD, voters=(1, 2))
    cluster.controller._supported_features = SUPPORTED
    cluster.join_controller(1)
    (refused,) = cluster.update(metadata=27)
    assert "controller 2, which has not registered" in refused.message


def test_a_controller_without_a_vote_does_not():
    cluster = an_old_cluster()
    cluster.controller.voter_ids = ()
    cluster.join(101, SUPPORTED, incarnation=2)
    assert cluster.update(metadata=27)[0].error is ErrorCode.NONE


def test_all_updates_come_true_or_none():
    cluster = Cluster()
    outcome = cluster.update(kind=UpdateKind.SAFE_DOWNGRADE, elr=0, metadata=99)
    assert [one.error for one in outcome] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_UPDATE_VERSION,
    ]
    assert cluster.levels[ELIGIBLE_LEADER_REPLICAS] == 1


def test_validate_only_changes_nothing():
    cluster = Cluster()
    outcome = cluster.update(kind=UpdateKind.SAFE_DOWNGRADE, validate_only=True, elr=0)
    assert outcome[0].error is ErrorCode.NONE
    assert cluster.levels[ELIGIBLE_LEADER_REPLICAS] == 1


@pytest.mark.parametrize(
    ("kind", "levels", "words"),
    [
        (UpdateKind.UPGRADE, {"elr": 0}, "0 would be a downgrade"),
        (UpdateKind.UPGRADE, {"metadata": 34}, "this controller supports only 26 to 33"),
        (UpdateKind.UPGRADE, {"metadata": 0}, "metadata.version cannot be 0"),
        (UpdateKind.UPGRADE, {"elr": -1}, "cannot be -1"),
        (UpdateKind.UPGRADE, {"no.such": 1}, "no.such is no feature; there are"),
        (UpdateKind.SAFE_DOWNGRADE, {"elr": 2}, "would be an upgrade"),
        (UpdateKind.SAFE_DOWNGRADE, {"metadata": 25}, "supports only 26 to 33"),
    ],
)
def test_what_cannot_be_is_refused_in_words(kind, levels, words):
    (refused,) = Cluster().update(kind=kind, **levels)
    assert refused.error is ErrorCode.INVALID_UPDATE_VERSION
    assert words in refused.message


def test_a_level_goes_not_below_what_rests_on_it():
    cluster = Cluster()
    refused = cluster.update(kind=UpdateKind.SAFE_DOWNGRADE, metadata=26)
    assert isinstance(refused, Rejected)
    assert refused.message.endswith("downgrade eligible.leader.replicas.version first")
    both = cluster.update(kind=UpdateKind.SAFE_DOWNGRADE, metadata=26, elr=0)
    assert [one.error for one in both] == [ErrorCode.NONE] * 2
    assert cluster.levels == {
        METADATA_VERSION: 26, GROUP_VERSION: 1, KRAFT_VERSION: 1, SHARE_VERSION: 2,
        STREAMS_VERSION: 1, TRANSACTION_VERSION: 2,
    }  # fmt: skip


def test_a_level_needs_what_it_rests_on():
    cluster = an_old_cluster()
    for node_id in (1, 2, 3):
        cluster.join_controller(node_id, SUPPORTED, incarnation=2)
    cluster.join(101, SUPPORTED, incarnation=2)
    (refused,) = cluster.update(elr=1)
    assert refused.message == (
        "eligible.leader.replicas.version 1 needs metadata.version 27, it is 26"
    )


def test_what_stays_as_it_is_writes_nothing():
    cluster = Cluster()
    end = cluster.image.end_offset
    assert cluster.update(metadata=33)[0].error is ErrorCode.NONE
    assert cluster.image.end_offset == end


@given(st.integers(0, 40), st.integers(0, 40))
def test_a_limited_node_supports_nothing_that_its_own_limit_does_not_carry(limit, other):
    ranges = {feature.name: feature for feature in limited(max(limit, min(RELEASES)))}
    levels = {METADATA_VERSION: ranges[METADATA_VERSION].max_level}
    for feature in ranges.values():
        assert feature.min_level <= feature.max_level
        assert missing_need(feature.name, feature.max_level, levels) is None
    assert (unsupported({METADATA_VERSION: other}, ranges.values()) is None) == (
        other in range(min(RELEASES), min(max(limit, min(RELEASES)), max(RELEASES)) + 1)
    )


def test_a_node_stops_at_a_level_that_its_build_does_not_know():
    delta = Delta(EMPTY_IMAGE)
    delta.replay(FeatureLevel(METADATA_VERSION, 99))
    with pytest.raises(UnreadableRecord, match=r"metadata.version 99 is in force"):
        check_features(delta.apply(end_offset=1, epoch=1))
    delta = Delta(EMPTY_IMAGE)
    delta.replay(FeatureLevel("of.the.future", 1))
    with pytest.raises(UnreadableRecord, match="which it does not know"):
        check_features(delta.apply(end_offset=1, epoch=1))


def test_records_survive_their_encoding():
    record = RegisterController(3, b"i" * 16, HOST, SUPPORTED)
    assert decode_record(encode_record(record)) == record
