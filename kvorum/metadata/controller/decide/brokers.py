"""The life cycle of a broker: registration, fencing, unfencing, controlled shutdown (KIP-631)."""

from __future__ import annotations

from kvorum.metadata.controller.decide import Context, Decision
from kvorum.metadata.controller.decide.directories import (
    after_failure,
    registered_log_dirs,
    registration_problem,
)
from kvorum.metadata.controller.decide.elections import changes_with_broker, changes_without_broker
from kvorum.metadata.controller.decide.eligible_brokers import eligible_brokers
from kvorum.metadata.controller.decide.features import of_another_cluster, refusal
from kvorum.metadata.image.image import BrokerImage, ClusterImage
from kvorum.metadata.image.records import BrokerRegistrationChange, Record, RegisterBroker
from kvorum.metadata.requests.controller_requests import (
    Heartbeat,
    HeartbeatReply,
    RegisterBrokerRequest,
    RegisteredBroker,
)
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.text import address_text


def register(
    image: ClusterImage,
    request: RegisterBrokerRequest,
    context: Context,
    *,
    has_session: bool,
    may_be_alive: bool,
) -> Decision[RegisteredBroker | Rejected]:
    """Register a broker process; its broker epoch is the offset of its registration record.

    has_session: a process with this id is alive. Another incarnation is then refused.
    may_be_alive: it gave a sign of life within the session timeout. One incarnation then replaces
        another only on the same data directories: their locks show that the earlier process is
        gone. Bad sequence otherwise: 1. A broker is started elsewhere with the id of a live one. 2.
        The active controller dies, and no session is certain. 3. The second process registers with
        its empty directories, and the live one exits.
    """
    stranger = _stranger(image, request, context)
    if stranger is not None:
        return Decision((), stranger)
    unfit = refusal(image, f"broker {request.broker_id}", request.features)
    if unfit is not None:
        return Decision((), unfit)
    if not request.endpoints:
        return _refused(ErrorCode.INVALID_REGISTRATION, "a broker needs at least one listener")
    problem = registration_problem(image, request)
    if problem is not None:
        return Decision((), problem)
    known = image.brokers.get(request.broker_id)
    records: list[Record] = []
    if known is not None:
        if known.incarnation_id == request.incarnation_id:
            return Decision((), RegisteredBroker(broker_epoch=known.broker_epoch))
        is_alive = has_session and known.is_active
        if is_alive or (may_be_alive and _has_other_directories(known, request)):
            state = "is alive" if is_alive else "may be alive, on other data directories"
            return _refused(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"another process is registered as broker {request.broker_id} and {state}, at "
                f"{address_text(known.endpoint.host, known.endpoint.port)}; stop it, or give this "
                "one a node.id of its own",
            )
        # The earlier process may still lead partitions in this image. If it did not close its logs
        # cleanly, its replicas may have lost records (KIP-966).
        eligible = eligible_brokers(
            image, leaving=(request.broker_id,), is_unclean_default=context.is_unclean_default
        )
        is_lost = request.broker_epoch_before != known.broker_epoch
        records.extend(changes_without_broker(image, request.broker_id, eligible, is_lost=is_lost))
    broker_epoch = context.next_offset + len(records)
    records.append(
        RegisterBroker(
            request.broker_id,
            broker_epoch,
            request.incarnation_id,
            request.endpoints,
            request.rack,
            features=request.features,
            log_dirs=registered_log_dirs(image, request),
        )
    )
    return Decision(tuple(records), RegisteredBroker(broker_epoch=broker_epoch))


def _stranger(
    image: ClusterImage, request: RegisterBrokerRequest, context: Context
) -> Rejected | None:
    """The refusal of a broker of another cluster or quorum, or with a controller's id; or None."""
    if request.cluster_id != context.cluster_id:
        return Rejected(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            of_another_cluster(f"broker {request.broker_id}", request.cluster_id, context),
        )
    if request.broker_id in context.voter_ids or request.broker_id in image.controllers:
        return Rejected(
            ErrorCode.INVALID_REGISTRATION,
            f"node {request.broker_id} is a controller of this cluster; a broker needs an id of "
            "its own",
        )
    if request.metadata_offset > context.next_offset or request.metadata_epoch > context.epoch:
        # Bad sequence: 1. Most voters lose their disks and are installed again as new ones. 2. They
        # lead a quorum without records. 3. The brokers register there, and drop what they have.
        return Rejected(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"broker {request.broker_id} has metadata up to offset {request.metadata_offset} of "
            f"epoch {request.metadata_epoch}; this quorum has {context.next_offset} of epoch "
            f"{context.epoch}: its voters have lost records, or are those of another quorum",
        )
    return None


