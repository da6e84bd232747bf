"""Callers of a secure cluster, with every kind of proof that they may have or lack."""

from __future__ import annotations

import datetime
import secrets
import socket
import ssl
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from kvorum.broker.sasl.core.client import client_exchange
from kvorum.launch.cluster.dev_certificates import Wanted, issue, load_authority
from kvorum.rpc import admin_pb2, controller_pb2, raft_pb2
from tests.polling import DEADLINE_S
from tests.test_broker.raw_client import RawClient

MECHANISM = "SCRAM-SHA-512"


def anything(authority: Path | None = None, certificate: Path | None = None) -> ssl.SSLContext:
    """A client's context that speaks to everybody. authority: None trusts every server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    else:
        context.load_verify_locations(authority)
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


class TlsClient(RawClient):
    """A RawClient over TLS. certificate: to show, if any."""

    def __init__(self, port: int, certificate: Path | None = None) -> None:
        super().__init__(port)
        try:
            self.sock = anything(certificate=certificate).wrap_socket(self.sock)
        except BaseException:
            self.sock.close()
            raise

    def log_in(self, user: str, password: str, mechanism: str = MECHANISM) -> int:
        """The error code of SaslAuthenticate."""
        answer = self.call("sasl_handshake", 1, {"mechanism": mechanism})
        assert answer.error_code == 0, answer
        exchange = client_exchange(mechanism, user, password, secrets.token_urlsafe(20))
        assert exchange is not None
        token = exchange.step(b"")
        while token is not None:
            answer = self.call("sasl_authenticate", 2, {"auth_bytes": token})
            if answer.error_code:
                return int(answer.error_code)
            token = exchange.step(answer.auth_bytes)
        return 0


def ends_without_an_answer(client: RawClient) -> bool:
    """True if the broker closes the connection without an answer, be it with a TLS alert."""
    try:
        return client.is_closed_by_peer()
    except ssl.SSLError:
        return True


def certificate_of(secrets_folder: Path, name: str, target: Path, *, is_expired: bool) -> Path:
    """One PEM file of a user, signed by the cluster's own CA."""
    authority = load_authority(
        (secrets_folder / "ca.pem").read_bytes(), (secrets_folder / "ca.key").read_bytes(), "CA"
    )
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    wanted = Wanted(
        name=name,
        is_node=False,
        begins=now - 30 * day if is_expired else None,
        ends=now - day if is_expired else None,
    )
    target.write_bytes(issue(authority, wanted, now))
    return target


METHODS = {
    f"/{service.full_name}/{method.name}": method
    for module in (raft_pb2, controller_pb2, admin_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
"""Every gRPC method that there is, by its path."""


def harmful(descriptor: Any, known: dict[str, Any]) -> dict[str, Any]:
    """A value for every field of a message of this type. known: values by field name."""
    return {field.name: _value(field, known) for field in descriptor.fields if not _is_map(field)}


def _value(field: Any, known: dict[str, Any]) -> Any:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        one: Any = harmful(field.message_type, known)
    elif field.name in known:
        one = known[field.name]
    elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        one = bytes(16) if field.type == FieldDescriptor.TYPE_BYTES else "stolen"
    elif field.enum_type is not None:
        one = field.enum_type.values[-1].number
    else:
        one = _SAMPLES[field.cpp_type]
    return [one] if field.is_repeated else one


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


_SAMPLES = {
    FieldDescriptor.CPPTYPE_INT32: 1,
    FieldDescriptor.CPPTYPE_INT64: 1,
    FieldDescriptor.CPPTYPE_UINT32: 1,
    FieldDescriptor.CPPTYPE_UINT64: 1,
    FieldDescriptor.CPPTYPE_DOUBLE: 1.0,
    FieldDescriptor.CPPTYPE_FLOAT: 1.0,
    FieldDescriptor.CPPTYPE_BOOL: True,
}


def connect_and_reset(port: int, data: bytes) -> None:
    """Send bytes and reset the connection at once."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
    sock.sendall(data)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    sock.close()
