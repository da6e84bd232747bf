"""Requests to one chosen node, which librdkafka would choose by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvorum.chaos.addresses import security_at
from kvorum.client.connection import BrokerGone, KafkaConnection
from kvorum.client.failures import CommandFailed

_CLIENT_ID = b"kvorum-chaos"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request in one version. name: kio's schema folder. The version must be a flexible one
    (KIP-482)."""

    key: int
    name: str
    version: int


METADATA = Call(key=3, name="metadata", version=12)


class NodeRequests:
    """Asks one node, one request at a time. Not thread-safe.

    The connection is opened by the first request, and again by the next one after an error.
    """

    def __init__(self, address: str, *, timeout_ms: int) -> None:
        """address: host:port, of IPv6 too ([::1]:9092).
        timeout_ms: for each step of the connection.
        """
        host, _, port = address.rpartition(":")
        self._place = (host.strip("[]"), int(port))
        self._security = security_at(address)
        self._timeout_s = timeout_ms / 1000
        self._connection: KafkaConnection | None = None

    def ask(self, call: Call, values: Mapping[str, Any]) -> Any:
        """kio's entity of the answer. Raises ConnectionError if there is none in time, or none that
        can be read."""
        try:
            if self._connection is not None:
                try:
                    return self._ask(self._connection, call, values)
                except BrokerGone as error:
                    # A broker may close an idle connection; a new one shows whether it is there.
                    if not isinstance(error.__cause__, ConnectionError):
                        raise
                    self.close()
            self._connection = KafkaConnection(
                [self._place],
                self._timeout_s,
                security=self._security,
                client_id=_CLIENT_ID,
                answer_slack_s=0.0,
            )
            return self._ask(self._connection, call, values)
        except CommandFailed as error:
            self.close()
            raise ConnectionError(error.reason) from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, connection: KafkaConnection, call: Call, values: Mapping[str, Any]) -> Any:
        return connection.call(call.name, call.key, call.version, values, flexible=True)
