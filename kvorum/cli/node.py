"""`kvorum controller` and `kvorum broker`: one node, configured by a TOML file, the environment and
options."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kvorum.cli.common import refused
from kvorum.client.failures import CommandFailed

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def _sources(command: CommandT) -> CommandT:
    for option in (
        click.option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            help="Lines of the log for people, or JSON (kvorum.logging.format).",
        ),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            help="A property; it goes before the environment and the file. Repeatable.",
        ),
        click.option(
            "--config",
            "path",
            type=click.Path(dir_okay=False),
            help="TOML file; keys are Kafka's property names.",
        ),
    ):
        command = option(command)
    return command


@click.command()
@_sources
def controller(path: str | None, settings: tuple[str, ...], log_format: str | None) -> int:
    """Run one controller until SIGTERM or Ctrl-C.

    Environment variables set properties too: KVORUM_LOG_DIRS sets log.dirs.
    """
    return _run("controller", path, _with_format(settings, log_format))


@click.command()
@_sources
def broker(path: str | None, settings: tuple[str, ...], log_format: str | None) -> int:
    """Run one broker until SIGTERM or Ctrl-C.

    Environment variables set properties too: KVORUM_LOG_DIRS sets log.dirs.
    """
    return _run("broker", path, _with_format(settings, log_format))


def _with_format(settings: tuple[str, ...], log_format: str | None) -> tuple[str, ...]:
    return settings if log_format is None else (*settings, f"kvorum.logging.format={log_format}")


def _readable(path: str | None, properties: dict[str, Any]) -> tuple[str, ...]:
    from kvorum.launch.config.node_file import load_node_file
    from kvorum.launch.config.secret_properties import readable_secrets

    of_file = {} if path is None else load_node_file(path)
    return readable_secrets(path, of_file, properties)


def _run(role: str, path: str | None, settings: tuple[str, ...]) -> int:
    from kvorum.launch.config.node_file import node_properties, with_source
    from kvorum.launch.nodes.node import run_planned_node
    from kvorum.runtime.errors import ConfigError

    try:
        properties = node_properties(path, settings, os.environ)
        if not properties:
            raise ConfigError(
                f"a {role} needs properties: give --config FILE, --set KEY=VALUE, or variables "
                "such as KVORUM_NODE_ID"
            )
        notes = _readable(path, properties)
    except ConfigError as error:
        raise refused(error) from error
    try:
        return run_planned_node(role, properties, notes=notes)
    except ConfigError as error:
        told = with_source(str(error), path, settings, os.environ)
        raise CommandFailed(told, refused(error).exit_code) from error
