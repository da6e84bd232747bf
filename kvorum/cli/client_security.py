"""The option `--command-config`: a file with Kafka's client properties."""

from __future__ import annotations

from typing import Any

import click

from kvorum.cli.profiles import ProfileOption, profile_of, profile_value
from kvorum.client.current import use
from kvorum.client.security import NONE, read_properties, security_of
from kvorum.runtime.errors import ConfigError

_GIVEN = "kvorum.command_config"


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
    try:
        security = security_of(read_properties(path), path)
    except ConfigError as error:
        raise click.UsageError(f"{error}{_whence(context)}") from error
    of_profile = ""
    if profile := profile_of(context, "command_config"):
        of_profile = (
            f"; the security is that of profile {profile} (command_config={path}): "
            "--command-config '' uses none"
        )
    use(security, of_profile)
    context.call_on_close(lambda: use(NONE))


def _whence(context: click.Context) -> str:
    """A clause with the profile that names the file, and the way out; "" without a profile."""
    profile = profile_of(context, "command_config")
    if not profile:
        return ""
    return (
        f"; profile {profile} names this file: mend it, or name another with kvorum profile set "
        f"{profile} command_config=FILE"
    )


#: --command-config of a command that talks to brokers.
command_config_option = click.option(
    "--command-config",
    metavar="FILE",
    cls=ProfileOption,
    expose_value=False,
    callback=_use,
    help="File with Kafka's client properties: security.protocol, sasl.*, ssl.* (PEM).",
)
