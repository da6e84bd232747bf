"""Feature levels (KIP-584): upgrades, safe downgrades, and the check of nodes that join."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kvorum.metadata.configs.quotas import entity_text
from kvorum.metadata.controller.decide import Context, Decision
from kvorum.metadata.controller.decide.elr_clearing import elr_forgotten
from kvorum.metadata.image.features import (
    ACL_LEVEL,
    ELIGIBLE_LEADER_REPLICAS,
    FEATURES_BEFORE_KIP_584,
    KRAFT_VERSION,
    METADATA_VERSION,
    REASSIGNMENT_LEVEL,
    SCRAM_LEVEL,
    TOKEN_LEVEL,
    FeatureRange,
    bootstrap_levels,
    level_of,
    missing_need,
    unsupported,
)
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.records import RECOVERED, FeatureLevel, Record, RegisterController
from kvorum.metadata.requests.controller_requests import (
    FeatureUpdate,
    RegisterControllerRequest,
    RegisteredController,
    UpdatedFeature,
    UpdateFeatures,
    UpdateKind,
)
from kvorum.runtime.errors import ErrorCode, Rejected


def update_features(
    image: ClusterImage, request: UpdateFeatures, context: Context
) -> Decision[tuple[UpdatedFeature, ...] | Rejected]:
    """Finalise new levels, all of them or none.

    A level must be supported by this controller, every registered broker and every controller that
    votes; the levels that it depends on must be finalised too. An upgrade needs no consent. A
    downgrade must be requested as one, and is refused if it would lose metadata (as in Apache
    Kafka).
    """
    levels = dict(image.features)
    outcome: list[UpdatedFeature] = []
    for update in request.updates:
        problem = _problem(image, update, levels, context)
        if problem is None:
            _set(levels, update.name, update.max_level)
        outcome.append(
            UpdatedFeature(
                name=update.name,
                error=ErrorCode.NONE if problem is None else problem.code,
                message="" if problem is None else problem.message,
            )
        )
    # Check all updates together: one request may have a level and the one that it depends on.
    for at, update in enumerate(request.updates):
        if outcome[at].error is ErrorCode.NONE:
            outcome[at] = _checked_needs(update, levels)
    broken = _broken_need(levels, {update.name for update in request.updates})
    if broken is not None and all(one.error is ErrorCode.NONE for one in outcome):
        return Decision((), Rejected(ErrorCode.INVALID_UPDATE_VERSION, broken))
    if request.validate_only or any(one.error is not ErrorCode.NONE for one in outcome):
        return Decision((), tuple(outcome))
    records: list[Record] = []
    if level_of(image.features, ELIGIBLE_LEADER_REPLICAS) > level_of(
        levels, ELIGIBLE_LEADER_REPLICAS
    ):
        records.extend(elr_forgotten(image))
    return Decision((*records, *_changes(image.features, levels)), tuple(outcome))


def register_controller(
    image: ClusterImage, request: RegisterControllerRequest, context: Context
) -> Decision[RegisteredController | Rejected]:
    """Register a controller process and the levels that it supports."""
    if request.cluster_id != context.cluster_id:
        return Decision(
            (),
            Rejected(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                of_another_cluster(
                    f"controller {request.controller_id}", request.cluster_id, context
                ),
            ),
        )
    refused = refusal(image, f"controller {request.controller_id}", request.features)
    if refused is not None:
        return Decision((), refused)
    known = image.controllers.get(request.controller_id)
    if known is not None and known.incarnation_id == request.incarnation_id:
        return Decision((), RegisteredController())
    record = RegisterController(
        request.controller_id, request.incarnation_id, request.endpoints, request.features
    )
    return Decision((record,), RegisteredController())


def of_another_cluster(who: str, cluster_id: str, context: Context) -> str:
    """The sentence for a node whose cluster.id is not this cluster's."""
    return (
        f"{who} belongs to cluster {cluster_id}, this is {context.cluster_id}: correct its "
        "cluster.id, or the addresses of its controllers"
    )


def refusal(image: ClusterImage, who: str, features: Iterable[FeatureRange]) -> Rejected | None:
    """The reason why a node may not join under the finalised levels, None if it may."""
    problem = unsupported(image.features, tuple(features) or FEATURES_BEFORE_KIP_584)
    if problem is None:
        return None
    return Rejected(
        ErrorCode.UNSUPPORTED_VERSION, f"{who} cannot join: {problem}; run a newer Kvorum there"
    )


def bootstrap(image: ClusterImage, context: Context) -> tuple[FeatureLevel, ...]:
    """The initial levels of a new cluster; none if the cluster has metadata already.

    Metadata from before levels were recorded keeps the lowest ones; `features upgrade` raises them
    when all nodes can.
    """
    if image.features or image.brokers or image.topics:
        return ()
    levels = bootstrap_levels(context.supported_features)
    return tuple(FeatureLevel(name, level) for name, level in sorted(levels.items()))


