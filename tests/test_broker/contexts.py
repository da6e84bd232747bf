"""Contexts of requests without a network, for tests of handlers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.metadata.access.audit import AuditLog


def request_context(
    api_version: int = 0,
    *,
    user: str = "ANONYMOUS",
    host: str = "127.0.0.1",
    authorizer: Any = None,
    audit: AuditLog | None = None,
    **services: Any,
) -> RequestContext:
    """A context of a client. services: the attributes of its `Services` that the handler reads."""
    connection = SimpleNamespace(user=user, address=host, muted_ms=0, is_closed=False)
    return RequestContext(
        services=SimpleNamespace(  # type: ignore[arg-type]
            authorizer=authorizer, audit=audit or AuditLog(), **services
        ),
        api_version=api_version,
        correlation_id=0,
        client_id="test",
        listener="",
        slot=SimpleNamespace(connection=connection),  # type: ignore[arg-type]
    )
