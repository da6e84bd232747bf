"""`kvorum quorum recover`: one survivor becomes the only voter after a majority is lost for
good."""

from __future__ import annotations

from typing import Any

import click

from kvorum.cli.common import is_structured, output_option, refused, show
from kvorum.client.failures import EXIT_FAILED, CommandFailed


@click.command()
@click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(dir_okay=False),
    help="TOML file of the surviving controller, which must be stopped.",
)
@click.option("--unsafe", is_flag=True, help="Make the change. Without it nothing is changed.")
@output_option
def recover(path: str, unsafe: bool, output: str) -> None:
    """Make a stopped controller the only voter, when a majority of the voters is gone for good.

    Run it first without --unsafe: it shows what would be kept and what cannot be known. Of several
    survivors take the one with the greatest epoch, then the greatest offset.
    """
    from kvorum.launch.config.node_file import load_node_file
    from kvorum.launch.config.properties import controller_config
    from kvorum.launch.recovery.recover import inspect
    from kvorum.launch.recovery.recover import recover as do_it
    from kvorum.runtime.errors import ConfigError, CorruptData
    from kvorum.runtime.private_files import private_files

    try:
        config, _ = controller_config(load_node_file(path))
        with private_files():
            survivor = do_it(config) if unsafe else inspect(config)
    except (ConfigError, CorruptData) as error:
        raise refused(error) from error
    row: dict[str, Any] = {
        "node_id": survivor.node_id,
        "directory": survivor.directory,
        "last_offset": survivor.end_offset - 1,
        "last_epoch": survivor.epoch,
        "surely_committed_to": survivor.committed_offset - 1,
        "voters_before": list(survivor.voters.ids),
        "voters_after": [survivor.node_id],
        "lost_voters": list(survivor.lost),
        "cannot_be_known": _unknown(survivor.end_offset - 1, list(survivor.lost)),
        "was_voter": survivor.node_id in survivor.voters.ids,
        "next_epoch": survivor.next_epoch,
        "changed": unsafe,
    }
    if is_structured(output):
        show(output, row)
    else:
        _explain(row, list(survivor.lost))
    if not unsafe:
        raise CommandFailed("nothing was changed; --unsafe does it", EXIT_FAILED)


def _explain(row: dict[str, Any], lost: list[int]) -> None:
    if not row["was_voter"]:
        click.echo(
            f"node {row['node_id']} was no voter: its log may lack what the voters had; take one "
            "of them if you can"
        )
    done = "is now" if row["changed"] else "would become"
    for line in (
        f"node {row['node_id']} ({row['directory']}) {done} the only voter of "
        f"{row['voters_before']}",
        f"kept: everything up to offset {row['last_offset']}, epoch {row['last_epoch']}",
        f"surely committed: up to offset {row['surely_committed_to']}",
        "cannot be known:",
        *(f"  - {text}" for text in row["cannot_be_known"]),
        f"never start {lost} again with their old data: they could elect a leader of their own; "
        "wipe them, and add them as new voters",
    ):
        click.echo(line)


def _unknown(last_offset: int, lost: list[int]) -> list[str]:
    return [
        f"whether {lost} held acknowledged records above offset {last_offset}: those are lost",
        f"whether the last records up to {last_offset} were ever committed: they come true now",
    ]