def _problem(
    image: ClusterImage, update: FeatureUpdate, levels: Mapping[str, int], context: Context
) -> Rejected | None:
    name, level = update.name, update.max_level
    now = level_of(levels, name)
    own = {feature.name: feature for feature in context.supported_features}
    if name not in own:
        return _invalid(f"{name} is no feature; there are {', '.join(sorted(own))}")
    if level == now:
        return None
    if level < 0 or (level == 0 and name == METADATA_VERSION):
        return _invalid(f"{name} cannot be {level}")
    if name == KRAFT_VERSION and not own[name].min_level <= level <= own[name].max_level:
        kind = "static (controller.quorum.voters)" if own[name].max_level == 0 else "dynamic"
        return _invalid(f"{name} cannot be {level}: the voters of this quorum are {kind} for good")
    if level > now and update.kind is not UpdateKind.UPGRADE:
        return _invalid(f"{name} is {now}: {level} would be an upgrade, not a downgrade")
    if level < now and update.kind is UpdateKind.UPGRADE:
        return _invalid(f"{name} is {now} already: {level} would be a downgrade; ask for one")
    for who, ranges in _members(image, context):
        known = {feature.name: feature for feature in ranges}.get(name)
        if known is None:
            if level > 0:
                return _invalid(f"{name} {level}: {who} does not know this feature")
        elif not known.min_level <= level <= known.max_level:
            return _invalid(
                f"{name} {level}: {who} supports only {known.min_level} to {known.max_level}"
            )
    if level < now:
        return _downgrade_problem(image, name, level)
    return None


def _members(
    image: ClusterImage, context: Context
) -> Iterator[tuple[str, tuple[FeatureRange, ...]]]:
    """This controller, the brokers, and the other voters, each with its supported levels."""
    yield "this controller", context.supported_features
    for broker_id, broker in sorted(image.brokers.items()):
        yield f"broker {broker_id}", broker.features or FEATURES_BEFORE_KIP_584
    for controller_id in context.voter_ids:
        controller = image.controllers.get(controller_id)
        if controller is None:
            yield f"controller {controller_id}, which has not registered,", FEATURES_BEFORE_KIP_584
        else:
            yield f"controller {controller_id}", controller.features or FEATURES_BEFORE_KIP_584


def _downgrade_problem(image: ClusterImage, name: str, level: int) -> Rejected | None:
    """The error of a downgrade that would lose metadata, also of one requested as unsafe."""
    if name != METADATA_VERSION:
        return None
    lost = next(_lost_below(image, level), None)
    if lost is None:
        return None
    return _invalid(f"{name} {level} cannot record {lost}; a downgrade may lose nothing")


def _lost_below(image: ClusterImage, level: int) -> Iterator[str]:
    """The parts of the metadata that this level of metadata.version cannot record."""
    if level < TOKEN_LEVEL and image.delegation_tokens:
        owner = min(token.owner for token in image.delegation_tokens.values())
        yield f"delegation tokens, such as those of {owner}"
    if level < ACL_LEVEL and image.acls:
        yield f"ACLs, such as those of {min(acl.principal for acl in image.acls.values())}"
    if level < SCRAM_LEVEL and image.scram_credentials:
        yield f"SCRAM credentials, such as those of {min(image.scram_credentials)!r}"
    if level >= REASSIGNMENT_LEVEL:
        return
    for topic in image.topics.values():
        for partition_id, partition in topic.partitions.items():
            name = f"{topic.name}-{partition_id}"
            if partition.is_reassigning:
                yield f"the reassignment of {name}"
            if partition.leader_recovery_state != RECOVERED:
                yield f"the recovery of {name}"
            if partition.elr or partition.last_known_elr:
                yield f"the eligible leader replicas of {name}"
            if partition.directories:
                yield f"the directories of {name}"
    for broker_id in sorted(image.brokers):
        if len(image.brokers[broker_id].log_dirs) > 1:
            yield f"the several data directories of broker {broker_id}"
    if image.client_quotas:
        entity = min(map(entity_text, image.client_quotas))
        yield f"client quotas, such as those of {entity}"


def _checked_needs(update: FeatureUpdate, levels: Mapping[str, int]) -> UpdatedFeature:
    need = missing_need(update.name, update.max_level, levels)
    error = ErrorCode.NONE if need is None else ErrorCode.INVALID_UPDATE_VERSION
    return UpdatedFeature(name=update.name, error=error, message=need or "")


def _broken_need(levels: Mapping[str, int], but: set[str]) -> str | None:
    """The reason why a finalised feature would miss a level that it depends on; None if none
    does."""
    for name, level in sorted(levels.items()):
        need = None if name in but else missing_need(name, level, levels)
        if need is not None:
            return f"{need}; downgrade {name} first"
    return None


def _set(levels: dict[str, int], name: str, level: int) -> None:
    if level:
        levels[name] = level
    else:
        levels.pop(name, None)


def _changes(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[Record]:
    for name in sorted({*before, *after}):
        if before.get(name, 0) != after.get(name, 0):
            yield FeatureLevel(name, after.get(name, 0))


def _invalid(message: str) -> Rejected:
    return Rejected(ErrorCode.INVALID_UPDATE_VERSION, message)
