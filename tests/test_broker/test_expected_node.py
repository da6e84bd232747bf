"""ApiVersions v5 and DescribeCluster v2: a client that is at the wrong node hears so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kvorum.broker.api import api_versions, describe_cluster
from kvorum.broker.api.registry import SERVED_TO_TOOLS
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.metadata.image.records import Endpoint, RegisterController
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.kio_codec import encode_response
from tests.test_broker.contexts import request_context


def asked(cluster_id: str | None, node_id: int) -> dict[str, Any]:
    context = request_context(
        5,
        cluster_id="here",
        broker_id=101,
        image=lambda: EMPTY_IMAGE,
        telemetry=SimpleNamespace(is_wanted=lambda configs: False),
        supported_features=(),
        served_to_tools=None,
    )
    answer = api_versions.handle(
        context,
        SimpleNamespace(
            client_software_name="c",
            client_software_version="1",
            cluster_id=cluster_id,
            node_id=node_id,
        ),
    )
    assert encode_response("api_versions", 5, answer)
    return answer


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        (None, -1, ErrorCode.NONE),
        ("here", 101, ErrorCode.NONE),
        ("here", 102, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("elsewhere", 101, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", 101, ErrorCode.REBOOTSTRAP_REQUIRED),
        (None, 101, ErrorCode.INVALID_REQUEST),
        ("here", -1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_client_that_expects_another_node_is_told_to_bootstrap_again(
    cluster_id: str | None, node_id: int, code: ErrorCode
) -> None:
    answer = asked(cluster_id, node_id)
    assert answer["error_code"] is code
    assert bool(answer["api_keys"]) == (code is ErrorCode.NONE)


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_a_broker_describes_no_controllers(endpoint_type: int, code: ErrorCode) -> None:
    answer = describe_cluster.handle(
        request_context(2, served_to_tools=None), SimpleNamespace(endpoint_type=endpoint_type)
    )
    assert (answer["error_code"], answer["cluster_id"]) == (code, "")
    assert encode_response("describe_cluster", 2, answer)


def controllers_described(endpoint_type: int) -> dict[str, Any]:
    delta = Delta(EMPTY_IMAGE)
    of_nodes, of_tools = Endpoint("CONTROLLER", "h", 1), Endpoint("ADMIN", "h", 2)
    for controller_id, endpoints in ((1, (of_nodes, of_tools)), (2, (of_nodes,))):
        delta.replay(RegisterController(controller_id, bytes(16), endpoints, ()))
    image = delta.apply(end_offset=2, epoch=1)
    context = request_context(
        2,
        served_to_tools=SERVED_TO_TOOLS,
        cluster_id="here",
        controller_id=lambda: 1,
        image=lambda: image,
    )
    context.listener = "ADMIN"
    request = SimpleNamespace(
        endpoint_type=endpoint_type, include_cluster_authorized_operations=False
    )
    answer = describe_cluster.handle(context, request)
    assert encode_response("describe_cluster", 2, answer)
    return answer


def test_a_controller_describes_the_controllers_that_have_its_clients_listener() -> None:
    answer = controllers_described(2)
    assert (answer["error_code"], answer["endpoint_type"]) == (ErrorCode.NONE, 2)
    assert [(row["broker_id"], row["port"]) for row in answer["brokers"]] == [(1, 2)]


def test_a_controller_describes_no_brokers() -> None:
    assert controllers_described(1)["error_code"] is ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_a_controller_advertises_what_it_serves_to_tools() -> None:
    served = {key for key, _, _ in SERVED_TO_TOOLS.advertised()}
    assert {18, 44, 55, 57, 60, 64, 80, 94} <= served
    assert not served & {0, 1, 3, 10}
