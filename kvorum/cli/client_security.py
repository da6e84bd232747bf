"""The security of commands: `--command-config`, a file with Kafka's client properties.

One command has one security (`launch.client_security`); it is kept here, since connections are
opened in many places and threads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import click

from kvorum.cli.profiles import ProfileOption, profile_of, profile_value
from kvorum.launch.client_security import NONE, ClientSecurity, read_properties, security_of
from kvorum.runtime.errors import ConfigError

_GIVEN = "kvorum.command_config"
_current = NONE
_of_session: ContextVar[ClientSecurity | None] = ContextVar("kvorum.security", default=None)


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


def _use(context: click.Context, _: click.Parameter, path: Any) -> None:
    if not path:
        return
    if context.resilient_parsing:
        # Not read yet: a completion connects only if it needs names.
        context.meta[_GIVEN] = path
    else:
        _use_file(context, path)


def use_for_completion(context: click.Context) -> None:
    """Use the security of a command line that is being completed, until the context is closed.
    Raises click.UsageError."""
    path = context.meta.get(_GIVEN) or profile_value(context, "command_config")
    if path:
        _use_file(context, path)


def _use_file(context: click.Context, path: str) -> None:
    global _current
    try:
        _current = security_of(read_properties(path), path)
    except ConfigError as error:
        raise click.UsageError(f"{error}{_whence(context)}") from error
    context.call_on_close(_forget)


def _whence(context: click.Context) -> str:
    """A clause with the profile that names the file, and the way out; "" without a profile."""
    profile = profile_of(context, "command_config")
    if not profile:
        return ""
    return (
        f"; profile {profile} names this file: mend it, or name another with kvorum profile set "
        f"{profile} command_config=FILE"
    )


def _forget() -> None:
    global _current
    _current = NONE


#: --command-config of a command that talks to brokers.
command_config_option = click.option(
    "--command-config",
    metavar="FILE",
    cls=ProfileOption,
    expose_value=False,
    callback=_use,
    help="File with Kafka's client properties: security.protocol, sasl.*, ssl.* (PEM).",
)
