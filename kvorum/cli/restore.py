"""`kvorum partitions restore`: replaces a damaged replica by an empty one, which fetches from the
leader."""

from __future__ import annotations

from typing import Any

import click

from kvorum.cli.common import cluster_options, is_structured, refused, show
from kvorum.client.failures import CommandFailed

_NO_LEADER = -1


@click.command()
@click.argument("target", metavar="TOPIC:PARTITION")
@click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(dir_okay=False),
    help="TOML file of the broker that has the damaged replica, which must be stopped.",
)
@click.option("--dry-run", is_flag=True, help="Check and show; change nothing.")
@click.option(
    "--unsafe",
    is_flag=True,
    help="Even if no other replica is in sync: its records are lost, and the other replicas "
    "truncate theirs, since it leads empty. `partitions elect --unclean` keeps another's records.",
)
@cluster_options
def restore(target: str, path: str, dry_run: bool, unsafe: bool, **options: Any) -> None:
    """Rename the folder of a damaged replica; at its next start the broker fetches the replica
    anew.

    The broker must be stopped and the cluster reachable. Refused unless another replica is in sync.
    The folder is renamed and never removed.
    """
    from kvorum.cli.backends import open_backend
    from kvorum.launch.config.node_file import load_node_file
    from kvorum.launch.config.properties import broker_config
    from kvorum.launch.recovery.restore import restore as do_it
    from kvorum.runtime.disk import OsDisk
    from kvorum.runtime.errors import ConfigError, CorruptData
    from kvorum.runtime.ids import uuid_from_text

    topic, partition_id = _parsed(target)
    try:
        config, _ = broker_config(load_node_file(path))
    except ConfigError as error:
        raise refused(error) from error
    backend = open_backend(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
    found = backend.topics([topic])[0]
    partition = next((p for p in found["partitions"] if p["partition"] == partition_id), None)
    if partition is None:
        raise CommandFailed(f"topic {topic} has no partition {partition_id}")
    others = _others_in_sync(partition, target, config.node_id, unsafe)
    try:
        done = do_it(
            OsDisk(),
            config,
            topic=topic,
            partition_id=partition_id,
            topic_id=uuid_from_text(found["topic_id"]),
            is_dry_run=dry_run,
        )
    except (ConfigError, CorruptData) as error:
        raise refused(error) from error
    row = {
        "topic": topic,
        "partition": partition_id,
        "broker_id": config.node_id,
        "folder": done.folder,
        "mark_deleted": [new_path for _, new_path in done.put_aside],
        "in_sync_elsewhere": others,
        "changed": not dry_run,
    }
    if is_structured(options["output"]):
        show(options["output"], row)
        return
    word = "would be" if dry_run else "is"
    for folder, new_path in done.put_aside:
        click.echo(f"{folder} {word} put aside as {new_path}")
    click.echo(f"{done.folder} {word} begun anew; start broker {config.node_id}")
    if not others:
        click.echo(
            "no other replica is in sync: as long as the metadata says so this one leads, with "
            f"nothing, and the others cut what they hold. To keep that, before the start: `kvorum "
            f"partitions elect --unclean {target}`",
            err=True,
        )


def _others_in_sync(
    partition: dict[str, Any], target: str, broker_id: int, unsafe: bool
) -> list[int]:
    """The other in-sync replicas. Raises CommandFailed if there are none and --unsafe is not
    given."""
    if broker_id not in partition["replicas"]:
        raise CommandFailed(
            f"broker {broker_id} has no replica of {target}: {partition['replicas']} have"
        )
    others = [member for member in partition["isr"] if member != broker_id]
    is_led = partition["leader"] not in (None, _NO_LEADER)
    if not (others and is_led) and not unsafe:
        what = (
            f"no replica of {target} but broker {broker_id}'s is in sync (ISR {partition['isr']})"
            if not others
            else f"{target} has no leader, so nobody says that the replicas in its ISR "
            f"{partition['isr']} are there"
        )
        raise CommandFailed(
            f"{what}: what is acknowledged would be lost with it. Bring another replica back, save "
            "what `kvorum log dump` can read, or have another one elected: `kvorum partitions "
            f"elect --unclean {target}` keeps what that one holds. With --unsafe this one begins "
            "empty and leads, and the others cut all that they hold"
        )
    return others


def _parsed(target: str) -> tuple[str, int]:
    topic, separator, number = target.rpartition(":")
    if not separator or not topic or not number.isdigit():
        raise click.UsageError(f"{target!r} is not TOPIC:PARTITION")
    return topic, int(number)