def _has_other_directories(known: BrokerImage, request: RegisterBrokerRequest) -> bool:
    """True if no data directory of the request is of the registered broker. False if one of them
    names no directories: a level of metadata.version may not record them."""
    if not known.log_dirs or not request.log_dirs:
        return False
    return not set(known.log_dirs) & set(request.log_dirs)


def heartbeat(
    image: ClusterImage, request: Heartbeat, *, is_unclean_default: bool = False
) -> Decision[HeartbeatReply | Rejected]:
    """Answer a heartbeat: unfence a broker that has caught up, or move leaders off one that shuts
    down or off a failed data directory."""
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        return _refused(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {request.broker_id} is not registered"
        )
    if broker.broker_epoch != request.broker_epoch:
        return _refused(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {request.broker_id} has epoch {broker.broker_epoch}, "
            f"not {request.broker_epoch}",
        )
    # Caught up means that the broker has published at least its own registration.
    is_caught_up = request.metadata_offset > broker.broker_epoch
    is_fenced = broker.is_fenced
    records = after_failure(
        image, broker, request.offline_log_dirs, is_unclean_default=is_unclean_default
    )
    if records:
        # The rest waits for the next heartbeat, when the image no longer has the directory.
        return Decision(records, HeartbeatReply(is_caught_up=is_caught_up, is_fenced=is_fenced))
    if request.want_shutdown:
        if not broker.is_fenced and not broker.in_controlled_shutdown:
            records = _shut_down(image, broker, is_unclean_default)
        return Decision(
            records,
            HeartbeatReply(is_caught_up=is_caught_up, is_fenced=is_fenced, should_shut_down=True),
        )
    if request.want_fence and not broker.is_fenced:
        records = fence(image, broker.broker_id, is_unclean_default=is_unclean_default)
        is_fenced = True
    elif not request.want_fence and broker.is_fenced and is_caught_up:
        records, is_fenced = _unfence(image, broker, is_unclean_default), False
    return Decision(records, HeartbeatReply(is_caught_up=is_caught_up, is_fenced=is_fenced))


def fence(
    image: ClusterImage, broker_id: int, *, is_unclean_default: bool = False
) -> tuple[Record, ...]:
    """The records that remove a broker from leadership and ISRs, and fence it.

    The fencing is the last record. If the decision needs several batches, the controller may die
    after some of them. The broker is then still unfenced, and its session ends at the next
    controller too, which decides the rest. If the fencing came first, no controller would look for
    the rest.
    """
    broker = image.brokers.get(broker_id)
    if broker is None or broker.is_fenced:
        return ()
    eligible = eligible_brokers(image, leaving=(broker_id,), is_unclean_default=is_unclean_default)
    return (
        *changes_without_broker(image, broker_id, eligible),
        BrokerRegistrationChange(broker_id, broker.broker_epoch, is_fenced=True),
    )


def _unfence(
    image: ClusterImage, broker: BrokerImage, is_unclean_default: bool
) -> tuple[Record, ...]:
    eligible = eligible_brokers(
        image, joining=broker.broker_id, is_unclean_default=is_unclean_default
    )
    return (
        BrokerRegistrationChange(broker.broker_id, broker.broker_epoch, is_fenced=False),
        *changes_with_broker(image, broker.broker_id, eligible),
    )


def _shut_down(
    image: ClusterImage, broker: BrokerImage, is_unclean_default: bool
) -> tuple[Record, ...]:
    eligible = eligible_brokers(
        image, leaving=(broker.broker_id,), is_unclean_default=is_unclean_default
    )
    return (
        BrokerRegistrationChange(
            broker.broker_id, broker.broker_epoch, in_controlled_shutdown=True
        ),
        *changes_without_broker(image, broker.broker_id, eligible),
    )


def _refused(code: ErrorCode, message: str) -> Decision[Rejected]:
    return Decision((), Rejected(code, message))
