"""`kvorum controller` and `kvorum broker`: one node, configured by a TOML file."""

from __future__ import annotations

import click

from kvorum.cli.common import refused

_CONFIG = click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(dir_okay=False),
    help="TOML file; keys are Kafka's property names.",
)


@click.command()
@_CONFIG
def controller(path: str) -> int:
    """Run one controller until SIGTERM or Ctrl-C."""
    return _run("controller", path)


@click.command()
@_CONFIG
def broker(path: str) -> int:
    """Run one broker until SIGTERM or Ctrl-C."""
    return _run("broker", path)


def _run(role: str, path: str) -> int:
    from kvorum.launch.node import run_planned_node
    from kvorum.runtime.config import load_properties
    from kvorum.runtime.errors import ConfigError

    try:
        return run_planned_node(role, load_properties(path))
    except ConfigError as error:
        raise refused(error) from error
