"""The security of the command that runs.

One command has one security; it is kept here, since connections are opened in many places and
threads. A session of the console acts as another user.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from kvorum.client.security import NONE, ClientSecurity

_current = NONE
_of_profile = ""
_of_session: ContextVar[ClientSecurity | None] = ContextVar("kvorum.security", default=None)


def use(security: ClientSecurity, of_profile: str = "") -> None:
    """Make it the security of the process. of_profile: what `profile_clause` says."""
    global _current, _of_profile
    _current, _of_profile = security, of_profile


def current_security() -> ClientSecurity:
    """The security of the command that runs; within `acting_as`, that of its user."""
    acting = _of_session.get()
    return _current if acting is None else acting


@contextlib.contextmanager
def acting_as(security: ClientSecurity) -> Iterator[None]:
    """Connections that are opened within this block, in this thread or task, are those of another
    user than the command's."""
    token = _of_session.set(security)
    try:
        yield
    finally:
        _of_session.reset(token)


def profile_clause() -> str:
    """A clause for a connection that failed, with the profile that gives the properties, and how to
    use none; "" if the command line names them, or there are none."""
    return _of_profile if _of_session.get() is None else ""
