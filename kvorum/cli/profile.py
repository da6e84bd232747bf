"""`kvorum profile`: list, show, set, use, delete."""

from __future__ import annotations

import os
from typing import Any

import click

from kvorum.cli.common import output_option_of, refused, show
from kvorum.cli.profiles import (
    KEYS,
    PATHS,
    ProfileOption,
    Profiles,
    check_option,
    check_options,
    profiles_path,
    read_profiles,
    write_profiles,
)
from kvorum.client.failures import CommandFailed
from kvorum.runtime.errors import ConfigError


class _OutputOption(ProfileOption):
    """-o of commands that must work with a current profile that does not exist: they mend it."""

    def get_default(self, ctx: click.Context, call: bool = True) -> Any:
        """The profile's value, else the option's own default."""
        try:
            return super().get_default(ctx, call=call)
        except click.UsageError:
            return click.Option.get_default(self, ctx, call=call)


output_option = output_option_of(_OutputOption)


@click.group()
def profile() -> None:
    """Named sets of options: the addresses of a cluster, the output, the timeout."""


@profile.command("list")
@output_option
def list_profiles(output: str) -> None:
    """All profiles; the current one counts if a command names none."""
    found = _read()
    rows = [_row(found, name) for name in sorted(found.items)]
    show(output, rows, ["profile", "is_current", *KEYS])


@profile.command("show")
@click.argument("name", required=False)
@output_option
def show_profile(name: str | None, output: str) -> None:
    """The options of profile NAME, or of the current one."""
    found = _read()
    chosen = name or found.current
    if not chosen:
        raise CommandFailed("no profile is current; kvorum profile use NAME makes one so")
    _options(found, chosen)
    show(output, _row(found, chosen))


@profile.command("set")
@click.argument("name")
@click.argument("assignments", nargs=-1, required=True, metavar="KEY=VALUE...")
def set_profile(name: str, assignments: tuple[str, ...]) -> None:
    """Set options of profile NAME, which is made if it is missing; KEY= takes one away.

    Keys: bootstrap_server, bootstrap_controller, timeout (seconds), output, command_config (a file
    with Kafka's client properties, kept with its whole path). The first profile becomes the
    current one.
    """
    found = _read()
    options = dict(found.items.get(name, {}))
    try:
        for text in assignments:
            key, separator, value = text.partition("=")
            if not separator:
                raise ConfigError(f"{text!r} is not KEY=VALUE")
            if value:
                checked = check_option(key, value)
                options[key] = _existing(key, checked) if key in PATHS else checked
            elif key not in KEYS:
                check_option(key, value)
            else:
                options.pop(key, None)
        check_options(options)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    found.items[name] = options
    is_first = not found.current
    found.current = found.current or name
    _write(found)
    text = f"profile {name} of {profiles_path()} is set"
    if is_first:
        text += (
            "; it is the current one now, which commands without --profile use, until kvorum "
            f"profile use names another or kvorum profile delete {name}"
        )
    click.echo(text)


@profile.command()
@click.argument("name")
def use(name: str) -> None:
    """Make profile NAME the current one."""
    found = _read()
    _options(found, name)
    found.current = name
    _write(found)
    click.echo(f"profile {name} is the current one")


@profile.command()
@click.argument("name")
def delete(name: str) -> None:
    """Delete profile NAME."""
    found = _read()
    _options(found, name)
    del found.items[name]
    if found.current == name:
        found.current = ""
    _write(found)
    click.echo(f"profile {name} is deleted")


def _existing(key: str, path: str) -> str:
    """The whole path of a file with client properties. Raises ConfigError if it cannot be read."""
    from kvorum.client.security import read_properties

    whole = os.path.abspath(path)
    try:
        read_properties(whole)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error
    return whole


def _row(found: Profiles, name: str) -> dict[str, Any]:
    options = _options(found, name)
    is_current = name == found.current
    return {"profile": name, "is_current": is_current, **{key: options.get(key) for key in KEYS}}


def _options(found: Profiles, name: str) -> dict[str, Any]:
    try:
        return found.options(name)
    except ConfigError as error:
        raise refused(error) from error


def _read() -> Profiles:
    try:
        return read_profiles()
    except ConfigError as error:
        raise refused(error) from error


def _write(profiles: Profiles) -> None:
    try:
        write_profiles(profiles)
    except OSError as error:
        raise CommandFailed(f"{profiles_path()}: cannot be written: {error.strerror}") from error
