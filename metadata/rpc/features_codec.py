"""Feature updates and registrations of controllers to protobuf and back. No rule lives here."""

from __future__ import annotations

from collections.abc import Iterable

from kvorum.metadata.requests import controller_requests as r
from kvorum.metadata.rpc.codec import (
    decode_endpoints,
    decode_features,
    encode_endpoints,
    encode_features,
)
from kvorum.rpc import features_pb2 as pb
from kvorum.runtime.errors import ErrorCode, WireError


def encode_update(request: r.UpdateFeatures) -> pb.UpdateFeaturesRequest:
    return pb.UpdateFeaturesRequest(
        updates=[
            pb.FeatureUpdate(name=u.name, max_level=u.max_level, kind=u.kind)
            for u in request.updates
        ],
        validate_only=request.validate_only,
    )


def decode_update(message: pb.UpdateFeaturesRequest) -> r.UpdateFeatures:
    """Raises WireError for a kind of update that there is not."""
    try:
        updates = tuple(
            r.FeatureUpdate(name=u.name, max_level=u.max_level, kind=r.UpdateKind(u.kind))
            for u in message.updates
        )
    except ValueError as error:
        raise WireError(str(error)) from error
    return r.UpdateFeatures(updates=updates, validate_only=message.validate_only)


def encode_updated(features: Iterable[r.UpdatedFeature]) -> list[pb.UpdatedFeature]:
    return [pb.UpdatedFeature(name=f.name, error=f.error, message=f.message) for f in features]


def decode_updated(messages: Iterable[pb.UpdatedFeature]) -> tuple[r.UpdatedFeature, ...]:
    return tuple(
        r.UpdatedFeature(name=m.name, error=ErrorCode(m.error), message=m.message) for m in messages
    )


def encode_register_controller(
    request: r.RegisterControllerRequest,
) -> pb.RegisterControllerRequest:
    return pb.RegisterControllerRequest(
        controller_id=request.controller_id,
        cluster_id=request.cluster_id,
        incarnation_id=request.incarnation_id,
        endpoints=encode_endpoints(request.endpoints),
        features=encode_features(request.features),
    )


def decode_register_controller(
    message: pb.RegisterControllerRequest,
) -> r.RegisterControllerRequest:
    return r.RegisterControllerRequest(
        controller_id=message.controller_id,
        cluster_id=message.cluster_id,
        incarnation_id=message.incarnation_id,
        endpoints=decode_endpoints(message.endpoints),
        features=decode_features(message.features),
    )
