"""One member of a classic group, as the coordinator knows it. Pure."""

from __future__ import annotations

from kvorum.broker.groups.steps.requests import JoinGroup, ProtocolMetadata


class Member:
    """A member of a classic group.

    join_token, sync_token: the parked request that waits for the rebalance, None if there is none.
    is_new: the member has not had its first JoinGroup answer, so it cannot send heartbeats.
    session_deadline_ms: the member is removed if it sends nothing until then.
    session_timer_ms: when the timer fires, never later than the deadline; None if it is not set. A
        heartbeat only moves the deadline, and a timer that fires too early is set again: one timer
        for each session timeout, not one for each heartbeat.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_token",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_deadline_ms",
        "session_timeout_ms",
        "session_timer_ms",
        "sync_token",
    )

    def __init__(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: tuple[ProtocolMetadata, ...],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.join_token: int | None = None
        self.sync_token: int | None = None
        self.is_new = False
        self.session_deadline_ms = 0
        self.session_timer_ms: int | None = None

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        return self.join_token is not None

    @property
    def is_waiting(self) -> bool:
        """True if a request of the member is parked; such a member counts as alive."""
        return self.join_token is not None or self.sync_token is not None

    def metadata_for(self, protocol_name: str | None) -> bytes:
        """The member's metadata for that assignor; empty if the member does not offer it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def protocol_names(self) -> list[str]:
        """Names of the offered protocols, best first, each once."""
        return list(dict.fromkeys(protocol.name for protocol in self.protocols))

    def update(self, request: JoinGroup) -> None:
        """Adopt the values of a repeated JoinGroup."""
        self.protocols = request.protocols
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.session_timeout_ms = request.session_timeout_ms
