"""A secure cluster and its callers: each kind of caller, at each listener, with each gRPC method
and each Kafka API. Each caller is refused as the tables of access say, and nothing has changed
afterwards."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from kvorum.broker.sasl.core.jaas import parse_jaas
from kvorum.metadata.access.nodes import SENDER_OF
from kvorum.metadata.access.services import ACCESS_OF
from kvorum.metadata.image.acl import AclOperation
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.http2.frames import PREFACE
from tests.polling import DEADLINE_S
from tests.test_access.asking import CASES, MODULES, REFUSALS, case_id, errors_in, fresh
from tests.test_access.requests_of_apis import GROUP, TOPIC, TRANSACTIONAL_ID
from tests.test_broker.raw_client import RawClient, batch, fetch_values, produce_values
from tests.test_security.attacked_cluster import MINE, PASSWORD, Attacked
from tests.test_security.attackers import (
    METHODS,
    TlsClient,
    connect_and_reset,
    ends_without_an_answer,
    harmful,
)

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

Code = grpc.StatusCode
REFUSED = {
    *map(int, REFUSALS.values()),
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
}
"""Of a cluster without a key for delegation tokens."""
BEFORE_LOGIN = {"api_versions", "sasl_handshake", "sasl_authenticate"}
WITHOUT_ACCESS: dict[str, tuple[int, dict[str, Any]]] = {
    "api_versions": (3, {"client_software_name": "x", "client_software_version": "1"}),
    "sasl_handshake": (1, {"mechanism": "SCRAM-SHA-512"}),
    "sasl_authenticate": (2, {"auth_bytes": b""}),
    "create_delegation_token": (3, {
        "owner_principal_type": None, "owner_principal_name": None, "renewers": [],
        "max_lifetime": -1,
    }),
    "renew_delegation_token": (2, {"hmac": b"x" * 20, "renew_period": 1}),
    "expire_delegation_token": (2, {"hmac": b"x" * 20, "expiry_time_period": -1}),
    "describe_delegation_token": (3, {"owners": None}),
    "get_telemetry_subscriptions": (0, {"client_instance_id": bytes(16)}),
    "push_telemetry": (0, {
        "client_instance_id": b"x" * 16, "subscription_id": 1, "terminating": False,
        "compression_type": 0, "metrics": b"",
    }),
}  # fmt: skip
"""Requests of the APIs that need no access; nothing of the cluster changes by them."""
FILTERED = {"list_groups", "list_transactions", "describe_cluster"}
"""Their answers leave out what the client may not know."""
OPEN_TO_WRITERS = {"init_producer_id"}
"""A user who may write to any topic gets an id of an idempotent producer."""


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    attacked = Attacked(tmp_path_factory.mktemp("attacked"))
    with attacked.cluster:
        attacked.prepare()
        yield attacked


@pytest.fixture(autouse=True)
def nothing_changes(attacked: Attacked) -> Iterator[None]:
    before = attacked.state()
    yield
    assert attacked.state() == before
    attacked.serves()


# --- gRPC ------------------------------------------------------------------------------------


def refusals(
    attacked: Attacked, port: int, certificate: Path | None, paths: Container[str] = METHODS
) -> dict[str, Code | None]:
    """The status of each method at this port; None if it was carried out."""
    quorum = attacked.quorum()
    known: dict[str, Any] = {
        "cluster_id": quorum.cluster_id,
        "epoch": quorum.leader_epoch + 100,
        "leader_id": quorum.leader_id % 3 + 1,
        "candidate_id": quorum.leader_id % 3 + 1,
        "voter_id": quorum.leader_id,
        "end_offset": 1 << 40,
        "host": "203.0.113.1",
        "broker_id": 101,
        "topic": TOPIC,
        "name": TOPIC,
    }
    found: dict[str, Code | None] = {}
    with attacked.channel(port, certificate) as channel:
        for path, method in METHODS.items():
            if path not in paths:
                continue
            request = method.input_type._concrete_class(**harmful(method.input_type, known))
            found[path] = status(channel, path, method, request)
    return found


def status(channel: Any, path: str, method: Any, request: Any) -> Code | None:
    kinds = {(False, False): "unary_unary", (False, True): "unary_stream"}
    kinds[True, True] = "stream_stream"
    kind = kinds[method.client_streaming, method.server_streaming]
    call = getattr(channel, kind)(
        path,
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=method.output_type._concrete_class.FromString,
    )
    try:
        answer = call(iter([request]) if method.client_streaming else request, timeout=5)
        if kind != "unary_unary":
            next(iter(answer), None)
    except grpc.RpcError as error:
        code: Code = error.code()
        return code
    return None


def test_every_method_has_its_access_declared() -> None:
    assert set(METHODS) == set(ACCESS_OF)


@pytest.mark.parametrize("proof", ["no certificate", "another CA", "expired"])
def test_strangers_are_not_heard_by_any_method_of_a_controller(
    attacked: Attacked, proof: str
) -> None:
    for at in range(3):
        found = refusals(attacked, attacked.cluster.ports.controller + at, attacked.proofs[proof])
        assert set(found.values()) == {Code.UNAVAILABLE}


@pytest.mark.parametrize("user", ["nobody", "narrow", "broker-101,evil", "admin2"])
def test_a_users_certificate_is_refused_by_every_method(attacked: Attacked, user: str) -> None:
    for at in range(3):
        port = attacked.cluster.ports.controller + at
        found = refusals(attacked, port, attacked.certificate(user))
        assert found == dict.fromkeys(METHODS, Code.PERMISSION_DENIED)


def test_who_may_describe_the_cluster_may_call_that_alone(attacked: Attacked) -> None:
    watching = {path for path, needed in ACCESS_OF.items() if AclOperation.DESCRIBE in needed}
    for at in range(3):
        port = attacked.cluster.ports.controller + at
        found = refusals(attacked, port, attacked.certificate("watcher"))
        allowed = {path for path, code in found.items() if code is not Code.PERMISSION_DENIED}
        assert allowed == watching


@pytest.mark.parametrize("node", ["broker-102", "controller-9", "admin"])
def test_a_node_or_a_super_user_is_refused_in_the_name_of_another_node(
    attacked: Attacked, node: str
) -> None:
    """The messages say that they come from controllers 1 to 3 and broker 101."""
    for at in range(3):
        port = attacked.cluster.ports.controller + at
        found = refusals(attacked, port, attacked.certificate(node), SENDER_OF)
        assert found == dict.fromkeys(SENDER_OF, Code.PERMISSION_DENIED)


@pytest.mark.parametrize(
    ("user", "replica_id", "error"),
    [
        # Let in, and then told that the epoch is not the one of its registration (KIP-903).
        ("broker-102", 102, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("broker-102", 101, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("controller-102", 102, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("admin", 102, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_a_follower_fetches_in_its_own_name_alone(
    attacked: Attacked, user: str, replica_id: int, error: int
) -> None:
    client = TlsClient(attacked.nodes, attacked.certificate(user))
    values = {**fetch_values(TOPIC, 0), "replica_id": replica_id}
    answer = client.call("fetch", 12, values)
    assert answer.responses[0].partitions[0].error_code == error
    client.close()


def test_grpc_at_the_listeners_of_brokers_and_clear_text_at_a_controller_are_not_heard(
    attacked: Attacked,
) -> None:
    for port in (attacked.clients, attacked.nodes):
        with attacked.channel(port, attacked.secrets / "admin.pem") as channel:
            path = "/kvorum.rpc.Raft/Vote"
            request = METHODS[path].input_type._concrete_class()
            assert status(channel, path, METHODS[path], request) is Code.UNAVAILABLE
    for port in (attacked.clients, attacked.nodes, attacked.cluster.ports.controller):
        plain = RawClient(port)
        plain.sock.sendall(PREFACE + bytes(100))
        data = b""
        try:
            while more := plain.sock.recv(4_096):
                data += more
        except ConnectionResetError:
            pass
        assert len(data) <= 7  # an alert of TLS
        plain.close()


# --- Kafka's APIs ----------------------------------------------------------------------------


def every_request() -> list[tuple[str, int, dict[str, Any]]]:
    others = [(name, *request) for name, request in WITHOUT_ACCESS.items()]
    return [*(harming(case) for case in CASES), *others]


def harming(case: tuple[str, int, dict[str, Any]]) -> tuple[str, int, dict[str, Any]]:
    """The case as a request that would change something if it were allowed."""
    name, version, values = case
    values = dict(values)
    if "validate_only" in values:
        values["validate_only"] = False
    if name == "delete_topics":
        values["topic_names"] = [TOPIC]
    if name == "unregister_broker":
        values["broker_id"] = 102
    if name == "delete_records":
        one = {"partition_index": 0, "offset": -1}
        values["topics"] = [{"name": TOPIC, "partitions": [one]}]
    if name == "delete_acls":
        # A filter that matches every ACL.
        values["filters"] = [
            {
                **values["filters"][0],
                "resource_type_filter": 1,
                "resource_name_filter": None,
                "pattern_type_filter": 1,
            }
        ]
    if name == "alter_user_scram_credentials":
        values["deletions"] = [{"name": "admin", "mechanism": 2}]
    return name, version, values


def test_every_api_has_a_request() -> None:
    assert {name for name, _, _ in every_request()} == set(MODULES)


@pytest.mark.parametrize("listener", ["clients", "nodes", "controller"])
def test_plain_bytes_are_not_heard(attacked: Attacked, listener: str) -> None:
    port = {
        "clients": attacked.clients,
        "nodes": attacked.nodes,
        "controller": attacked.cluster.ports.controller,
    }[listener]
    for name, version, values in every_request():
        client = RawClient(port)
        client.send(name, version, fresh(values))
        data = b""
        try:
            while more := client.sock.recv(4_096):
                data += more
        except ConnectionResetError:
            pass
        assert len(data) <= 7, name  # an alert of TLS at most
        client.close()


def test_without_a_login_nothing_but_the_login_is_served(attacked: Attacked) -> None:
    for name, version, values in every_request():
        client = TlsClient(attacked.clients)
        client.send(name, version, fresh(values))
        if name in BEFORE_LOGIN:
            answer = client.answer(name, version)
            expected = ErrorCode.ILLEGAL_SASL_STATE if name == "sasl_authenticate" else 0
            assert answer.error_code == expected, name
        else:
            assert ends_without_an_answer(client), name
        client.close()


def test_after_a_wrong_password_the_connection_is_over(attacked: Attacked) -> None:
    for user, password in (("admin", "wrong"), ("nobody", "wrong"), ("unknown", PASSWORD)):
        client = TlsClient(attacked.clients)
        assert client.log_in(user, password) == ErrorCode.SASL_AUTHENTICATION_FAILED
        client.send("metadata", 9, dict(CASES[2][2]))
        assert ends_without_an_answer(client)
        client.close()


@pytest.mark.parametrize("proof", ["no certificate", "another CA", "expired"])
def test_strangers_are_not_heard_at_the_listener_of_brokers(attacked: Attacked, proof: str) -> None:
    for name, version, values in every_request():
        try:
            # With TLS 1.3 the client may hear of the refusal only after it has written.
            client = TlsClient(attacked.nodes, attacked.proofs[proof])
        except (ssl.SSLError, ConnectionError):
            continue
        try:
            client.send(name, version, fresh(values))
            assert ends_without_an_answer(client), name
        except (ssl.SSLError, ConnectionError):
            continue
        finally:
            client.close()


@pytest.mark.parametrize("user", ["nobody", "narrow"])
@pytest.mark.parametrize("listener", ["clients", "nodes"])
def test_users_are_refused_by_every_api_what_no_acl_allows(
    attacked: Attacked, listener: str, user: str
) -> None:
    """The user logs in with a password at one listener, and with a certificate at the other."""
    if listener == "clients":
        client = attacked.logged_in(user)
    else:
        client = TlsClient(attacked.nodes, attacked.certificate(user))
    found: dict[str, set[int]] = {}
    for case in CASES:
        name, version, values = harming(case)
        found[case_id(case)] = errors_in(client.call(name, version, fresh(values)))
    client.close()
    for name, errors in found.items():
        api = name.partition("-")[0]
        if api in FILTERED or name == "metadata-v9-other":
            assert errors <= {0}, name
        elif user == "narrow" and api in OPEN_TO_WRITERS and not name.endswith("other"):
            assert errors == {0}, name
        else:
            assert errors - {0}, name
            assert errors - {0} <= REFUSED, name


def test_a_narrow_user_reaches_no_group_transaction_or_topic_of_others(attacked: Attacked) -> None:
    """One request names resources of other users beside the user's own."""
    client = attacked.logged_in("narrow")
    answer = client.call("metadata", 9, {
        "topics": None, "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": True,
        "include_topic_authorized_operations": True,
    })  # fmt: skip
    assert [topic.name for topic in answer.topics] == [MINE]
    assert answer.cluster_authorized_operations == 0
    both = {"key_type": 0, "coordinator_keys": [MINE, GROUP]}
    codes = [c.error_code for c in client.call("find_coordinator", 4, both).coordinators]
    assert codes[1] == ErrorCode.GROUP_AUTHORIZATION_FAILED != codes[0]
    values = produce_values(MINE, batch(1))
    values["transactional_id"] = TRANSACTIONAL_ID
    values["topic_data"][0]["partition_data"][0]["records"] = batch(
        1, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    refused = client.call("produce", 9, values).responses[0].partition_responses[0]
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    client.close()


# --- The rest of what a stranger can send ------------------------------------------------------


def test_clients_that_reset_their_connections_at_once_end_no_node(attacked: Attacked) -> None:
    """Bug found by this test: the first connection that was reset before it was accepted, at a
    listener with TLS, ended the broker's process."""
    for port in (attacked.clients, attacked.nodes, attacked.cluster.ports.controller):
        for data in (b"\x16\x03\x01", b"x", b""):
            for _ in range(40):
                connect_and_reset(port, data)


def test_thousands_of_handshakes_that_stall_keep_nobody_out(attacked: Attacked) -> None:
    open_ones: list[socket.socket] = []
    try:
        for port in (attacked.clients, attacked.nodes, attacked.cluster.ports.controller):
            for number in range(1_000):
                sock = socket.socket()
                sock.setblocking(False)
                sock.connect_ex(("127.0.0.1", port))
                open_ones.append(sock)
                if number % 2:
                    with contextlib.suppress(OSError):
                        sock.sendall(b"\x16\x03\x01\x02\x00\x01")  # half of a hello
        admin = attacked.as_admin()
        assert admin.call("api_versions", 0, {}).error_code == 0
        admin.close()
        assert attacked.quorum().leader_id > 0
    finally:
        for sock in open_ones:
            sock.close()


def test_the_page_of_metrics_takes_no_requests_and_tells_no_secret(attacked: Attacked) -> None:
    """It has neither TLS nor a login: docs/threats.md."""
    told = (attacked.secrets / "admin.properties").read_text()
    password = parse_jaas(
        "the test", next(t for t in told.splitlines() if "jaas" in t).partition("=")[2]
    ).options["password"]
    for port in attacked.pages:
        page = answer_of(port, b"GET /metrics HTTP/1.0\r\n\r\n")
        assert page.startswith(b"HTTP/1.1 200") and len(page) > 1_000
        assert password.encode() not in page and PASSWORD.encode() not in page
        for request in (
            b"POST /metrics HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n",
            b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
            b"GET /../../secrets/ca.key HTTP/1.1\r\n\r\n",
            b"GET http://127.0.0.1/metrics HTTP/1.1\r\n\r\n",
            PREFACE + bytes(64),
            b"\x16\x03\x01\x02\x00\x01" + bytes(64) + b"\r\n\r\n",
            b"\x00\x00\x00\x10\x00\x03\x00\x09" + bytes(12) + b"\r\n\r\n",
        ):
            answer = answer_of(port, request)
            assert not answer or answer.startswith(b"HTTP/1.1 4"), answer[:100]


def answer_of(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as sock:
        data = b""
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            sock.sendall(request)
            sock.shutdown(socket.SHUT_WR)
            while more := sock.recv(65_536):
                data += more
        return data
