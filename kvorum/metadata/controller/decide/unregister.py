"""UnregisterBroker and UnregisterController: a node leaves the cluster for good (KIP-631)."""

from __future__ import annotations

from kvorum.metadata.controller.decide import Context, Decision
from kvorum.metadata.controller.decide.elections import changes_without_broker
from kvorum.metadata.controller.decide.eligible_brokers import eligible_brokers
from kvorum.metadata.image.features import METADATA_VERSION, UNREGISTER_LEVEL, level_of
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.records import UnregisterBroker, UnregisterController
from kvorum.metadata.requests.controller_requests import (
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
    UnregisteredBroker,
    UnregisteredController,
)
from kvorum.runtime.errors import ErrorCode, Rejected


def unregister(
    image: ClusterImage,
    request: UnregisterBrokerRequest,
    *,
    has_session: bool,
    is_unclean_default: bool = False,
) -> Decision[UnregisteredBroker | Rejected]:
    """Remove a broker's registration. If its process is still running, it must register again.

    Refused while the broker is alive, since it would register again at once. Replicas assigned to
    the broker stay assigned (a reassignment moves them), as in Apache Kafka. A partition that only
    this broker has in sync keeps it as the last member of its ISR, without a leader: the machine
    may be lost for good, and an unclean election chooses among the other replicas. A new machine
    under the same id does not lead with an empty log: the replica's directory is not one of its
    own.
    """
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        return _refused(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {request.broker_id} is not registered"
        )
    if has_session and broker.is_active:
        return _refused(
            ErrorCode.INVALID_REQUEST,
            f"broker {request.broker_id} is alive: stop it first",
        )
    eligible = eligible_brokers(
        image, leaving=(request.broker_id,), is_unclean_default=is_unclean_default
    )
    return Decision(
        (
            # The broker's replicas are given up too, so it is no eligible leader replica any more.
            *changes_without_broker(image, request.broker_id, eligible, is_lost=True),
            UnregisterBroker(request.broker_id, broker.broker_epoch),
        ),
        UnregisteredBroker(),
    )


def unregister_controller(
    image: ClusterImage, request: UnregisterControllerRequest, context: Context
) -> Decision[UnregisteredController | Rejected]:
    """Remove a controller's registration. If its process is still running, it registers again.

    Refused for a voter: a level of a feature could not be raised any more, since nobody would know
    the levels that this voter supports.
    """
    controller_id = request.controller_id
    level = level_of(image.features, METADATA_VERSION)
    if level < UNREGISTER_LEVEL:
        return _refused(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the removal of a controller needs {METADATA_VERSION} {UNREGISTER_LEVEL}, it is "
            f"{level}; raise it (kvorum features upgrade)",
        )
    if controller_id not in image.controllers:
        return _refused(
            ErrorCode.CONTROLLER_ID_NOT_REGISTERED, f"controller {controller_id} is not registered"
        )
    if controller_id in context.voter_ids:
        return _refused(
            ErrorCode.INVALID_REQUEST,
            f"controller {controller_id} is a voter: remove it from the voters first (kvorum "
            "quorum remove-voter)",
        )
    return Decision((UnregisterController(controller_id),), UnregisteredController())


def _refused(code: ErrorCode, message: str) -> Decision[Rejected]:
    return Decision((), Rejected(code, message))
