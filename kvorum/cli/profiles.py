"""Profiles: named sets of options, so that the addresses of a cluster are typed once.

They are in one YAML file: `$KVORUM_PROFILES`, or `profiles.yaml` in the folder kvorum of
`$XDG_CONFIG_HOME` or `~/.config`. A command takes an option from its command line, else from the
environment, else from the profile: the one of --profile, of `$KVORUM_PROFILE`, or the current one.
The environment's address does not count beside --profile.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from kvorum.runtime.errors import ConfigError
from kvorum.runtime.text import address_problem, reading_problem, split_address

ENVIRONMENT_FILE = "KVORUM_PROFILES"
ENVIRONMENT_PROFILE = "KVORUM_PROFILE"
ENVIRONMENT_BOOTSTRAP = "KVORUM_BOOTSTRAP_SERVER"

OUTPUTS = ("table", "wide", "name", "json", "yaml")
_BOOTSTRAP = ("bootstrap_server", "bootstrap_controller")
KEYS = (*_BOOTSTRAP, "timeout", "output", "command_config")
"""The options that a profile may have."""
PATHS = ("command_config",)
"""Those with the path of a file. They are stored absolute: a profile counts in every folder."""

_CHOSEN = "kvorum.profile"


@dataclass(slots=True)
class Profiles:
    """The content of the file. current: "" for none."""

    current: str = ""
    items: dict[str, dict[str, Any]] = field(default_factory=dict)

    def options(self, name: str) -> dict[str, Any]:
        """The options of the profile with this name. Raises ConfigError if there is none."""
        if name not in self.items:
            known = ", ".join(sorted(self.items)) or "none"
            raise ConfigError(
                f"there is no profile {name!r} in {profiles_path()}; there are: {known}"
            )
        return self.items[name]


def profiles_path() -> Path:
    """The path of the file, which need not exist."""
    given = os.environ.get(ENVIRONMENT_FILE)
    if given:
        return Path(given)
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(home) / "kvorum" / "profiles.yaml"


def read_profiles() -> Profiles:
    """The profiles of the file; none without a file. Raises ConfigError for a damaged file."""
    path = profiles_path()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Profiles()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {reading_problem(error)}") from error
    import yaml

    try:
        content = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        line = " ".join(str(error).split())
        raise ConfigError(f"{path} is no YAML: {line}") from error
    return _checked(content, path)


def _checked(content: Any, path: Path) -> Profiles:
    if not isinstance(content, dict) or not set(content) <= {"current", "profiles"}:
        raise ConfigError(f"{path} must have the keys current and profiles, and no others")
    items = content.get("profiles") or {}
    current = content.get("current") or ""
    if not isinstance(items, dict) or not all(isinstance(item, dict) for item in items.values()):
        raise ConfigError(f"{path}: profiles must have a mapping of options under each name")
    for name, options in items.items():
        try:
            for key, value in options.items():
                check_option(str(key), str(value))
            check_options(options)
        except ConfigError as error:
            raise ConfigError(f"{path}: profile {name}: {error}") from error
    known = {str(name): dict(options) for name, options in items.items()}
    if current and current not in known:
        raise ConfigError(f"{path}: current is {current!r}, and there is no such profile")
    return Profiles(str(current), known)


def write_profiles(profiles: Profiles) -> None:
    """Replace the file. Only its owner may read it. Raises OSError."""
    import yaml

    path = profiles_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"current": profiles.current or None, "profiles": profiles.items}
    part = path.with_name(f"{path.name}.part")
    part.touch(mode=0o600)
    part.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), encoding="utf-8")
    part.replace(path)


def check_option(key: str, value: str) -> Any:
    """The value of a profile's option, as the command gets it. Raises ConfigError."""
    if key not in KEYS:
        raise ConfigError(f"{key!r} is no option of a profile; there are {', '.join(KEYS)}")
    if key in _BOOTSTRAP:
        for part in value.split(","):
            if split_address(part.strip()) is None:
                raise ConfigError(f"{key}: {address_problem(part.strip())}")
        return value
    if key == "command_config":
        return value
    if key == "output":
        if value not in OUTPUTS:
            raise ConfigError(f"output: {value!r} is none of {', '.join(OUTPUTS)}")
        return value
    try:
        timeout_s = float(value)
    except ValueError:
        timeout_s = 0.0
    if not timeout_s >= 0.1:
        raise ConfigError(f"timeout: {value!r} is no number of seconds of 0.1 or more")
    return timeout_s


def check_options(options: Mapping[str, Any]) -> None:
    """Raise ConfigError for options that exclude each other."""
    if all(options.get(key) for key in _BOOTSTRAP):
        raise ConfigError("give bootstrap_server or bootstrap_controller, not both")


def _choose(context: click.Context, _: click.Parameter, name: str | None) -> None:
    if name is not None:
        context.meta[_CHOSEN] = name


#: --profile, before all options that a profile may give.
profile_option = click.option(
    "--profile",
    metavar="NAME",
    is_eager=True,
    expose_value=False,
    callback=_choose,
    help="Options of this profile (kvorum profile list).",
)


class ProfileOption(click.Option):
    """An option whose default is the profile's."""

    def get_default(self, ctx: click.Context, call: bool = True) -> Any:
        """The profile's value, else the option's own default."""
        if self.name in KEYS and not ctx.resilient_parsing:
            value = profile_value(ctx, self.name)
            if value is not None:
                return value
        return super().get_default(ctx, call=call)


def is_bootstrap_given(context: click.Context) -> bool:
    """True if the command line itself names the cluster's address."""
    return any(
        context.get_parameter_source(name) == ParameterSource.COMMANDLINE for name in _BOOTSTRAP
    )


def profile_value(context: click.Context, key: str) -> Any:
    """The profile's value of an option that the command line does not give; None if the environment
    counts more. Raises click.UsageError."""
    explicit = context.meta.get(_CHOSEN)
    # The source of an option that was given is known by now: such options are read first.
    if key in _BOOTSTRAP and (
        is_bootstrap_given(context) or (explicit is None and os.environ.get(ENVIRONMENT_BOOTSTRAP))
    ):
        return None
    return options_of(explicit).get(key)


def options_of(name: str | None) -> Mapping[str, Any]:
    """The options of a profile; None: of the environment's, or the current one. Raises
    click.UsageError for a profile that does not exist, and for a damaged file."""
    try:
        profiles = read_profiles()
        chosen = _chosen(profiles, name)
        return profiles.options(chosen) if chosen else {}
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def profile_of(context: click.Context, option: str) -> str:
    """The profile that gives an option of the command that runs; "" if the command line does."""
    if context.get_parameter_source(option) != ParameterSource.DEFAULT:
        return ""
    return _chosen(read_profiles(), context.meta.get(_CHOSEN))


def _chosen(profiles: Profiles, name: str | None) -> str:
    return name or os.environ.get(ENVIRONMENT_PROFILE) or profiles.current
