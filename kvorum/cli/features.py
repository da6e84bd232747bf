"""`kvorum features`: show the finalised levels, and change them (KIP-584)."""

from __future__ import annotations

from typing import Any

import click

from kvorum.cli.common import INT16_MAX, cluster_options, show, show_outcomes
from kvorum.cli.watch import watchable
from kvorum.client.failures import CommandFailed


@click.group()
def features() -> None:
    """Feature levels of the cluster: the levels that nodes support, and the finalised ones."""


@features.command()
@watchable
@cluster_options
def describe(**options: Any) -> None:
    """Each feature: the levels that the nodes support, and the finalised one.

    Through a broker the supported levels are those of that broker; through a controller, those that
    every registered node supports.
    """
    rows = _backend(options).features()
    show(options["output"], rows, ["feature", "min_level", "max_level", "finalized_level"])


_FEATURE = click.option(
    "--feature",
    "assignments",
    multiple=True,
    required=True,
    metavar="NAME=LEVEL",
    help="Level to finalise; 0 disables the feature. Repeatable: all are made or none.",
)
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Check and show; change nothing.")


@features.command()
@_FEATURE
@_DRY_RUN
@cluster_options
def upgrade(assignments: tuple[str, ...], dry_run: bool, **options: Any) -> None:
    """Raise levels, once every node supports them."""
    _update(options, assignments, "UPGRADE", dry_run)


@features.command()
@_FEATURE
@click.option("--unsafe", is_flag=True, help="Even if metadata is lost; not supported yet.")
@_DRY_RUN
@cluster_options
def downgrade(assignments: tuple[str, ...], unsafe: bool, dry_run: bool, **options: Any) -> None:
    """Lower the levels. Refused if metadata would be lost."""
    kind = "UNSAFE_DOWNGRADE" if unsafe else "SAFE_DOWNGRADE"
    _update(options, assignments, kind, dry_run)


def _update(
    options: dict[str, Any], assignments: tuple[str, ...], kind: str, dry_run: bool
) -> None:
    from kvorum.metadata.requests.controller_requests import UpdateKind

    levels: dict[str, int] = {}
    for text in assignments:
        name, separator, level = text.partition("=")
        if not separator or not name or not level.isdigit() or int(level) > INT16_MAX:
            raise click.UsageError(
                f"--feature {text!r} is not NAME=LEVEL with a whole number up to {INT16_MAX}"
            )
        if name in levels:
            raise click.UsageError(f"--feature {name} is given twice")
        levels[name] = int(level)
    backend = _backend(options)
    before = {row["feature"]: row["finalized_level"] for row in backend.features()}
    rows = backend.update_features(levels, UpdateKind[kind], dry_run)
    has_failed = any(row["error"] != "NONE" for row in rows)
    for row in rows:
        is_other = before.get(row["feature"]) != row["level"]
        row["changed"] = is_other and not dry_run and not has_failed
    columns = ["feature", "level", "result", "message", "changed"]
    show_outcomes(options["output"], rows, columns, done="accepted")
    if has_failed:
        raise CommandFailed("nothing was changed")


def _backend(options: dict[str, Any]) -> Any:
    from kvorum.cli.backends import open_backend

    return open_backend(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
